"""Snapshots on each kind of store."""

import os

import pytest
from sandfleet_operator.plan.snapshots.errors import Reason, SnapshotError
from sandfleet_operator.snapshots.backends import Objects
from sandfleet_operator.snapshots.backends.s3 import S3Objects, check
from sandfleet_operator.snapshots.store import SnapshotStore
from support.snapshots import KEYS, flat, load, save


def test_snapshots_are_saved_read_deleted_and_collected(objects: Objects) -> None:
    store = SnapshotStore(objects, KEYS)
    files = {b"big": os.urandom(20 << 20), **{b"\xff\n%d" % number: b"%d" % number for number in range(1000)}}
    first = save(store, "team", flat(files), facts=b"facts")
    changed = flat({**files, b"\xff\n7": b"changed", b"new": b"new"})
    second = save(store, "team", changed, parents=(first.id,))
    assert second.stored_bytes < first.stored_bytes / 20
    assert [one.id for one in store.list("team")] == [second.id, first.id]
    store.delete("team", first.id, now=True)
    store.collect("team")
    assert load(store, "team", second.id, digest=second.digest) == changed
    with pytest.raises(SnapshotError) as refused:
        load(store, "team", first.id)
    assert refused.value.reason is Reason.NOT_FOUND
    store.delete("team", second.id, now=True)
    store.collect("team")
    assert list(objects.list("")) == []


def test_a_server_is_asked_whether_it_knows_conditional_writes(
    objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(objects, "one")
    assert list(objects.list("")) == []
    if isinstance(objects, S3Objects):
        put = objects.put
        monkeypatch.setattr(objects, "put", lambda key, data, **_: put(key, data))
        with pytest.raises(SnapshotError) as refused:
            check(objects, "one")
        assert refused.value.reason is Reason.DENIED


def test_a_store_is_one_clusters_and_a_deleted_snapshot_comes_back(objects: Objects) -> None:
    store = SnapshotStore(objects, KEYS)
    store.own("c-1")
    store.own("c-1")
    with pytest.raises(SnapshotError, match="that of cluster c-1") as refused:
        store.own("c-2")
    assert refused.value.reason is Reason.DENIED
    made = save(store, "c-1/u-1/team", flat({b"a": b"text"}))
    assert store.delete("c-1/u-1/team", made.id)
    store.collect("c-1/u-1/team")
    assert list(store.list("c-1/u-1/team")) == []
    assert store.undelete("c-1/u-1/team", made.id).id == made.id
    assert load(store, "c-1/u-1/team", made.id) == flat({b"a": b"text"})
