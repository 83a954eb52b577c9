"""From changes of the index to the events of a watch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_executor.core.files import watch
from sandfleet_executor.core.files.changes import CREATE, DELETE, IS_DIRECTORY, MODIFY, MOVED_FROM, MOVED_TO, Index
from sandfleet_executor.core.files.watch import EventKind, Feed

CREATED, MODIFIED, DELETED, MOVED, OVERFLOW = EventKind


class World:
    """An index whose root has a file `f` and a directory `d` with a file `g`, and a watch on it."""

    def __init__(self, top=b"", *, recursive=True):
        self.index = Index()
        self.root = self.index.root
        self.index.add_file(self.root, b"f")
        self.d = self.index.add_folder(self.root, b"d")
        self.index.add_file(self.d, b"g")
        self.news = 0
        self.feed = Feed(top, recursive=recursive, on_news=self.hear)
        self.index.listeners.append(self.feed)

    def hear(self):
        self.news += 1

    def event(self, mask, name, folder=None, cookie=0):
        self.index.event(folder or self.root, mask, cookie, name)

    def said(self, limit=1000):
        return [(event.kind, event.old_path, event.path) for event in self.feed.take(limit)]


def test_what_is_written_again_and_again_is_one_event_until_it_is_read():
    world = World()
    for _ in range(5):
        world.event(MODIFY, b"f")
    assert world.said() == [(MODIFIED, b"", b"f")]
    world.event(MODIFY, b"f")
    assert world.said() == [(MODIFIED, b"", b"f")]


def test_what_is_written_while_it_is_new_is_only_new():
    world = World()
    world.event(CREATE, b"n")
    world.event(MODIFY, b"n")
    world.event(DELETE, b"n")
    world.event(CREATE, b"n")
    world.event(MODIFY, b"n")
    assert world.said() == [(CREATED, b"", b"n"), (DELETED, b"", b"n"), (CREATED, b"", b"n")]


def test_the_two_halves_of_a_move_are_one_event():
    world = World()
    world.event(MOVED_FROM, b"f", cookie=7)
    world.event(MOVED_TO, b"new", cookie=7)
    world.event(MOVED_FROM | IS_DIRECTORY, b"d", cookie=8)
    world.event(MOVED_TO | IS_DIRECTORY, b"e", cookie=8)
    assert world.said() == [(MOVED, b"f", b"new"), (MOVED, b"d", b"e")]


def test_halves_that_come_apart_are_a_deletion_and_a_creation():
    world = World()
    world.event(MOVED_FROM, b"f", cookie=7)
    assert world.said() == [(DELETED, b"", b"f")]
    world.event(MOVED_TO, b"new", cookie=7)
    assert world.said() == [(CREATED, b"", b"new")]


def test_a_move_over_a_file_is_a_move_and_an_upload_over_one_modifies_it():
    world = World()
    world.event(CREATE, b"n")
    world.said()
    world.event(MOVED_FROM, b"n", cookie=7)
    world.event(MOVED_TO, b"f", cookie=7)
    assert world.said() == [(MOVED, b"n", b"f")]
    world.event(MOVED_TO, b"f", cookie=9)
    assert world.said() == [(MODIFIED, b"", b"f")]


def test_a_watch_on_a_directory_hears_of_its_own_end_and_of_nothing_beside_it():
    world = World(b"d")
    world.event(MODIFY, b"f")
    world.event(MODIFY, b"g", world.d)
    world.event(DELETE | IS_DIRECTORY, b"d")
    assert world.said() == [(MODIFIED, b"", b"d/g"), (DELETED, b"", b"d")]


def test_a_directory_that_arrives_at_a_watched_place_is_told_with_what_is_in_it():
    world = World(b"w")
    world.event(MOVED_FROM | IS_DIRECTORY, b"d", cookie=8)
    world.event(MOVED_TO | IS_DIRECTORY, b"w", cookie=8)
    assert world.said() == [(CREATED, b"", b"w"), (CREATED, b"", b"w/g")]


def test_a_full_feed_keeps_what_it_has_and_counts_the_rest(monkeypatch):
    monkeypatch.setattr(watch, "MAX_PENDING", 3)
    world = World()
    for number in range(10):
        world.event(CREATE, b"%d" % number)
    assert [name for _, _, name in world.said(2)] == [b"0", b"1"]
    world.event(CREATE, b"late")
    last = world.feed.take(10)
    assert [(event.kind, event.path, event.dropped) for event in last] == [(CREATED, b"2", 0), (OVERFLOW, b"", 8)]
    assert [event.sequence for event in last] == [3, 4]
    world.event(CREATE, b"after")
    assert world.said() == [(CREATED, b"", b"after")]


def test_long_names_fill_a_feed_too():
    world = World()
    long = b"n" * 255
    for number in range(10_000):
        world.event(CREATE, long[:-5] + b"%05d" % number)
    assert world.feed._bytes <= watch.MAX_PENDING_BYTES
    assert world.feed.take(20_000)[-1].dropped == 10_000 - watch.MAX_PENDING_BYTES // 255


def test_departures_without_an_arrival_are_not_kept():
    world = World()
    for cookie in range(1, 500):
        for number in range(2):
            world.event(CREATE, b"%d" % number)
        world.event(MOVED_FROM, b"0", cookie=cookie)
        world.event(MOVED_FROM, b"1", cookie=1000 + cookie)
        world.feed.take(3)
    assert len(world.feed._departed) <= len(world.feed._pending)


@pytest.mark.parametrize("lose", [lambda world: world.index.lose(), lambda world: world.index.adopt(Index())])
def test_lost_events_are_an_overflow_of_unknown_size(lose):
    world = World()
    lose(world)
    assert bool(world.feed)
    assert [(event.kind, event.dropped) for event in world.feed.take(5)] == [(OVERFLOW, 0)]
    assert not world.feed


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["create", "delete", "move", "read"]), st.integers(0, 3), st.integers(0, 3))
    )
)
def test_a_follower_of_the_events_knows_which_files_are_there(steps):
    world = World()
    there = {b"f", b"d/g"}
    known = set(there)

    def read(limit):
        for event in world.feed.take(limit):
            if event.kind is DELETED:
                known.discard(event.path)
            elif event.kind is MOVED:
                known.discard(event.old_path)
                known.add(event.path)
            else:
                known.add(event.path)

    for cookie, (step, number, other) in enumerate(steps, start=1):
        name, target = b"%d" % number, b"%d" % other
        if step == "create":
            world.event(CREATE if name not in there else MODIFY, name)
            there.add(name)
        elif step == "delete" and name in there:
            world.event(DELETE, name)
            there.discard(name)
        elif step == "move" and name in there and name != target:
            world.event(MOVED_FROM, name, cookie=cookie)
            if other % 2:
                read(1)
            world.event(MOVED_TO, target, cookie=cookie)
            there = there - {name} | {target}
        elif step == "read":
            read(number)
    while world.feed:
        read(10)
    assert known == there
    assert not world.feed._latest
    assert not world.feed._departed
