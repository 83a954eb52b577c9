"""The watcher of a real directory: its cost in looks, lost events, and directories that are too large."""

import errno
import logging
import os
import threading
from pathlib import Path

import pytest
from sandfleet_executor.effects.files import inotify
from sandfleet_executor.effects.files.inotify import PAUSE_AFTER_FAILURE_SECONDS, WorkspaceWatcher


class World:
    def __init__(self, base):
        self.base = base
        self.now = 100.0
        self.fd = os.open(base, os.O_PATH | os.O_DIRECTORY)
        self.watchers = []

    def watcher(self, *, scanned=True, **options):
        watcher = WorkspaceWatcher(self.fd, clock=lambda: self.now, **options)
        self.watchers.append(watcher)
        if scanned:
            watcher.scan()
        return watcher

    def close(self):
        for watcher in self.watchers:
            watcher.close()
        os.close(self.fd)


@pytest.fixture
def world(tmp_path):
    base = tmp_path / "ws"
    base.mkdir()
    world = World(base)
    yield world
    world.close()


def settle(watcher):
    """Lets a scan that was begun end, and takes it over."""
    watcher.begin()
    if watcher._thread is not None:
        watcher._thread.join()
    watcher.drain()


def test_before_the_first_scan_an_answer_is_not_complete_and_the_scan_comes_by_itself(world):
    watcher = world.watcher(scanned=False)
    assert not watcher.since(watcher.begin()).complete
    settle(watcher)
    mark = watcher.begin()
    (world.base / "f").touch()
    files = watcher.since(mark)
    assert (files.created, files.complete) == ((b"f",), True)


def test_names_are_the_kernel_s_bytes(world):
    watcher = world.watcher()
    mark = watcher.begin()
    name = b"\xff \n\x01"
    Path(os.fsdecode(os.fsencode(world.base) + b"/" + name)).touch()
    assert watcher.since(mark).created == (name,)


def test_a_file_that_is_still_open_counts_when_it_is_written_to(world):
    with (world.base / "log").open("wb", buffering=0) as file:
        watcher = world.watcher()
        mark = watcher.begin()
        file.write(b"line")
        assert watcher.since(mark).modified == (b"log",)


def test_a_tree_that_is_made_at_once_is_seen_whole(world):
    watcher = world.watcher()
    mark = watcher.begin()
    for number in range(20):
        deep = world.base / f"t{number}/a/b/c"
        deep.mkdir(parents=True)
        (deep / "f").touch()
    files = watcher.since(mark)
    assert (len(files.created), files.complete) == (20, True)
    later = watcher.begin()
    (world.base / "t3/a/b/c/f").unlink()
    assert watcher.since(later).deleted == (b"t3/a/b/c/f",)


def test_changes_in_the_target_of_a_link_are_not_reported(world, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (world.base / "link").symlink_to(outside)
    watcher = world.watcher()
    mark = watcher.begin()
    (outside / "f").touch()
    assert watcher.since(mark).created == ()


def test_a_directory_that_left_the_workspace_is_watched_no_more(world, tmp_path):
    (world.base / "d/sub").mkdir(parents=True)
    watcher = world.watcher()
    (world.base / "d").rename(tmp_path / "d")
    watcher.drain()
    watcher.drain()
    mark = watcher.begin()
    (tmp_path / "d/sub/f").touch()
    files = watcher.since(mark)
    assert (files.created, files.complete) == ((), True)
    assert len(watcher._folders) == 1


def test_sandfleet_s_own_files_are_not_counted(world):
    watcher = world.watcher()
    mark = watcher.begin()
    (world.base / ".sandfleet/x").mkdir(parents=True)
    (world.base / ".sandfleet/x/f").touch()
    (world.base / ".sandfleet-partial-1").touch()
    assert watcher.since(mark).created == ()


def overflow(world, watcher):
    """More events than the kernel's queue takes."""
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    one, two = world.base / "one", world.base / "two"
    for _ in range(limit // 2 + 100):
        one.touch()
        two.touch()
    (world.base / "late").touch()


def test_lost_events_are_said_until_a_new_scan_has_found_what_is_there(world):
    watcher = world.watcher()
    mark = watcher.begin()
    overflow(world, watcher)
    assert not watcher.since(mark).complete
    world.now += 1
    settle(watcher)
    found = watcher.since(mark)
    assert (b"late" in found.created, found.complete) == (True, False)
    fresh = watcher.begin()
    (world.base / "late").unlink()
    files = watcher.since(fresh)
    assert (files.deleted, files.complete) == ((b"late",), True)


@pytest.mark.parametrize(
    ("options", "grow"),
    [
        ({"max_dirs": 3}, lambda base, number: (base / f"d{number}").mkdir()),
        ({"max_names": 3}, lambda base, number: (base / f"f{number}").touch()),
    ],
)
def test_a_workspace_that_is_too_large_is_said_so_until_it_is_smaller(world, options, grow):
    for number in range(5):
        grow(world.base, number)
    watcher = world.watcher(**options)
    assert not watcher.since(watcher.begin()).complete
    for path in list(world.base.iterdir())[:4]:
        path.rmdir() if path.is_dir() else path.unlink()
    # It is not looked at again at once: a scan costs.
    assert not watcher.since(watcher.begin()).complete
    world.now += PAUSE_AFTER_FAILURE_SECONDS + 1
    settle(watcher)
    assert watcher.since(watcher.begin()).complete


def test_a_workspace_that_grows_too_large_is_noticed(world):
    watcher = world.watcher(max_names=10)
    mark = watcher.begin()
    for number in range(20):
        (world.base / f"f{number}").touch()
    assert not watcher.since(mark).complete


def test_a_workspace_that_gets_too_many_directories_is_noticed(world):
    watcher = world.watcher(max_dirs=4)
    mark = watcher.begin()
    (world.base / "a/b/c/d/e").mkdir(parents=True)
    assert not watcher.since(mark).complete


def test_events_without_end_do_not_hold_the_executor(world, monkeypatch):
    monkeypatch.setattr(inotify, "MAX_EVENTS_AT_ONCE", 10)
    watcher = world.watcher()
    mark = watcher.begin()
    for number in range(20):
        (world.base / f"f{number}").touch()
    assert not watcher.since(mark).complete


def test_while_there_is_no_inotify_answers_are_empty_and_not_complete(world, monkeypatch, caplog):
    def refuse():
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(inotify, "inotify_init", refuse)
        watcher = world.watcher()
        assert "cannot watch the workspace" in caplog.text
        mark = watcher.begin()
        (world.base / "f").touch()
        files = watcher.since(mark)
        assert (files.created, files.complete, watcher.fileno()) == ((), False, -1)
        world.now += PAUSE_AFTER_FAILURE_SECONDS + 1
        watcher.begin()
    # As soon as one is free again it is taken.
    world.now += PAUSE_AFTER_FAILURE_SECONDS + 1
    settle(watcher)
    assert watcher.since(watcher.begin()).complete


def test_without_free_watches_answers_are_not_complete(world, monkeypatch):
    (world.base / "d").mkdir()
    add = inotify.inotify_add_watch
    left = iter([1])

    def refuse(*args):
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return add(*args)

    monkeypatch.setattr(inotify, "inotify_add_watch", refuse)
    watcher = world.watcher()
    assert not watcher.since(watcher.begin()).complete


def test_a_cell_that_touches_nothing_asks_the_kernel_once_at_its_start_and_once_at_its_end(world, monkeypatch):
    for number in range(500):
        (world.base / f"f{number}").touch()
    watcher = world.watcher()
    watcher.begin()
    reads = []
    real = os.read
    monkeypatch.setattr(inotify.os, "read", lambda *args: reads.append(args) or real(*args))
    monkeypatch.setattr(inotify, "entries_in", lambda _: pytest.fail("it scanned"))
    assert watcher.since(watcher.begin()).complete
    assert len(reads) == 2


def test_a_swap_of_a_directory_and_a_link_never_has_the_outside_watched(world, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "SECRET").touch()
    (world.base / "link").symlink_to(outside)
    watcher = world.watcher()
    mark = watcher.begin()
    over = threading.Event()

    def swap():
        while not over.is_set():
            (world.base / "dir").mkdir()
            (world.base / "dir").rename(world.base / "x")
            (world.base / "link").rename(world.base / "dir")
            (world.base / "dir").rename(world.base / "link")
            (world.base / "x").rmdir()

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for _ in range(2000):
            watcher.drain()
    finally:
        over.set()
        swapper.join()
    (outside / "SECRET2").touch()
    files = watcher.since(mark)
    assert not any(b"SECRET" in name for name in files.created + files.modified + files.deleted)
