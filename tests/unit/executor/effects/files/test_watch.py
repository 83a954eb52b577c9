"""Watches on a real directory, on one event loop."""

import asyncio
import os

import pytest
from sandfleet_executor.core.files.watch import EventKind
from sandfleet_executor.effects.files import watch
from sandfleet_executor.effects.files.inotify import WorkspaceWatcher
from sandfleet_executor.effects.files.watch import TooManyWatches, WatcherNotReady, Watches


@pytest.fixture
def world(tmp_path):
    fd = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    made = []

    def make(**options):
        watcher = WorkspaceWatcher(fd, **options)
        watcher.scan()
        made.append(watcher)
        return Watches(watcher)

    yield make
    for watcher in made:
        watcher.close()
    os.close(fd)


async def test_what_was_before_is_not_told_and_each_watch_hears_the_rest(world, tmp_path):
    (tmp_path / "before").touch()
    hub = world()
    (tmp_path / "just before").touch()
    async with hub.open(b"", recursive=True) as one, hub.open(b"", recursive=True) as other:
        (tmp_path / "f").touch()
        for watch in (one, other):
            assert [event.path for event in await asyncio.wait_for(watch.take(10), 60)] == [b"f"]


async def test_a_watch_that_ended_hears_and_holds_nothing(world, tmp_path):
    hub = world()
    async with hub.open(b"", recursive=True) as watch:
        pass
    (tmp_path / "f").touch()
    hub._watcher.drain()
    assert not watch.feed
    assert hub._reading == -1


async def test_a_workspace_that_is_too_large_cannot_be_watched_and_makes_no_watch(world, tmp_path, monkeypatch):
    monkeypatch.setattr(watch, "READY_SECONDS", 0.2)
    for number in range(5):
        (tmp_path / str(number)).mkdir()
    hub = world(max_dirs=3)
    with pytest.raises(WatcherNotReady):
        async with hub.open(b"", recursive=True):
            pass
    assert hub._open == []


async def test_a_directory_that_becomes_too_large_is_an_overflow_without_a_number(world, tmp_path):
    hub = world(max_names=50)
    async with hub.open(b"", recursive=True) as watch:
        for number in range(100):
            (tmp_path / str(number)).touch()
        events = await asyncio.wait_for(watch.take(1000), 60)
        while events[-1].kind is not EventKind.OVERFLOW:
            events += await asyncio.wait_for(watch.take(1000), 60)
    assert events[-1].dropped == 0


async def test_there_is_a_bound(world, monkeypatch):
    monkeypatch.setattr(watch, "MAX_WATCHES", 1)
    hub = world()
    async with hub.open(b"", recursive=True):
        with pytest.raises(TooManyWatches):
            async with hub.open(b"", recursive=True):
                pass
    async with hub.open(b"", recursive=True):
        pass
