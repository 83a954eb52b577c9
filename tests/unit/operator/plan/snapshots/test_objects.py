"""What SandboxSnapshots ask for, and what is shown of the store."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_operator.api.conditions import SavedReason
from sandfleet_operator.api.kinds.meta import Meta
from sandfleet_operator.api.kinds.snapshot import SandboxSnapshot, SnapshotSpec
from sandfleet_operator.plan.snapshots.objects import (
    OBJECT,
    ORPHAN_SECONDS,
    ORPHANS,
    Create,
    DeleteSnapshot,
    Hold,
    Listing,
    Release,
    Save,
    Undelete,
    WriteStatus,
    named_by,
    says,
    shows,
    size_text,
    steps,
)

NOW = 1_800_000_000.0


def facts(snapshot_id="s-1", **changes):
    given = {
        "id": snapshot_id,
        "name": "after-etl",
        "sandbox": "team/box",
        "template": "python",
        "contract": "autonomous",
        "received": ["untrusted"],
        "labels": {},
        "reason": "manual",
        "owner": "alice",
        "parents": ["s-0"],
        "created_ms": int((NOW - 60) * 1000),
        "entries": 3,
        "bytes": 5 << 20,
        "new_bytes": 1300,
    }
    return {**given, **changes}


def an_object(name="mine", *, held=True, deleting=False, **spec):
    meta = Meta(namespace="team", name=name, uid=f"uid-of-{name}", deleting=deleting, generation=1)
    return SandboxSnapshot(meta=meta, spec=SnapshotSpec(**spec), is_held=held)


ASKING = an_object(sandbox="box")
SHOWING = an_object("after-etl", snapshot_id="s-1")
SAVED = replace(SHOWING, status=shows(SHOWING, facts(), NOW))


def kinds(objects, found=(), *, unread=(), whole=True):
    return [type(one).__name__ for one in steps(objects, Listing(found, frozenset(unread), whole), (), NOW)]


@pytest.mark.parametrize(
    ("one", "found", "wanted"),
    [
        (replace(ASKING, is_held=False), [], ["Hold"]),
        (ASKING, [], ["Save"]),
        # Its fleet ended between the save and the status.
        (ASKING, [facts("s-9", labels={OBJECT: ASKING.meta.uid})], ["WriteStatus"]),
        (SHOWING, [facts()], ["WriteStatus"]),
        (SAVED, [facts()], []),
        (SAVED, [], ["Release"]),
        (replace(ASKING, status=shows(ASKING, facts(), NOW)), [], ["WriteStatus"]),
        (an_object(snapshot_id="s-1", deleting=True), [facts()], ["DeleteSnapshot", "Release"]),
        (an_object(snapshot_id="s-1", deleting=True), [], ["Release"]),
        (an_object(snapshot_id="s-1", deleting=True, held=False), [facts()], []),
        (an_object(sandbox="box", deleting=True), [facts("s-9", labels={OBJECT: ASKING.meta.uid})], ["DeleteSnapshot", "Release"]),
    ],
)  # fmt: skip
def test_each_object_gets_what_it_lacks(one, found, wanted):
    assert kinds([one], found) == wanted


def test_an_object_says_what_its_snapshot_is():
    said = shows(ASKING, facts(), NOW)
    assert (said.sandbox, said.size, said.added, said.owner, said.parents) == (
        "box",
        "5.0Mi",
        "1.3Ki",
        "alice",
        ("s-0",),
    )
    assert (said.conditions[0].status, said.conditions[0].reason) == ("True", "Saved")
    # What does not change keeps its time.
    later = shows(replace(ASKING, status=said), facts(), NOW + 100)
    assert later == said
    gone = says(replace(ASKING, status=said), SavedReason.SNAPSHOT_GONE, "", NOW + 100)
    assert (gone.conditions[0].status, gone.conditions[0].changed) == ("False", NOW + 100)


def test_a_snapshot_that_was_taken_over_the_api_becomes_an_object():
    assert steps([], Listing([facts()]), (), NOW) == [Create("after-etl", "s-1")]
    # One of the same name is there.
    made = steps([an_object("after-etl", snapshot_id="s-0")], Listing([facts("s-0"), facts()]), (), NOW)
    assert Create("snapshot-s-1", "s-1") in made
    for name in ("", "with.dots"):
        assert steps([], Listing([facts(name=name)]), (), NOW) == [Create("snapshot-s-1", "s-1")]


@pytest.mark.parametrize("reason", ["suspend", "automatic"])
def test_a_snapshot_that_keeps_a_session_is_no_object_and_goes_when_no_session_names_it(reason):
    old = int((NOW - ORPHAN_SECONDS - 1) * 1000)
    kept = Listing([facts(reason=reason, created_ms=old)])
    assert steps([], kept, {"s-1"}, NOW) == []
    assert steps([], kept, {"s-2"}, NOW) == [Undelete("s-2"), DeleteSnapshot("s-1", ORPHANS)]
    assert steps([], kept, (), NOW) == [DeleteSnapshot("s-1", ORPHANS)]
    # It may be about to be named.
    assert steps([], Listing([facts(reason=reason)]), (), NOW) == []


@pytest.mark.parametrize(
    ("status", "named"),
    [
        # Fields that this version cannot read beside it, as of a later one.
        ({"snapshot": {"id": "s-1", "heldUntil": 7}, "conditions": "none"}, ["s-1"]),
        ({"restoresFrom": "s-2", "snapshot": {"id": "s-1"}}, ["s-2", "s-1"]),
        ({"snapshot": []}, []),
        ("none", []),
        (None, []),
    ],
)
def test_an_object_that_cannot_be_read_names_its_snapshot_nevertheless(status, named):
    assert list(named_by({"metadata": {"name": "box"}, "status": status})) == named


def test_of_what_keeps_sessions_a_tenth_goes_in_one_round_at_most():
    old = int((NOW - ORPHAN_SECONDS - 1) * 1000)
    kept = [facts(f"s-{number}", reason="suspend", created_ms=old - number) for number in range(25)]
    # As of a cluster that was restored from a backup: it names none of them. The oldest go first.
    assert steps([], Listing(kept), (), NOW) == [DeleteSnapshot("s-24", ORPHANS), DeleteSnapshot("s-23", ORPHANS)]
    assert steps([], Listing(kept[:3]), (), NOW) == [DeleteSnapshot("s-2", ORPHANS)]


def test_the_snapshot_after_the_first_five_thousand_is_there_as_any_other():
    many = [facts(f"s-{number}") for number in range(5_001)]
    last = replace(SAVED, spec=SnapshotSpec(snapshot_id="s-5000"), status=replace(SAVED.status, snapshot_id="s-5000"))
    assert not [one for one in steps([last], Listing(many), (), NOW) if isinstance(one, Release)]


@pytest.mark.parametrize("how", [{"unread": ["s-1"]}, {"whole": False}])
def test_a_snapshot_that_cannot_be_read_or_was_not_listed_is_not_gone(how):
    assert kinds([SAVED], **how) == []
    assert kinds([replace(SAVED, meta=replace(SAVED.meta, deleting=True))], **how) == ["DeleteSnapshot", "Release"]
    # Control.
    assert kinds([SAVED]) == ["Release"]


OBJECTS = st.builds(
    an_object,
    st.sampled_from(["a", "b", "c"]),
    held=st.booleans(),
    deleting=st.booleans(),
    sandbox=st.sampled_from(["", "box"]),
    snapshot_id=st.sampled_from(["", "s-1", "s-2"]),
)


@given(
    st.lists(OBJECTS, max_size=3, unique_by=lambda one: one.meta.name),
    st.lists(st.sampled_from(["s-1", "s-2"]), unique=True),
)
def test_only_what_an_object_that_goes_stands_for_is_deleted(objects, ids):
    made = steps(objects, Listing([facts(one) for one in ids]), (), NOW)
    going = {one.snapshot_id for one in objects if one.meta.deleting}
    assert {one.snapshot_id for one in made if isinstance(one, DeleteSnapshot)} <= going
    # Nothing is saved or written for what goes, nor before the fleet has a say in its end.
    for step in made:
        if isinstance(step, Save | WriteStatus):
            assert step.obj.is_held and not step.obj.meta.deleting
        if isinstance(step, Hold):
            assert not step.obj.is_held
        if isinstance(step, Release):
            assert step.obj.is_held


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0"), (999, "999"), (1024, "1.0Ki"), (1 << 30, "1.0Gi"), (123 << 20, "123Mi")]
)
def test_a_size_is_read_at_a_glance(size, text):
    assert size_text(size) == text
