"""What callers may say of a new snapshot."""

import re

import pytest
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.fleet.snapshots import messages
from sandfleet_operator.fleet.snapshots.messages import check_new
from sandfleet_operator.snapshots.store import Chance


@pytest.mark.parametrize("reason", ["suspend", "automatic", "import", "x"])
def test_a_caller_cannot_say_that_its_snapshot_keeps_a_session(reason: str) -> None:
    with pytest.raises(FleetError, match="may give") as refused:
        check_new("mine", {}, reason)
    assert refused.value.problem.reason == "SnapshotInvalid"


@pytest.mark.parametrize("reason", ["", "manual", "fork"])
def test_what_a_caller_may_say(reason: str) -> None:
    check_new("after-etl.1", {}, reason)


def test_no_name_looks_like_the_id_of_a_snapshot() -> None:
    snapshot_id = Chance().new_name()
    with pytest.raises(FleetError, match="looks like the id") as refused:
        check_new(snapshot_id, {}, "")
    assert refused.value.problem.reason == "SnapshotInvalid"
    check_new(f"x{snapshot_id}"[:40], {}, "")


def test_a_name_like_an_id_is_let_in_without_the_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "ID", re.compile("none"))
    with pytest.raises(pytest.fail.Exception):
        test_no_name_looks_like_the_id_of_a_snapshot()
