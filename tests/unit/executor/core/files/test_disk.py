"""When the workspace is looked at, and when what it takes is too much."""

import asyncio
import contextlib
import errno
import os
import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_executor.core.files.disk import (
    ENTRY_BYTES,
    LEAST_MARGIN,
    MIB,
    PERIOD,
    Free,
    Verdict,
    Walked,
    beyond,
    counted,
    is_due,
    is_over,
    judge,
    most,
)
from sandfleet_executor.effects.session import disk
from sandfleet_executor.effects.session.disk import Disk, Questions, walk

GIB = 1 << 30
LIMIT = GIB
WALKED = Walked(used=GIB // 2, free=Free(100 * GIB, 10**6), at=100.0, seconds=0.01)
sizes = st.integers(0, 1 << 50)


def test_an_empty_file_takes_something_and_a_large_one_its_blocks():
    assert (counted(0), counted(1), counted(8), counted(9)) == (4096, 4096, 4096, 9 * 512)


@pytest.mark.parametrize(
    ("free", "expected"),
    [
        (Free(100 * GIB, 10**6), GIB // 2),
        (Free(100 * GIB - 5, 10**6), GIB // 2 + 5),
        (Free(100 * GIB, 10**6 - 3), GIB // 2 + 3 * ENTRY_BYTES),
        # Others removed something: no less is known of ours.
        (Free(200 * GIB, 10**7), GIB // 2),
    ],
)
def test_the_workspace_takes_no_more_than_what_is_gone_of_its_file_system(free, expected):
    assert most(WALKED, free) == expected


def test_behind_a_walk_beside_which_folders_moved_counts_what_went_since_the_last_whole_one():
    moved = Walked(used=5, free=Free(90 * GIB, 10**6), at=101.0, seconds=0.01, base=WALKED)
    assert most(moved, Free(90 * GIB, 10**6)) == GIB // 2 + 10 * GIB
    # Others free space meanwhile: then what the session has written counts.
    assert most(moved, Free(200 * GIB, 10**7), written=GIB) == GIB // 2 + GIB


FULL = Free(99 * GIB, 10**6)
DUE = [
    ("never walked", None, FULL, 0.0, True, True),
    ("just walked, room left", WALKED, WALKED.free, 100.1, True, False),
    ("a while ago", WALKED, WALKED.free, 100.0 + PERIOD, True, True),
    ("a while ago, nothing runs", WALKED, WALKED.free, 100.0 + PERIOD, False, False),
    ("it may be full", WALKED, FULL, 100.04, True, True),
    ("it may be full, but a walk is dear", Walked(GIB // 2, WALKED.free, 100.0, 1.0), FULL, 102.0, True, False),
    ("it may be full, and it was dear", Walked(GIB // 2, WALKED.free, 100.0, 1.0), FULL, 103.0, True, True),
    ("it may be full, nothing runs", WALKED, FULL, 100.04, False, False),
    ("it may be full for a while, nothing runs", WALKED, FULL, 100.0 + PERIOD, False, True),
]


@pytest.mark.parametrize(("what", "walked", "free", "now", "running", "due"), DUE, ids=[row[0] for row in DUE])
def test_when_a_walk_is_due(what, walked, free, now, running, due):
    assert is_due(walked, free, now, LIMIT, running=running) is due


@given(used=sizes, before=sizes, limit=st.integers(1, 1 << 50))
def test_what_ends_executions(used, before, limit):
    over = is_over(used, before, limit)
    if used <= limit:
        assert not over
    if used > beyond(limit):
        assert over
    if limit < used <= beyond(limit):
        # In between who lets it grow ends, and who cleans up does not.
        assert over == (used > before)


def test_the_margin_is_a_tenth_and_no_less_than_what_one_needs_to_clean_up():
    assert (beyond(10 * GIB), beyond(MIB)) == (11 * GIB, MIB + LEAST_MARGIN)


# grown, (ended, hopeless, idle_tried) → verdict, names
JUDGED = [
    ({"a": 5, "b": 7, "c": 0}, (False, False, False), Verdict.END, ["b"]),
    ({"a": 3, "b": None}, (True, True, True), Verdict.END, ["a"]),
    # Another one has ended, which may have been it; but not where there is no room left at all.
    ({"a": 0}, (True, False, False), Verdict.FINE, []),
    ({"a": None}, (True, False, False), Verdict.FINE, []),
    ({"a": None}, (True, True, False), Verdict.END, ["a"]),
    # No running execution writes: a leftover of a cell does, or a process that hides.
    ({"a": 0, "b": 0}, (False, False, False), Verdict.END_IDLE, []),
    ({"a": 0, "b": 0}, (False, False, True), Verdict.END, ["a", "b"]),
    ({}, (False, False, True), Verdict.END_IDLE, []),
    ({}, (True, False, False), Verdict.FINE, []),
    # It is not known who writes.
    ({"a": None, "b": None}, (False, False, False), Verdict.END, ["a", "b"]),
]


@pytest.mark.parametrize(("grown", "state", "verdict", "names"), JUDGED)
def test_which_executions_end_for_a_full_workspace(grown, state, verdict, names):
    ended, hopeless, idle_tried = state
    assert judge(grown, ended=ended, hopeless=hopeless, idle_tried=idle_tried) == (verdict, names)


# Walks, of real folders


@pytest.fixture
def folder(tmp_path):
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield tmp_path, fd
    os.close(fd)


def test_a_walk_counts_files_and_folders_however_deep(folder):
    path, fd = folder
    assert walk(fd, GIB).used == 0
    deep = path
    for _ in range(40):
        deep /= "d"
        deep.mkdir()
    (deep / "file").write_bytes(bytes(MIB))
    (path / "empty").touch()
    blocks = [each.lstat().st_blocks for each in path.rglob("*")]
    assert len(blocks) == 42
    assert walk(fd, GIB).used == sum(map(counted, blocks))


def test_a_walk_counts_a_file_of_many_names_once_and_follows_no_link(folder):
    path, fd = folder
    (path / "one").write_bytes(bytes(MIB))
    once = walk(fd, GIB).used
    (path / "two").hardlink_to(path / "one")
    assert walk(fd, GIB).used == once
    (path / "up").symlink_to("..")
    (path / "out").symlink_to("/usr")
    assert walk(fd, GIB).used == once + 2 * ENTRY_BYTES


def test_a_walk_stops_when_it_knows_enough(folder, monkeypatch):
    path, fd = folder
    for number in range(100):
        (path / str(number)).touch()
    seen = []
    entries = disk.entries_in
    monkeypatch.setattr(disk, "entries_in", lambda fd: (seen.append(each) or each for each in entries(fd)))
    assert walk(fd, 10 * ENTRY_BYTES).used == 11 * ENTRY_BYTES
    assert len(seen) == 11


def test_folders_beyond_what_a_walk_keeps_in_mind_are_too_much(folder, monkeypatch):
    path, fd = folder
    monkeypatch.setattr(disk, "MOST_FOLDERS", 5)
    for number in range(5):
        (path / str(number)).mkdir()
    assert walk(fd, GIB).used < GIB
    (path / "one more").mkdir()
    assert walk(fd, GIB).used > GIB


async def test_uploads_stay_counted_while_a_walk_is_under_way(folder, monkeypatch):
    path, fd = folder
    entered, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    async def none():
        return 0

    def slow(*given):
        loop.call_soon_threadsafe(entered.set)
        go_on.wait(60)
        return walk(*given)

    small = Disk(fd, lambda: 2 * ENTRY_BYTES, Questions(none), lambda: 0.0)
    await small.measure()
    (path / "uploaded").touch()
    await small.take(ENTRY_BYTES)
    monkeypatch.setattr(disk, "walk", slow)
    walking = asyncio.create_task(small.measure())
    await entered.wait()
    assert await small.room(1) == ENTRY_BYTES
    small.count(ENTRY_BYTES)
    go_on.set()
    await walking
    # The walk may have seen the second one or not.
    assert await small.room(0) == 0


async def test_uploads_are_counted_before_they_are_seen_and_forgotten_when_they_are_not_there(folder):
    path, fd = folder

    async def none():
        return 0

    small = Disk(fd, lambda: 2 * ENTRY_BYTES, Questions(none), lambda: 0.0)
    await small.measure()
    (path / "uploaded").touch()
    await small.take(ENTRY_BYTES)
    # The first is there by now and takes its place; what a stream that broke had taken is free again.
    await small.take(ENTRY_BYTES)
    await small.take(ENTRY_BYTES)
    (path / "another").touch()
    with pytest.raises(OSError, match="limit is reached") as refused:
        await small.take(1)
    assert refused.value.errno == errno.EDQUOT
    assert not small.is_hopeless


def test_a_folder_in_memory_counts_no_writes():
    if os.path.ismount("/dev/shm"):
        assert not disk.counts_writes("/dev/shm")
    assert not disk.counts_writes("/proc")


@pytest.fixture
def hidden(tmp_path, monkeypatch):
    """A workspace in which a folder with 1 MiB has another name whenever a walk comes to it, until it stands still."""
    (tmp_path / "w/a").mkdir(parents=True)
    (tmp_path / "w/a/large").write_bytes(bytes(MIB))
    real, moving = disk.Trail.enter, [True]

    def enter(trail, name):
        if moving[0]:
            raise FileNotFoundError(name)
        real(trail, name)

    @contextlib.asynccontextmanager
    async def still():
        moving[0] = False
        yield True
        moving[0] = True

    monkeypatch.setattr(disk.Trail, "enter", enter)
    fd = os.open(tmp_path / "w", os.O_RDONLY)
    yield fd, still
    os.close(fd)


@pytest.mark.parametrize("stands_still", [True, False])
async def test_a_folder_that_no_walk_can_enter_is_walked_while_the_session_stands_still(hidden, stands_still):
    fd, still = hidden
    written = iter([0, 0, 2 * MIB, 2 * MIB, 2 * MIB])

    async def none():
        return 0

    questions = Questions(none, written=lambda: next(written))
    found = Disk(fd, lambda: MIB, replace(questions, still=still) if stands_still else questions)
    assert await found.measure() is False
    # Control: as long as it may hold no more than the limit the session goes on.
    assert await found.measure() is False
    assert found.used == ENTRY_BYTES
    assert await found.measure() is True
    # What cannot be seen for certain is taken for there.
    assert found.used == (MIB + ENTRY_BYTES if stands_still else ENTRY_BYTES + 2 * MIB)
