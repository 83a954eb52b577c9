"""Measures the disk usage of the workspace while executions run, and compares it with the limit."""

import asyncio
import errno
import os
import resource
import stat
import time
from collections.abc import Awaitable, Callable

from sandfleet_executor.core.files import disk
from sandfleet_executor.core.files.disk import Free, Walked
from sandfleet_executor.effects.files.walk import Trail, entries_in

# Of a page, which every file system counts.
PROBE_BYTES = 4096
# The most that a walk remembers: folders in one folder, and files with several names. Beyond, such files count for each
# name.
MOST_FOLDERS = 200_000
MOST_LINKED = 500_000


class Disk:
    """For the event loop's thread; walks run in a thread of their own, one at a time.

    `workspace_fd` stays the caller's.
    """

    def __init__(
        self,
        workspace_fd: int,
        limit: Callable[[], int],
        unlinked: Callable[[], Awaitable[int]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`limit` in bytes, as it is now; `unlinked` asks for the bytes in files that only open descriptors hold."""
        self._fd = workspace_fd
        self._limit = limit
        self._unlinked = unlinked
        self._clock = clock
        self._walked: Walked | None = None
        # Bytes that came over the API since.
        self._uploaded = 0
        # Something came or went over the API since.
        self._changed = False
        self._was_running = False
        # What was there at the last verdict.
        self._before = 0
        self._walking = asyncio.Lock()

    @property
    def used(self) -> int | None:
        """Bytes, as of the last walk; None before the first."""
        return self._walked.used if self._walked else None

    async def take(self, size: int) -> None:
        """Counts bytes that are about to be written over the API.

        Raises OSError (EDQUOT) when there is no room for them.
        """
        await self.room(size)
        if self._left < size:
            raise OSError(errno.EDQUOT, "the workspace's limit is reached")
        self.count(size)

    async def room(self, size: int) -> int:
        """How many bytes may be written over the API; walks again where `size` would not fit.

        The caller counts them then.
        """
        if self._left < size:
            # What was uploaded before may have replaced something, or be gone.
            await self.look(disk.URGENT_SHARE)
        return max(0, self._left)

    def count(self, size: int) -> None:
        """Bytes that were written over the API; 0 where something was moved or removed."""
        self._uploaded += size
        self._changed = True

    async def now(self) -> int:
        """Bytes, with what came and went over the API: walked again where walks are quick, else counted."""
        if self._changed or self._walked is None:
            await self.look()
        return (self.used or 0) + self._uploaded

    @property
    def _left(self) -> int:
        return self._limit() - (self.used or 0) - self._uploaded

    async def is_over(self, *, running: bool) -> bool | None:
        """Whether the running executions have to end; None where no walk is due.

        One more walk follows the last execution.
        """
        just_ended, self._was_running = self._was_running and not running, running
        due = disk.is_due(self._walked, free(self._fd), self._clock(), self._limit(), running=running)
        return await self.measure() if due or just_ended else None

    @property
    def is_hopeless(self) -> bool:
        """Whether it is so full that nothing may run."""
        return (self.used or 0) > disk.beyond(self._limit())

    @property
    def is_full(self) -> bool:
        """Whether it was over its limit at the last walk, grown or not."""
        return (self.used or 0) > self._limit()

    async def look(self, share: float = disk.SHARE) -> int:
        """Bytes: fresh where walks are quick, else a little old; walks may take the part `share` of the time."""
        walked = self._walked
        if walked is None or self._clock() - walked.at >= walked.seconds * (1 / share - 1):
            return await self._walk()
        return walked.used

    async def measure(self) -> bool:
        """Walks; whether what runs has to end."""
        used = await self._walk()
        before, self._before = self._before, used
        return disk.is_over(used, before, self._limit())

    async def _walk(self) -> int:
        async with self._walking:
            # What came over the API is not what runs. It stays counted until the walk has counted it.
            seen = self._uploaded
            self._before += seen
            self._changed = False
            begun, free_then, limit = self._clock(), free(self._fd), self._limit()
            used = await asyncio.to_thread(walk, self._fd, disk.beyond(limit))
            if used <= limit and self._walked and disk.most(self._walked, free_then) > limit:
                # Something has grown: files without a name, if it was here.
                used += await self._unlinked()
            self._walked = Walked(used, free_then, self._clock(), self._clock() - begun)
            self._uploaded -= seen
            return used


def free(fd: int) -> Free:
    state = os.fstatvfs(fd)
    return Free(state.f_bfree * state.f_frsize, state.f_ffree)


def walk(workspace_fd: int, enough: int) -> int:
    """Bytes of everything in the workspace, as the limit counts them; stops counting at `enough`.

    Never follows a link. A file with several names counts once. What may not be read, or goes away meanwhile, is left
    out.
    """
    used = 0
    linked: set[int] = set()
    with Trail(os.dup(workspace_fd)) as trail:
        levels: list[list[bytes]] = []
        entered = True
        while used <= enough:
            if entered:
                size, names = measure_folder(trail.fd, linked, enough - used)
                used += size
                levels.append(names)
            while levels and not levels[-1]:
                levels.pop()
                if levels:
                    trail.leave()
            if not levels:
                break
            try:
                trail.enter(levels[-1].pop())
                entered = True
            except OSError:
                entered = False
    return used


def measure_folder(fd: int, linked: set[int], enough: int) -> tuple[int, list[bytes]]:
    """Bytes of a folder's entries, and the names of its folders; more than MOST_FOLDERS of them are too much."""
    used, names = 0, []
    try:
        for entry in entries_in(fd):
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISDIR(status.st_mode):
                names.append(os.fsencode(entry.name))
            elif status.st_nlink > 1:
                if status.st_ino in linked:
                    continue
                if len(linked) < MOST_LINKED:
                    linked.add(status.st_ino)
            used += disk.counted(status.st_blocks)
            if used > enough or len(names) > MOST_FOLDERS:
                return max(used, enough + 1), []
    except OSError:
        pass
    return used, names


def counts_writes(folder: str) -> bool:
    """Whether the kernel tells what a process writes to this folder: tried, with a file that has no name."""
    try:
        fd = os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except OSError:
        return False
    try:
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_oublock
        os.write(fd, bytes(PROBE_BYTES))
        return resource.getrusage(resource.RUSAGE_THREAD).ru_oublock > before
    except OSError:
        return False
    finally:
        os.close(fd)
