"""Follows the changes in the workspace by inotify, so that no cell pays for a scan.

The workspace is scanned once at the start, and again after events were lost. Until a scan has succeeded, every answer
says that it is not complete. A scan never follows a symlink, and watches what it has open: a process that exchanges
names meanwhile cannot have a directory outside watched.
"""

import contextlib
import errno
import logging
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from sandfleet_executor.core.executions.events import Files
from sandfleet_executor.core.files import changes
from sandfleet_executor.core.files.changes import Folder, Index, Listener, Mark, folders_of, is_hidden, place_of
from sandfleet_executor.core.files.paths import PARTIAL_PREFIX
from sandfleet_executor.effects.files.walk import Trail, entries_in
from sandfleet_executor.effects.linux import inotify_add_watch, inotify_init, inotify_rm_watch

_log = logging.getLogger(__name__)

_HEADER = struct.Struct("iIII")
_READ_BYTES = 256 << 10
# Code in the sandbox may make events as fast as they are read.
MAX_EVENTS_AT_ONCE = 100_000
# So long the executor does nothing else, not even look whether the disk is full.
MAX_SECONDS_AT_ONCE = 1.0
# Scans take at most a twentieth of the time, and a failed scan is not repeated at once.
PAUSE_PER_SCAN = 20.0
PAUSE_AFTER_FAILURE_SECONDS = 5.0

_UNMOUNT, _OVERFLOW, _IGNORED = 0x2000, 0x4000, 0x8000
_ONLY_DIRECTORIES, _NO_UNLINKED = 0x0100_0000, 0x0400_0000
_MASK = changes.APPEARED | changes.VANISHED | changes.TOUCHED | _ONLY_DIRECTORIES | _NO_UNLINKED
# Files on their way that an executor left behind which was killed: so many are told.
MAX_LEFTOVERS = 10_000
_VANISHED = (errno.ENOENT, errno.ENOTDIR)


@dataclass
class _Scan:
    """What a scan found."""

    index: Index = field(default_factory=Index)
    folders: dict[int, Folder] = field(default_factory=dict)
    leftovers: list[bytes] = field(default_factory=list)
    failure: str = ""


class _ScanError(Exception):
    """The workspace is too large to be watched."""


class WorkspaceWatcher:
    """Everything but `scan` is for one thread, and does not block.

    `workspace_fd` stays the caller's and has to stay open. `clock` gives monotonic seconds. While inotify is not to be
    had (a user may have 128 instances as Linux comes, all executors of one machine together), every answer is empty and
    not complete, and it is tried again every few seconds.
    """

    def __init__(
        self,
        workspace_fd: int,
        max_dirs: int = 8192,
        max_names: int = 200_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._workspace_fd = workspace_fd
        self._max_dirs = max_dirs
        self._max_names = max_names
        self._clock = clock
        self._index = Index()
        self._folders: dict[int, Folder] = {}
        # What the index says cannot be relied on.
        self._stale = True
        self._next_scan = 0.0
        # New directories, until the events that have come are all taken in.
        self._to_look: list[Folder] = []
        self._scanned: _Scan | None = None
        self._scanning = False
        self._thread: threading.Thread | None = None
        self._fd = -1
        self._open()

    def fileno(self) -> int:
        """For the event loop, which calls `drain`, so that a busy cell does not fill the queue; -1: none."""
        return self._fd

    def _open(self) -> bool:
        try:
            self._fd = inotify_init()
        except OSError as error:
            _log.warning("cannot watch the workspace now, files that change will not be known: %s", error)
            self._next_scan = self._clock() + PAUSE_AFTER_FAILURE_SECONDS
            return False
        self._next_scan = self._clock()
        return True

    def close(self) -> None:
        if self._thread is not None:
            self._thread.join()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def begin(self) -> Mark:
        """A mark on now. To hold it is to have the changes since then counted."""
        self.drain()
        return self._index.mark(complete=not self._stale)

    def since(self, mark: Mark) -> Files:
        """What changed since the mark, up to now."""
        self.drain()
        return self._index.since(mark)

    def is_current(self) -> bool:
        """Whether everything that changes is seen. Where it is not, a scan is begun or taken over."""
        self.drain()
        return not self._stale

    def listen(self, listener: Listener) -> None:
        """To be told of every change from now on, while events are taken in."""
        self._index.listeners.append(listener)

    def forget(self, listener: Listener) -> None:
        """One that does not listen is no error."""
        with contextlib.suppress(ValueError):
            self._index.listeners.remove(listener)

    def leftovers(self) -> list[bytes]:
        """Unfinished files (uploads, copies) that the last scan found, relative to the workspace."""
        return list(self._scanned.leftovers) if self._scanned is not None else []

    def drain(self) -> None:
        """Takes in the events that have come."""
        if self._stale and not self._catch_up():
            return
        left, until = MAX_EVENTS_AT_ONCE, self._clock() + MAX_SECONDS_AT_ONCE
        while left > 0:
            left -= self._take_events(left, until)
            if not self._to_look:
                break
            # Only now: events tell of the past, and a folder is looked into where they have led.
            fresh, self._to_look = self._to_look, []
            # Once, however often it was renamed meanwhile.
            for folder in {id(each): each for each in fresh}.values():
                if self._index.is_here(folder):
                    self._look_into(folder)
        if left <= 0:
            self._lose("more events come than can be read")
            self._next_scan = max(self._next_scan, self._clock() + PAUSE_AFTER_FAILURE_SECONDS)
        if self._index.size > self._max_names:
            self._lose("it has too many names")
        self._unwatch(self._index.moved_away())

    def _take_events(self, limit: int, until: float) -> int:
        """How many, all of `limit` where events are left that have been read."""
        count = 0
        for count, event in enumerate(_events(self._fd), start=1):
            self._take(*event)
            if count >= limit or self._clock() > until:
                return limit
        return count

    def _take(self, watch: int, mask: int, cookie: int, name: bytes) -> None:
        if mask & (_OVERFLOW | _UNMOUNT):
            self._lose("events were lost")
        elif mask & _IGNORED:
            forgotten = self._folders.pop(watch, None)
            if forgotten is not None:
                forgotten.watch = None
        elif name and (folder := self._folders.get(watch)) is not None:
            self._to_look += self._index.event(folder, mask, cookie, name)

    def _look_into(self, fresh: Folder) -> None:
        explorer = _Explorer(self._fd, self._index, self._folders, self._max_dirs, self._max_names)
        try:
            with _open_folder(self._workspace_fd, fresh) as trail:
                explorer.explore(trail, fresh)
        except _ScanError as error:
            self._lose(str(error))
        except OSError as error:
            if error.errno not in _VANISHED:
                self._lose(str(error))

    def _lose(self, why: str) -> None:
        if not self._stale:
            _log.info("cannot tell all files that change in the workspace: %s", why)
        self._stale = True
        self._index.lose()

    def _unwatch(self, gone: list[Folder]) -> None:
        for folder in (folder for top in gone for folder in folders_of(top)):
            if folder.watch is not None and self._folders.get(folder.watch) is folder:
                del self._folders[folder.watch]
                inotify_rm_watch(self._fd, folder.watch)

    # Scans

    def scan(self) -> None:
        """Scans the workspace: blocking, before the first use or in a thread.

        What it found is taken over by the next call.
        """
        if self._fd < 0:
            return
        self._scanning = True
        found = _Scan()
        begun = self._clock()
        try:
            with Trail(os.dup(self._workspace_fd)) as trail:
                explorer = _Explorer(self._fd, found.index, found.folders, self._max_dirs, self._max_names)
                explorer.leftovers = found.leftovers
                explorer.explore(trail, found.index.root)
        except (_ScanError, OSError) as error:
            found.failure = str(error)
        end = self._clock()
        pause = PAUSE_PER_SCAN * (end - begun)
        self._next_scan = end + (max(pause, PAUSE_AFTER_FAILURE_SECONDS) if found.failure else pause)
        self._scanned = found
        self._scanning = False

    def _catch_up(self) -> bool:
        """Takes over the result of a scan, or begins one. False while a scan runs: the events wait for it."""
        if self._scanning or (self._fd < 0 and (self._clock() < self._next_scan or not self._open())):
            return False
        found, self._scanned = self._scanned, None
        if found is not None:
            self._take_over(found)
        elif self._clock() >= self._next_scan:
            self._scanning = True
            self._thread = threading.Thread(target=self.scan, name="workspace-scan", daemon=True)
            self._thread.start()
            return False
        return True

    def _take_over(self, found: _Scan) -> None:
        if found.failure:
            _log.info("cannot watch the whole workspace: %s", found.failure)
            return
        for watch in self._folders.keys() - found.folders.keys():
            inotify_rm_watch(self._fd, watch)
        self._folders = found.folders
        self._index.adopt(found.index)
        self._stale = False


class _Explorer:
    """Watches directories and puts their entries into an index."""

    def __init__(self, fd: int, index: Index, folders: dict[int, Folder], max_dirs: int, max_names: int) -> None:
        self._fd = fd
        self._index = index
        self._folders = folders
        self._max_dirs = max_dirs
        self._max_names = max_names
        self.leftovers: list[bytes] | None = None

    def explore(self, trail: Trail, top: Folder) -> None:
        """A folder that the trail stands in, and all below it. Raises _ScanError at a bound, and OSError."""
        levels = [self._look(trail.fd, top)]
        while levels:
            if not levels[-1]:
                levels.pop()
                if levels:
                    trail.leave()
                continue
            folder = levels[-1].pop()
            try:
                trail.enter(folder.name)
            except OSError as error:
                if error.errno not in _VANISHED:
                    raise
                # Its event is on the way.
                continue
            levels.append(self._look(trail.fd, folder))

    def _look(self, directory_fd: int, folder: Folder) -> list[Folder]:
        """The folders in a folder. It is watched first, so that no change is missed; a watched folder is known."""
        watch = inotify_add_watch(self._fd, b"/proc/self/fd/%d" % directory_fd, _MASK)
        other = self._folders.get(watch)
        if other is folder:
            return []
        if other is not None and self._index.is_here(other):
            raise _ScanError("directories were exchanged faster than they could be looked at")
        self._watch(folder, watch)
        fresh = []
        for entry in entries_in(directory_fd):
            name = os.fsencode(entry.name)
            if is_hidden(folder, name):
                self._note_leftover(folder, name)
                continue
            if entry.is_dir(follow_symlinks=False):
                fresh.append(self._index.add_folder(folder, name))
            else:
                self._index.add_file(folder, name)
            if self._index.size > self._max_names:
                raise _ScanError(f"it has over {self._max_names} names")
        return fresh

    def _note_leftover(self, folder: Folder, name: bytes) -> None:
        if self.leftovers is not None and name.startswith(PARTIAL_PREFIX) and len(self.leftovers) < MAX_LEFTOVERS:
            self.leftovers.append(place_of(folder, name)[1])

    def _watch(self, folder: Folder, watch: int) -> None:
        if folder.watch is not None:
            # Its name was another directory's when it was looked at before.
            self._index.clear(folder)
            if self._folders.get(folder.watch) is folder:
                del self._folders[folder.watch]
        folder.watch = watch
        self._folders[watch] = folder
        if len(self._folders) > self._max_dirs:
            raise _ScanError(f"it has over {self._max_dirs} directories")


def _events(fd: int) -> Iterator[tuple[int, int, int, bytes]]:
    """The events that have come: watch, mask, cookie, name."""
    while True:
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return
        offset = 0
        while offset < len(data):
            watch, mask, cookie, size = _HEADER.unpack_from(data, offset)
            offset += _HEADER.size + size
            yield watch, mask, cookie, data[offset - size : offset].rstrip(b"\0")


@contextlib.contextmanager
def _open_folder(workspace_fd: int, folder: Folder) -> Iterator[Trail]:
    names = []
    while folder.parent is not None:
        names.append(folder.name)
        folder = folder.parent
    with Trail(os.dup(workspace_fd)) as trail:
        for name in reversed(names):
            trail.enter(name)
        yield trail
