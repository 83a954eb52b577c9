"""Saves, deletions and collections of one tenant at once, step by step in any order, with any of them killed anywhere.

Each actor runs in a thread of its own and stops before each operation on the store, until the story lets it go on:
so one operation happens at a time, and Hypothesis chooses whose.
"""

import os
import threading
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sandfleet_operator.plan.snapshots.collection import FENCE_SECONDS, REMOVED_SECONDS
from sandfleet_operator.plan.snapshots.errors import SnapshotError
from sandfleet_operator.plan.snapshots.manifest import About
from sandfleet_operator.snapshots import collector
from sandfleet_operator.snapshots.store import SnapshotStore
from support.snapshots import Clock, MemoryObjects, flat, load, store_in_memory

EXAMPLES = int(os.environ.get("SANDFLEET_EXAMPLES", "30"))
# Of these each save has some: chunks of their own, so that snapshots share them.
PIECES = [os.urandom(70_000) for _ in range(3)]
WAIT = 60


class Killed(BaseException):
    """The process of an actor is gone."""


class Actor:
    """Work on a store, one operation at a time. `result` and `error` once it is over."""

    def __init__(self, objects: MemoryObjects, clock: Clock, work: Callable[[SnapshotStore], object]) -> None:
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._killed = False
        self.over = self.takes_back = False
        self.result: object = None
        self.error: SnapshotError | None = None
        own = MemoryObjects(objects.now, self._pause, objects.held)
        self._thread = threading.Thread(target=self._run, args=(work, store_in_memory(own, clock=clock)), daemon=True)
        self._thread.start()
        self._stopped.acquire(timeout=WAIT)

    def step(self) -> None:
        self._go.release()
        assert self._stopped.acquire(timeout=WAIT)

    def kill(self) -> None:
        self._killed = True
        self.step()
        self._thread.join(WAIT)

    def finish(self) -> None:
        while not self.over:
            self.step()

    def _pause(self, operation: str, key: str) -> None:
        if self._killed:
            # Nothing tidies up behind a process that was killed.
            raise Killed
        self._stopped.release()
        self._go.acquire()
        if self._killed:
            raise Killed

    def _run(self, work: Callable[[SnapshotStore], object], store: SnapshotStore) -> None:
        try:
            self.result = work(store)
        except SnapshotError as error:
            self.error = error
        except Killed:
            pass
        finally:
            self.over = True
            self._stopped.release()


def saving(pieces: frozenset[int], number: int, *, gives_up: bool) -> Callable[[SnapshotStore], object]:
    tree = flat({b"%d" % piece: PIECES[piece] for piece in pieces} | {b"own": b"%d" % number})

    def save(store: SnapshotStore) -> object:
        writer = store.writer("team", About(), f"s{number}")
        try:
            for entry, data in tree:
                writer.add([entry], data)
            return None if gives_up else writer.commit()
        except SnapshotError:
            writer.abort()
            raise
        finally:
            if gives_up:
                writer.abort()

    return save


class Stories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.objects = MemoryObjects(lambda: self.clock.seconds)
        self.store = store_in_memory(self.objects, clock=self.clock)
        self.actors: list[Actor] = []
        self.saves: dict[str, tuple[Actor, frozenset[int]]] = {}
        # Those whose deletion has begun: they may be there, or not. Of some a mark in the trash may be taken back.
        self.deleted: set[str] = set()
        self.backs: dict[str, Actor] = {}
        self.number = 0

    def start(self, work: Callable[[SnapshotStore], object]) -> Actor:
        self.actors = [actor for actor in self.actors if not actor.over]
        self.actors.append(Actor(self.objects, self.clock, work))
        return self.actors[-1]

    @precondition(lambda self: len(self.actors) < 5)
    @rule(pieces=st.frozensets(st.integers(0, 2), min_size=1), gives_up=st.sampled_from([False, False, False, True]))
    def save(self, pieces: frozenset[int], gives_up: bool) -> None:
        self.number += 1
        actor = self.start(saving(pieces, self.number, gives_up=gives_up))
        if not gives_up:
            self.saves[f"s{self.number}"] = actor, pieces

    @precondition(lambda self: len(self.actors) < 5)
    @rule(data=st.data(), now=st.booleans())
    def delete(self, data: st.DataObject, now: bool) -> None:
        here = sorted(self.exist())
        if here:
            name = data.draw(st.sampled_from(here))
            self.deleted.add(name)
            self.backs.pop(name, None)
            self.start(lambda store: store.delete("team", name, now=now))

    @precondition(lambda self: len(self.actors) < 5)
    @rule(data=st.data())
    def undelete(self, data: st.DataObject) -> None:
        gone = sorted(self.deleted)
        if gone:
            name = data.draw(st.sampled_from(gone))
            # One who deletes it at the same moment may be the later one.
            busy = any(not actor.over for actor in self.actors)
            actor = self.start(lambda store: store.undelete("team", name))
            actor.takes_back = True
            if not busy:
                actor.finish()
                self.backs[name] = actor

    @precondition(lambda self: len(self.actors) < 5)
    @rule()
    def collect(self) -> None:
        self.start(lambda store: store.collect("team"))

    @precondition(lambda self: any(not actor.over for actor in self.actors))
    @rule(which=st.integers(0, 4), steps=st.integers(1, 12))
    def go_on(self, which: int, steps: int) -> None:
        running = [actor for actor in self.actors if not actor.over]
        actor = running[which % len(running)]
        while steps and not actor.over:
            actor.step()
            steps -= 1

    @precondition(lambda self: any(not actor.over for actor in self.actors))
    @rule(which=st.integers(0, 4))
    def kill(self, which: int) -> None:
        running = [actor for actor in self.actors if not actor.over]
        running[which % len(running)].kill()

    @rule(days=st.sampled_from([0, 0, 0, 31]))
    def days_pass(self, days: int) -> None:
        # None of these takes a day.
        for actor in self.actors:
            if actor.takes_back:
                actor.finish()
        self.clock.seconds += FENCE_SECONDS + 1 + days * 86_400

    def exist(self) -> dict[str, frozenset[int]]:
        """Saves that have said that their snapshot exists, and that no deletion has touched."""
        return {
            name: pieces
            for name, (actor, pieces) in self.saves.items()
            if actor.over and actor.result is not None and (name not in self.deleted or self.is_back(name))
        }

    def is_back(self, name: str) -> bool:
        return name in self.backs and self.backs[name].result is not None

    @invariant()
    def every_snapshot_is_there_with_every_byte(self) -> None:
        listed = {manifest.id for manifest in self.store.list("team")}
        assert self.exist().keys() <= listed
        for name in listed:
            self.is_right(name, self.saves[name][1])

    def is_right(self, name: str, pieces: frozenset[int]) -> None:
        files = {entry.path: data for entry, data in load(self.store, "team", name)[1:]}
        assert files == {b"%d" % piece: PIECES[piece] for piece in pieces} | {b"own": name[1:].encode()}

    def teardown(self) -> None:
        """When all have ended or are dead, collections leave what snapshots need, and nothing else."""
        for actor in self.actors:
            actor.finish()
        self.every_snapshot_is_there_with_every_byte()
        self.clock.seconds += FENCE_SECONDS + 1
        for _ in range(4):
            self.store.collect("team")
        self.every_snapshot_is_there_with_every_byte()
        for manifest in self.store.list("team"):
            self.store.delete("team", manifest.id)
        self.store.collect("team")
        # Fences stand a week longer, against writers that may be asleep, and what was deleted can be taken back.
        self.clock.seconds += REMOVED_SECONDS + 1
        self.store.collect("team")
        assert self.objects.held == {}


TestStories = pytest.mark.slow(Stories.TestCase)
TestStories.settings = settings(max_examples=EXAMPLES, stateful_step_count=30)


def test_a_collection_that_does_not_wait_for_writers_removes_what_one_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: without the wait, the story that the order of things is for ends badly."""

    def story() -> None:
        clock = Clock()
        objects = MemoryObjects(lambda: clock.seconds)
        store = store_in_memory(objects, clock=clock)
        saving(frozenset({0}), 1, gives_up=False)(store)
        builds_on_it = Actor(objects, clock, saving(frozenset({0}), 2, gives_up=False))
        for _ in range(12):
            builds_on_it.step()
        store.delete("team", "s1", now=True)
        waited = store.collect("team").waiting
        builds_on_it.finish()
        assert builds_on_it.error is None
        assert load(store, "team", "s2")[1][1] == PIECES[0]
        assert waited

    story()
    seen = collector.Collector._writers
    calls: list[None] = []

    def first_without(self: collector.Collector) -> frozenset[str]:
        calls.append(None)
        return frozenset() if len(calls) == 1 else seen(self)

    monkeypatch.setattr(collector.Collector, "_writers", first_without)
    with pytest.raises(AssertionError):
        story()
