"""A store on a real S3 server behind a proxy that fails: what a save, a restore and a collection make of it.

After each story: the snapshot is there with every byte, or it is not there; and once the server works again, a
collection leaves no object that no snapshot needs.
"""

import os
from collections.abc import Callable
from unittest.mock import patch

import pytest
from cluster.harness.s3 import S3
from contract.snapshots.conftest import Faulty
from sandfleet_operator.plan.snapshots.errors import Reason, SnapshotError
from sandfleet_operator.plan.snapshots.manifest import About
from sandfleet_operator.snapshots import collector
from sandfleet_operator.snapshots.backends import Objects
from sandfleet_operator.snapshots.backends.s3 import S3Objects, connect
from sandfleet_operator.snapshots.store import Chance, SnapshotStore
from support.s3_faults import FAULTS
from support.snapshots import KEYS, Clock, Tree, flat, load, save

TREE = flat({b"a": os.urandom(600_000), b"b": b"text"})
BEFORE = flat({b"a": b"before"})
ONCE, ALWAYS = 1, 1000
STEPS = {
    "the marker": r"^PUT .*/writers/",
    "a pack": r"^PUT .*/packs/",
    "the manifest": r"^PUT .*/manifests/",
    "reading it back": r"^GET .*/manifests/new",
    "the trash": r"^GET .*prefix=[^&]*trash",
    "the packs": r"^GET .*prefix=[^&]*packs",
    "the marker's end": r"^DELETE .*/writers/",
}


# The others behave like these two; all of them with SANDFLEET_ALL_FAULTS=1, which takes minutes.
TELLING = (
    STEPS if os.environ.get("SANDFLEET_ALL_FAULTS") else {name: STEPS[name] for name in ("a pack", "the manifest")}
)


def kept_right(store: SnapshotStore, plain: Objects, tree: Tree) -> bool:
    """Whether the snapshot is there; it is right then, and all else is collected. The server works again."""
    there = SnapshotStore(plain, KEYS, store.chance)
    listed = {manifest.id for manifest in there.list("team")}
    assert "before" in listed <= {"before", "new"}
    # As if it were later than any writer and any fence.
    with patch.multiple(collector, FENCE_SECONDS=-1.0, FENCED_SECONDS=-1.0):
        for _ in range(2):
            there.collect("team")
    for name in listed:
        assert load(there, "team", name) == (tree if name == "new" else BEFORE)
        there.delete("team", name, now=True)
    there.collect("team")
    assert list(plain.list("")) == []
    there.close()
    return "new" in listed


@pytest.mark.parametrize("times", [ONCE, ALWAYS], ids=["once", "always"])
@pytest.mark.parametrize("fault", [fault for fault in FAULTS if "download" not in fault])
def test_a_save_on_a_failing_server_is_whole_or_not_there(faulty: Callable[[], Faulty], fault: str, times: int) -> None:
    for pattern in TELLING.values():
        bed = faulty()
        store, plain = SnapshotStore(bed.objects, KEYS), SnapshotStore(bed.plain, KEYS)
        save(plain, "team", BEFORE, snapshot_id="before")
        bed.proxy.fail(fault, pattern, count=times)
        failure = None
        try:
            save(store, "team", TREE, snapshot_id="new")
        except SnapshotError as error:
            failure = error
        bed.proxy.heal()
        there = kept_right(store, bed.plain, TREE)
        # A reply that was lost is the one case in which a save may fail and its snapshot be there.
        assert there or failure is not None
        assert failure is None or failure.reason in {Reason.UNAVAILABLE, Reason.DENIED}
        if times == ONCE and fault in {"error", "slow", "reset", "reply lost"}:
            assert there, f"{fault} {pattern}: {failure}"


@pytest.mark.parametrize("times", [ONCE, ALWAYS], ids=["once", "always"])
@pytest.mark.parametrize("fault", ["error", "slow", "reset", "reply lost", "changed download", "cut download"])
def test_a_restore_from_a_failing_server_gives_no_wrong_byte(
    faulty: Callable[[], Faulty], fault: str, times: int
) -> None:
    bed = faulty()
    store, plain = SnapshotStore(bed.objects, KEYS), SnapshotStore(bed.plain, KEYS)
    save(plain, "team", TREE, snapshot_id="new")
    for pattern in (r"^GET .*/manifests/", r"^GET .*/packs/"):
        bed.proxy.fail(fault, pattern, count=times)
        try:
            assert load(store, "team", "new") == TREE
        except SnapshotError as error:
            assert error.reason in {Reason.UNAVAILABLE, Reason.CORRUPT, Reason.FOREIGN}
        else:
            assert times == ONCE
        bed.proxy.heal()
    assert load(store, "team", "new") == TREE


@pytest.mark.parametrize("fault", ["error", "reply lost"])
def test_a_collection_on_a_failing_server_is_done_by_the_next_one(faulty: Callable[[], Faulty], fault: str) -> None:
    for pattern in (r"^PUT .*/round", r"^DELETE .*/packs/", r"^DELETE .*/trash/"):
        bed = faulty()
        store, plain = SnapshotStore(bed.objects, KEYS), SnapshotStore(bed.plain, KEYS)
        save(plain, "team", BEFORE, snapshot_id="before")
        save(plain, "team", TREE, snapshot_id="gone")
        plain.delete("team", "gone", now=True)
        bed.proxy.fail(fault, pattern, count=ALWAYS)
        with pytest.raises(SnapshotError) as failed:
            store.collect("team")
        assert failed.value.reason is Reason.UNAVAILABLE
        bed.proxy.heal()
        assert not kept_right(store, bed.plain, TREE)


def test_credentials_that_are_revoked_in_the_middle_fail_the_save_alone(versitygw: S3) -> None:
    user = versitygw.user(f"u{os.urandom(4).hex()}", "userplus")
    theirs = connect(versitygw.endpoint, versitygw.region, (user.access_key, user.secret_key), attempts=2)
    bucket = f"b{os.urandom(6).hex()}"
    theirs.create_bucket(Bucket=bucket)
    store = SnapshotStore(S3Objects(theirs, bucket), KEYS)
    save(store, "team", BEFORE, snapshot_id="before")
    writer = store.writer("team", About(), "new")
    for entry, data in TREE:
        writer.add([entry], data)
    versitygw.revoke(user)
    with pytest.raises(SnapshotError) as refused:
        writer.commit()
    assert refused.value.reason is Reason.DENIED
    writer.abort()
    root = connect(versitygw.endpoint, versitygw.region, (versitygw.root.access_key, versitygw.root.secret_key))
    assert not kept_right(store, S3Objects(root, bucket), TREE)


def test_a_clock_that_is_wrong_gives_up_no_writer(faulty: Callable[[], Faulty]) -> None:
    """A writer's age is told by the store's clock, so it does not matter whose clock is days ahead."""
    bed = faulty()
    clock = Clock()
    store = SnapshotStore(bed.plain, KEYS, clock.chance())
    save(store, "team", BEFORE, snapshot_id="before")
    writer = store.writer("team", About(), "new")
    for entry, data in TREE:
        writer.add([entry], data)
    ahead = SnapshotStore(bed.plain, KEYS, Chance(lambda: clock.seconds + 100 * 86_400))
    collected = ahead.collect("team")
    assert collected.fenced == ()
    # The round has noted the writer, and waits for it.
    assert len(collected.waiting) == 1
    writer.commit()
    assert kept_right(store, bed.plain, TREE)


def test_a_writer_that_was_given_up_is_told_and_leaves_nothing(faulty: Callable[[], Faulty]) -> None:
    bed = faulty()
    store = SnapshotStore(bed.plain, KEYS)
    save(store, "team", BEFORE, snapshot_id="before")
    writer = store.writer("team", About(), "new")
    for entry, data in TREE:
        writer.add([entry], data)
    with patch.object(collector, "FENCE_SECONDS", -1.0):
        assert len(store.collect("team").fenced) == 1
    with pytest.raises(SnapshotError) as refused:
        writer.commit()
    assert refused.value.reason is Reason.FENCED
    writer.abort()
    assert not kept_right(store, bed.plain, TREE)
