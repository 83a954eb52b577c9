"""Measures the disk usage of the workspace while executions run, and compares it with the limit."""

import asyncio
import errno
import os
import resource
import stat
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

from sandfleet_executor.core.files import disk
from sandfleet_executor.core.files.disk import Free, Walked
from sandfleet_executor.effects.files.walk import Trail, entries_in

# Of a page, which every file system counts.
PROBE_BYTES = 4096
# The most that a walk remembers: folders in one folder, and files with several names. Beyond, such files count for each
# name.
MOST_FOLDERS = 200_000
MOST_LINKED = 500_000
# For so many seconds at most the session stands still for a walk.
STILL_SECONDS = 2.0
# The kernel's clock of files is behind by a tick.
TICK_NS = 20_000_000


class Count(NamedTuple):
    """What a walk has seen. `whole`: no folder moved, changed or was closed meanwhile, behind which more could be."""

    used: int
    whole: bool


@dataclass(frozen=True)
class Questions:
    """What a walk does not see of the session."""

    # Bytes in files that only open descriptors hold.
    unlinked: Callable[[], Awaitable[int]]
    # While it lasts the session's processes stand still, if it says so.
    still: Callable[[], AbstractAsyncContextManager[bool]] = lambda: nullcontext(False)
    # Bytes that they have written since the start, None where the kernel does not say.
    written: Callable[[], int | None] = lambda: None


class Disk:
    """For the event loop's thread; walks run in a thread of their own, one at a time.

    `workspace_fd` stays the caller's.
    """

    def __init__(
        self,
        workspace_fd: int,
        limit: Callable[[], int],
        questions: Questions,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`limit` in bytes, as it is now."""
        self._fd = workspace_fd
        self._limit = limit
        self._ask = questions
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
        now, there = self._clock(), free(self._fd)
        due = disk.is_due(self._walked, there, now, self._limit(), running=running, written=self._ask.written())
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
            begun, free_then, limit, written = self._clock(), free(self._fd), self._limit(), self._ask.written()
            count = await asyncio.to_thread(walk, self._fd, disk.beyond(limit))
            if not count.whole and count.used <= limit and self._may_take(free_then, written) > limit:
                count = await self._walk_still(written)
            used, walked = count.used, self._walked
            if used <= limit and walked and disk.most(walked, free_then) > limit:
                # Something has grown: files without a name, if it was here.
                used += await self._ask.unlinked()
            base = None if count.whole or walked is None else walked.base or walked
            self._walked = Walked(used, free_then, self._clock(), self._clock() - begun, written or 0, base)
            self._uploaded -= seen
            return used

    def _may_take(self, free_then: Free, written: int | None) -> int:
        """The most that may have come beside what a walk has seen."""
        return disk.most(self._walked, free_then, written) if self._walked else 0

    async def _walk_still(self, written: int | None) -> Count:
        """Folders that are renamed back and forth hide from a walk what is in them: it is repeated without that.

        Where the session does not stand still, all that it has written is taken for there.
        """
        begun = time.monotonic()
        async with self._ask.still() as still:
            count = await asyncio.to_thread(walk, self._fd, disk.beyond(self._limit()))
        # Later they go on by themselves.
        if (still and time.monotonic() - begun < STILL_SECONDS) or count.whole:
            return Count(count.used, whole=True)
        base = self._walked and (self._walked.base or self._walked)
        return Count(max(count.used, self._may_take(base.free, written) if base else 0), whole=False)


def free(fd: int) -> Free:
    state = os.fstatvfs(fd)
    return Free(state.f_bfree * state.f_frsize, state.f_ffree)


def walk(workspace_fd: int, enough: int) -> Count:
    """Bytes of everything in the workspace, as the limit counts them; stops counting at `enough`.

    Never follows a link. A file with several names counts once. What may not be read, or goes away meanwhile, is left
    out.
    """
    used, whole = 0, True
    linked: set[int] = set()
    begun = time.time_ns() - TICK_NS
    with Trail(os.dup(workspace_fd)) as trail:
        levels: list[list[bytes]] = []
        entered = True
        while used <= enough:
            if entered:
                # No code can set this time.
                whole = whole and os.fstat(trail.fd).st_ctime_ns < begun
                (size, seen), names = measure_folder(trail.fd, linked, enough - used)
                used, whole = used + size, whole and seen
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
                entered = whole = False
    return Count(used, whole)


def measure_folder(fd: int, linked: set[int], enough: int) -> tuple[Count, list[bytes]]:
    """Bytes of a folder's entries, and the names of its folders; more than MOST_FOLDERS of them are too much."""
    used, names, whole = 0, [], True
    try:
        for entry in entries_in(fd):
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                whole = False
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
                return Count(max(used, enough + 1), whole), []
    except OSError:
        whole = False
    return Count(used, whole), names


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
