"""The memory of the whole sandbox, where the kernel tells it: each page once, also those that no process has mapped.

A pod under gVisor has a kernel of its own. On one machine it is a memory cgroup, where the executor could make one.
"""

import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

# Who holds all but so many of `hard_bytes` cannot go on: one part in …
NEARLY = 16


class Machine:
    """Where nothing is known: the kernel serves others too, and user code has no cgroup of its own."""

    known = False
    # Whether the kernel lets nothing grow beyond an end, so that there is time to wait for the effect of a kill.
    bounded = False

    def __init__(self, doors: Sequence[int] = ()) -> None:
        """`doors`: descriptors by which a process joins the cgroups of user code; PID 1 is in none of them."""
        self._doors = list(doors)
        # Processors that children are kept to; empty: all.
        self.cores: list[int] = []

    @property
    def in_cgroups(self) -> bool:
        """Whether user code is in cgroups of its own."""
        return bool(self._doors)

    def used(self) -> int:
        """Bytes that user code uses; 0 where unknown."""
        return 0

    def held(self) -> int:
        """The same and what the kernel holds for it (buffers, page tables), without what it can give back at once."""
        return self.used()

    def over(self, limit: int) -> bool:
        """Whether user code uses more than `limit` bytes, or waits for memory that the kernel does not give."""
        return self.used() > limit

    def freeze(self) -> None:
        """Stops all processes but this one at once: with hundreds of processes there is no time to stop each."""

    def thaw(self) -> None:
        """Lets them go on."""

    def join(self) -> None:
        """For a child, before its work: takes it, and all that it starts, into what is counted and weighed."""
        for fd in self._doors:
            os.write(fd, b"0")
        if self.cores:
            # Some of them may be offline by now.
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, self.cores)

    def may_join(self) -> bool:
        """Whether the kernel lets a child join: not every one asks who has opened the file instead of who writes."""
        pid = os.fork()
        if pid == 0:
            try:
                self.join()
            except OSError:
                os._exit(1)
            os._exit(0)
        return os.waitpid(pid, 0)[1] == 0

    def close(self) -> None:
        """For a child: no user code gets a descriptor of this."""
        for fd in self._doors:
            os.close(fd)
        self._doors.clear()


class GVisor(Machine):
    """For PID 1 under gVisor."""

    known = True

    def __init__(self) -> None:
        super().__init__()
        self._before = self._used()

    def used(self) -> int:
        """Those above what was used before user code began."""
        return max(0, self._used() - self._before)

    def freeze(self) -> None:
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: int) -> None:
        try:
            os.kill(-1, number)
        except ProcessLookupError:
            return

    def _used(self) -> int:
        """Bytes of processes and of files in memory. What is free is told later: freed memory is kept for a while."""
        fd = os.open("/proc/meminfo", os.O_RDONLY | os.O_CLOEXEC)
        try:
            fields = numbers(os.read(fd, 4096).replace(b":", b""))
        finally:
            os.close(fd)
        return fields[b"AnonPages"] << 10


class Cgroup(Machine):
    """A memory cgroup in which all processes of user code are, and PID 1 is not: the kernel never makes it wait.

    `fds`: descriptors of the files of the cgroup, by these names: "stat", "usage", "oom", "reclaim".
    """

    known = True
    bounded = True

    def __init__(self, fds: Mapping[str, int], hard_bytes: int, doors: Sequence[int] = ()) -> None:
        super().__init__(doors)
        self._fds = dict(fds)
        self._hard = hard_bytes

    def used(self) -> int:
        fields = self._read("stat")
        return _either(fields, b"total_rss", b"anon") + _either(fields, b"total_shmem", b"shmem")

    def held(self) -> int:
        fields = self._read("stat")
        files = _either(fields, b"total_inactive_file", b"inactive_file")
        files += _either(fields, b"total_active_file", b"active_file")
        return max(0, self._usage() - files - fields.get(b"slab_reclaimable", 0))

    def over(self, limit: int) -> bool:
        return self.used() > limit or self._waits()

    def close(self) -> None:
        super().close()
        for fd in self._fds.values():
            os.close(fd)

    def _waits(self) -> bool:
        """Version 1 says who waits for pages, and lets other calls fail. Version 2 slows down from `hard_bytes` on."""
        most = self._hard - self._hard // NEARLY
        enough = self._usage() < most
        if "oom" in self._fds and self._read("oom").get(b"under_oom", 0) == 1:
            if enough:
                # Those who wait are not woken by memory of the kernel's own that has become free.
                os.write(self._fds["oom"], b"0")
                os.write(self._fds["oom"], b"1")
            return not enough
        if enough:
            return False
        if self.held() < most:
            return False
        if "reclaim" in self._fds:
            # Version 1 does not say what of it are names of files, which the kernel forgets when it is asked to.
            os.write(self._fds["reclaim"], b"0")
        return self.held() >= most

    def _usage(self) -> int:
        return int(os.pread(self._fds["usage"], 64, 0))

    def _read(self, name: str) -> dict[bytes, int]:
        return numbers(os.pread(self._fds[name], 8192, 0))


def of(options: Mapping[str, Any]) -> Machine:
    """What is known here. `options`: those of PID 1."""
    found = _counting(options)
    found.cores = list(options["cores"])
    return found


def _counting(options: Mapping[str, Any]) -> Machine:
    if os.getpid() == 1 and "gvisor" in os.uname().release:
        return GVisor()
    doors, counted = options["cgroup_doors"], options["memory_cgroup"]
    if not doors:
        return Machine()
    found = Cgroup(counted, options["hard_memory_bytes"], doors) if counted else Machine(doors)
    if found.may_join():
        return found
    found.close()
    return Machine()


def numbers(text: bytes) -> dict[bytes, int]:
    """The lines of a name and a number."""
    pairs = (line.split() for line in text.splitlines())
    return {words[0]: int(words[1]) for words in pairs if len(words) > 1 and words[1].isdigit()}


def _either(fields: Mapping[bytes, int], first: bytes, second: bytes) -> int:
    """Version 1's name of it, or version 2's."""
    return fields[first] if first in fields else fields.get(second, 0)


class Tmp(NamedTuple):
    """What the file systems of the namespace that live in memory hold: bytes, and files with folders and links."""

    used: int
    files: int


def tmp(directories: list[str]) -> Tmp:
    """Of all of them together."""
    used = files = 0
    for path in directories:
        try:
            state = os.statvfs(path)
        except OSError:
            continue
        used += (state.f_blocks - state.f_bfree) * state.f_frsize
        files += state.f_files - state.f_ffree
    return Tmp(used, files)
