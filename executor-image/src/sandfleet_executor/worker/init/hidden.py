"""Memory that belongs to a process and is not among its resident pages: what of it /proc tells.

Files without a name (memfd_create); shared memory, queues and semaphores of System V; page tables. Not told, and so
never counted here: files that are on their way through a socket, what sockets and pipes hold, and file systems in
memory that code has mounted in a user namespace of its own (under gVisor it can). `spread` shares those out by the
signs of them.
"""

import itertools
import os
import stat
from collections.abc import Collection, Mapping
from typing import NamedTuple

from ..base import tree
from . import segments

# The most descriptors that one look takes.
MAX_DESCRIPTORS = 8192
# A socket is one sign. A user namespace of its own, in which code can mount, is as many as all that it could open.
NAMESPACE_SIGNS = 4096
# Bytes of semaphores that are not looked at.
FEW_SEMAPHORES = 1 << 20


class Found(NamedTuple):
    """Of each pid its bytes, and the signs that it holds more; what System V keeps of processes that have ended, and
    that none uses.
    """

    held: dict[int, int]
    signs: dict[int, int]
    orphans: list[segments.Segment]

    @property
    def orphaned(self) -> int:
        """Bytes that no kill frees."""
        return sum(each.rss for each in self.orphans)

    @property
    def total(self) -> int:
        """Bytes."""
        return sum(self.held.values()) + self.orphaned


def look(processes: Mapping[int, tree.Process], *, closely: bool = False) -> Found:
    """Looks at all processes. `closely`: also at page tables and user namespaces, which are two files more for each."""
    held, signs = _files(processes)
    orphans = []
    listed = segments.listed()
    # The kernel does not say whose they are, and few of them are of programs that need them.
    many = sum(each.rss for each in listed if each.kind == segments.SEMAPHORES) > FEW_SEMAPHORES
    for segment in listed:
        if segment.maker in processes and processes[segment.maker].state != "Z":
            held[segment.maker] = held.get(segment.maker, 0) + (0 if segment.attached else segment.rss)
        elif not segment.attached and segment.rss and (many or segment.kind != segments.SEMAPHORES):
            orphans.append(segment)
    if closely:
        for pid in processes:
            held[pid] = held.get(pid, 0) + _page_tables(pid)
        for pid in _in_own_namespaces(processes):
            signs[pid] = signs.get(pid, 0) + NAMESPACE_SIGNS
    return Found(held, signs, orphans)


def spread(found: Found, unexplained: int) -> dict[int, int]:
    """Share out bytes that nothing explains: pid → bytes, by its signs in a close look."""
    count = sum(found.signs.values())
    return {pid: unexplained * number // count for pid, number in found.signs.items()} if count else {}


def _files(processes: Collection[int]) -> tuple[dict[int, int], dict[int, int]]:
    """The bytes of files without a name, each with the first process that has it, and the number of sockets."""
    held: dict[int, int] = {}
    sockets: dict[int, int] = {}
    seen: set[tuple[int, int]] = set()
    own = os.getpid()
    pairs = ((pid, path) for pid in processes if pid != own for path in tree.descriptors([pid]))
    for pid, path in itertools.islice(pairs, MAX_DESCRIPTORS):
        try:
            status = os.stat(path)  # noqa: PTH116 - pathlib is not needed in PID 1
        except OSError:
            continue
        if stat.S_ISSOCK(status.st_mode):
            sockets[pid] = sockets.get(pid, 0) + 1
        elif stat.S_ISREG(status.st_mode) and (status.st_dev, status.st_ino) not in seen:
            seen.add((status.st_dev, status.st_ino))
            if _in_memory(path):
                held[pid] = held.get(pid, 0) + status.st_blocks * tree.BLOCK_BYTES
    return held, sockets


def _in_memory(path: str) -> bool:
    try:
        return os.readlink(path).startswith("/memfd:")  # noqa: PTH115 - pathlib is not needed in PID 1
    except OSError:
        return False


def _in_own_namespaces(processes: Collection[int]) -> list[int]:
    """Those in another user namespace than this process."""
    own = _user_namespace(os.getpid())
    return [pid for pid in processes if _user_namespace(pid) not in (own, "")]


def _user_namespace(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/user")  # noqa: PTH115 - pathlib is not needed in PID 1
    except OSError:
        return ""


def _page_tables(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/status", "rb") as file:  # noqa: PTH123 - pathlib is not needed in PID 1
            found = file.read().partition(b"\nVmPTE:")[2]
    except OSError:
        return 0
    return int(found.split(None, 1)[0]) << 10 if found else 0
