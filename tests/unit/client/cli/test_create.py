"""What `sandfleet create` says when its process in the background cannot do its work."""

import argparse
import sys

import pytest
from sandfleet.cli.create import add_arguments, kept
from sandfleet.errors import UnavailableError


@pytest.mark.process
def test_a_background_process_that_ends_silently_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SANDFLEET_ADDRESS", raising=False)
    monkeypatch.setattr(sys, "executable", "/bin/true")
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    with pytest.raises(UnavailableError, match="its process ended without a word") as raised:
        kept(parser.parse_args([]), 1.0)
    assert raised.value.reason == "FleetNotStarted"
