"""Watches on directories of the workspace, fed by the one watcher that counts the changes of executions."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from sandfleet_executor.core.files.watch import Feed, FileEvent
from sandfleet_executor.effects.files.inotify import WorkspaceWatcher

MAX_WATCHES = 16
# So long events gather: what happens within it to one file is one event.
GATHER_SECONDS = 0.02
READY_SECONDS = 10.0
LOOK_SECONDS = 0.05


class TooManyWatches(Exception):
    """The number of watches is at its limit."""


class WatcherNotReady(Exception):
    """The workspace cannot be watched now."""


class Watch:
    """One caller's watch."""

    def __init__(self, top: bytes, *, recursive: bool) -> None:
        self._news = asyncio.Event()
        self.feed = Feed(top, recursive=recursive, on_news=self._news.set)

    async def take(self, limit: int) -> list[FileEvent]:
        """The next events; waits for the first."""
        while not self.feed:
            self._news.clear()
            await self._news.wait()
        return self.feed.take(limit)


class Watches:
    """For the event loop's thread, as the watcher is."""

    def __init__(self, watcher: WorkspaceWatcher) -> None:
        self._watcher = watcher
        self._open: list[Watch] = []
        self._reading = -1
        self._timer: asyncio.TimerHandle | None = None

    @contextlib.asynccontextmanager
    async def open(self, top: bytes, *, recursive: bool) -> AsyncIterator[Watch]:
        """Watches from here on. `top` relative to the workspace. Raises TooManyWatches, WatcherNotReady."""
        if len(self._open) >= MAX_WATCHES:
            raise TooManyWatches
        watch = Watch(top, recursive=recursive)
        self._open.append(watch)
        try:
            await self._until_ready()
            # What happened until now is not this watch's.
            self._watcher.drain()
            self._watcher.listen(watch.feed)
            self._listen()
            yield watch
        finally:
            self._open.remove(watch)
            self._watcher.forget(watch.feed)
            if not self._open:
                self._rest()

    async def _until_ready(self) -> None:
        for _ in range(round(READY_SECONDS / LOOK_SECONDS)):
            if self._watcher.is_current():
                return
            # A scan runs in a thread.
            await asyncio.sleep(LOOK_SECONDS)
        raise WatcherNotReady

    def _listen(self) -> None:
        """Until something happens."""
        if self._timer is None and self._reading != self._watcher.fileno():
            self._reading = self._watcher.fileno()
            asyncio.get_running_loop().add_reader(self._reading, self._gather)

    def _gather(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._reading)
        self._reading = -1
        self._timer = loop.call_later(GATHER_SECONDS, self._drain)

    def _drain(self) -> None:
        self._timer = None
        self._watcher.drain()
        self._listen()

    def _rest(self) -> None:
        if self._reading >= 0:
            asyncio.get_running_loop().remove_reader(self._reading)
            self._reading = -1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
