"""What a snapshotter makes of its jobs: which snapshot is meant, and what it says of those that it cannot read."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from sandfleet_operator.plan.snapshots.errors import Reason, SnapshotError
from sandfleet_operator.plan.snapshots.manifest import Manifest
from sandfleet_operator.snapshots import worker
from sandfleet_operator.snapshots.aio import AsyncSnapshots
from sandfleet_operator.snapshots.store import SnapshotStore
from sandfleet_operator.snapshots.worker import Worker
from support.snapshots import MemoryObjects, flat, save, store_in_memory

Ask = Callable[..., list[dict[str, Any]]]
TREE = flat({b"a": b"text"})


@pytest.fixture
def objects() -> MemoryObjects:
    return MemoryObjects()


@pytest.fixture
def store(objects: MemoryObjects) -> SnapshotStore:
    return store_in_memory(objects)


@pytest.fixture
def ask(store: SnapshotStore) -> Ask:
    """The events of a job."""

    def run(op: str, **request: Any) -> list[dict[str, Any]]:
        async def events() -> list[dict[str, Any]]:
            said: list[dict[str, Any]] = []
            done = asyncio.Event()

            def say(event: dict[str, Any]) -> None:
                said.append(event)
                if event["event"] in ("done", "failed"):
                    done.set()

            Worker(AsyncSnapshots(store), say).take({"id": 1, "op": op, "tenant": "team", **request})
            await asyncio.wait_for(done.wait(), 20)
            return said

        return asyncio.run(events())

    return run


def fails_once(objects: MemoryObjects, part: str) -> None:
    """The store answers the next operation on such a key with 503."""
    left = [1]

    def before(_: str, key: str) -> None:
        if part in key and left:
            left.pop()
            raise SnapshotError(Reason.UNAVAILABLE, "cannot read: the server answers 503")

    objects.before = before


def test_a_name_that_looks_like_an_id_never_stands_for_it(
    store: SnapshotStore, objects: MemoryObjects, ask: Ask
) -> None:
    mine = save(store, "team", TREE)
    # Of a time when such names were let in.
    other = save(store, "team", flat({b"a": b"another session's"}), name=mine.id)
    fails_once(objects, f"manifests/{mine.id}")
    (said,) = ask("get", snapshot=mine.id)
    assert (said["event"], said["reason"]) == ("failed", "Unavailable")
    assert ask("get", snapshot=mine.id)[-1]["snapshot"]["id"] == mine.id
    fails_once(objects, f"manifests/{mine.id}")
    assert ask("delete", snapshot=mine.id)[-1]["event"] == "failed"
    assert [one.id for one in store.list("team")] == [other.id, mine.id]
    assert ask("delete", snapshot=mine.id)[-1]["existed"] is True
    # It is gone, and the other one is not put in its place.
    (said,) = ask("get", snapshot=mine.id)
    assert (said["event"], said["reason"]) == ("failed", "NotFound")
    assert ask("delete", snapshot=mine.id)[-1]["existed"] is False
    assert [one.id for one in store.list("team")] == [other.id]


def test_another_manifest_under_the_same_id_is_refused(store: SnapshotStore, ask: Ask) -> None:
    made = save(store, "team", TREE)
    assert ask("get", snapshot=made.id, digest=made.digest)[-1]["snapshot"]["digest"] == made.digest
    (said,) = ask("get", snapshot=made.id, digest="0" * 64)
    assert (said["event"], said["reason"]) == ("failed", "Changed")


def test_what_cannot_be_read_is_listed_by_its_id_and_can_be_deleted(
    store: SnapshotStore, objects: MemoryObjects, ask: Ask
) -> None:
    whole, damaged = save(store, "team", TREE), save(store, "team", TREE)
    objects.held[f"team/manifests/{damaged.id}"] = b"junk", 0.0
    listed, done = ask("list", sandbox="")
    assert listed["snapshot"]["id"] == whole.id
    assert (done["unread"], done["whole"]) == ([damaged.id], True)
    assert ask("delete", snapshot=damaged.id)[-1]["existed"] is True
    assert ask("list", sandbox="")[-1]["unread"] == []


def test_a_listing_that_is_cut_off_says_so(store: SnapshotStore, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        save(store, "team", TREE)
    assert ask("list", sandbox="")[-1]["whole"] is True
    monkeypatch.setattr(worker, "MOST_LISTED", 2)
    events = ask("list", sandbox="")
    assert len(events) == 3
    assert events[-1]["whole"] is False


def test_a_job_of_a_later_fleet_fails_instead_of_hanging(ask: Ask, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.CRITICAL):
        (said,) = ask("dance")
    assert (said["event"], said["reason"]) == ("failed", "Unavailable")


async def _by_name_after_any_failure(self: Worker, request: Mapping[str, Any]) -> Manifest:
    try:
        return await self._store.get(request["tenant"], request["snapshot"])
    except SnapshotError:
        found = await self._store.find(request["tenant"], request["snapshot"])
        if found is None:
            raise
        return found


def test_a_name_that_stands_for_an_id_is_found_without_the_mend(
    store: SnapshotStore, objects: MemoryObjects, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """42.11: one answer of 503, and another session's snapshot is put in its place."""
    monkeypatch.setattr(Worker, "_find", _by_name_after_any_failure)
    with pytest.raises((AssertionError, KeyError)):
        test_a_name_that_looks_like_an_id_never_stands_for_it(store, objects, ask)
