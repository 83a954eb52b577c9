"""What `sandfleet create` says when its process in the background cannot do its work."""

import argparse
import sys

import pytest
from sandfleet.cli.create import kept
from sandfleet.errors import UnavailableError
from sandfleet.values.sandbox import Isolation


def test_a_background_process_that_ends_silently_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SANDFLEET_ADDRESS", raising=False)
    monkeypatch.setattr(sys, "executable", "/bin/true")
    options = argparse.Namespace(pool="", namespace="", template="", isolation=Isolation.NAMESPACE, max_wait=1.0)
    with pytest.raises(UnavailableError, match="its process ended without a word") as raised:
        kept(options, 1.0)
    assert raised.value.reason == "FleetNotStarted"
