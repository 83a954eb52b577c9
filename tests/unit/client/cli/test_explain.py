"""`sandfleet explain REASON`: what the reference says of a word."""

import json

import pytest
from sandfleet.cli import USAGE, main
from sandfleet.cli.fleets import explain
from sandfleet.values import reasons


@pytest.mark.parametrize(
    "reason",
    [one for kind in vars(reasons).values() if isinstance(kind, type) for one in getattr(kind, "__members__", ())],
)
def test_each_reason_is_explained(reason):
    assert reason  # names of members; their values are words
    kinds = [kind for kind in vars(reasons).values() if reason in getattr(kind, "__members__", {})]
    for kind in kinds:
        word = kind[reason].value
        assert {kind.__doc__} <= {told.about for told in explain._told(word)}
        assert all(told.meaning.endswith(".") and "\n" not in told.remedy for told in explain._told(word))


def test_a_reason_needs_no_fleet(capsys):
    assert main(["explain", "workspacebusy"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("WorkspaceBusy: Another sandbox uses the workspace.\nRelease that sandbox first.")
    assert main(["explain", "WorkspaceBusy", "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert one["reason"] == "WorkspaceBusy"


def test_a_reason_that_is_misspelt_is_suggested(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "Leasexpired"]) == USAGE
    assert "Leasexpired is no reason; did you mean LeaseExpired" in capsys.readouterr().err
