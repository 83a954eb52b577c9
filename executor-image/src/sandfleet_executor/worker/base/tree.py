"""Process trees, read from the session namespace's own /proc."""

import contextlib
import itertools
import os
import signal
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")
# The size of getrusage's blocks.
BLOCK_BYTES = 512
# Rounds in which a tree may still grow while it is frozen; RLIMIT_NPROC bounds how much.
FREEZE_ROUNDS = 50


class Process(NamedTuple):
    pid: int
    parent: int
    state: str
    # User and system time, in clock ticks.
    ticks: int
    # Resident memory, in bytes.
    rss: int


class Tree(NamedTuple):
    rss: int
    processes: int
    cpu_seconds: float


def parse_stat(text: bytes) -> Process:
    """One line of /proc/PID/stat. The name in it may hold blanks and parentheses."""
    head, _, tail = text.rpartition(b") ")
    fields = tail.split()
    return Process(
        pid=int(head.split(b" ", 1)[0]),
        parent=int(fields[1]),
        state=fields[0].decode("ascii"),
        ticks=int(fields[11]) + int(fields[12]),
        rss=int(fields[21]) * PAGE_BYTES,
    )


def scan() -> dict[int, Process]:
    """All processes of this namespace, without those that end meanwhile."""
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - every 20 ms when memory is short
        if name.isdecimal() and (process := read_process(int(name))):
            found[process.pid] = process
    return found


def read_process(pid: int) -> Process | None:
    """One process; None if it has gone."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = parse_stat(os.read(fd, 4096))
    except (OSError, ValueError, IndexError):
        return None
    finally:
        os.close(fd)
    # gVisor shows a process that was just reaped with pid 0: that would be taken for a parent, or signal a whole group.
    return found if found.pid == pid else None


def cpu_seconds(pid: int) -> float:
    """Of a process and the children that it has reaped; 0 if it has gone."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0.0
    try:
        fields = os.read(fd, 4096).rpartition(b") ")[2].split()
        return sum(int(ticks) for ticks in fields[11:15]) / TICKS
    except (OSError, ValueError):
        return 0.0
    finally:
        os.close(fd)


def descendants(processes: Mapping[int, Process], root: int, spared: Collection[int] = ()) -> list[int]:
    """The pids below `root`, without the `spared` ones and those below them."""
    return below(processes, [root], spared)


def below(processes: Mapping[int, Process], roots: Iterable[int], spared: Collection[int] = ()) -> list[int]:
    """As `descendants`, for several roots, none of them below another."""
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: list[int] = []
    todo = list(roots)
    left_out = {*spared, *todo}
    while todo:
        # Popped: a table that was read while processes came and went may hold a circle.
        next_ones = [pid for pid in children.pop(todo.pop(), []) if pid not in left_out]
        found += next_ones
        todo += next_ones
    return found


def measure(processes: Mapping[int, Process], root: int) -> Tree:
    """What `root` and all below it use."""
    members = [processes[pid] for pid in (root, *descendants(processes, root)) if pid in processes]
    living = [process for process in members if process.state != "Z"]
    return Tree(
        rss=sum(process.rss for process in living),
        processes=len(living),
        cpu_seconds=sum(process.ticks for process in members) / TICKS,
    )


def proportional(processes: Mapping[int, Process]) -> dict[int, Process]:
    """The same processes, with their proportional share (PSS) as resident memory where the kernel tells it.

    Forks share most of their pages: the sum of their RSS is many times what is used. Costs about 1 ms a process.
    """
    return {pid: process._replace(rss=min(process.rss, _pss(pid, process.rss))) for pid, process in processes.items()}


def _pss(pid: int, rss: int) -> int:
    """Bytes; 0 if the process has ended, `rss` or what is left of it if the kernel does not tell."""
    found = _rollup(pid)
    if b"Pss" in found:
        return found[b"Pss"]
    # One that is about to end gives its memory back before it is seen as ended: ten at once would count with all of it.
    now = read_process(pid)
    return 0 if now is None or now.state == "Z" else min(rss, now.rss)


def private_bytes(pid: int) -> int:
    """Bytes that a process shares with no other; 0 if the kernel does not tell."""
    found = _rollup(pid)
    return found.get(b"Private_Clean", 0) + found.get(b"Private_Dirty", 0)


def shared_memory_bytes(pid: int) -> int:
    """The share of a process in pages of files in memory and of shared memory; 0 if the kernel does not tell."""
    return _rollup(pid).get(b"Pss_Shmem", 0)


def _rollup(pid: int) -> dict[bytes, int]:
    """Bytes by name; empty if the kernel has no such file, or the process has gone."""
    try:
        fd = os.open(f"/proc/{pid}/smaps_rollup", os.O_RDONLY | os.O_CLOEXEC)
        try:
            text = os.read(fd, 4096)
        finally:
            os.close(fd)
    except OSError:
        return {}
    pairs = (line.split() for line in text.splitlines()[1:])
    return {words[0].rstrip(b":"): int(words[1]) << 10 for words in pairs if words[2:] == [b"kB"]}


def written_bytes(pids: Iterable[int]) -> int:
    """Bytes that the processes, and their reaped children, wrote to storage. A process that cannot be read adds 0."""
    return sum(map(_written, pids))


def _written(pid: int) -> int:
    try:
        fd = os.open(f"/proc/{pid}/io", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        _, found, rest = os.read(fd, 4096).partition(b"\nwrite_bytes:")
        return int(rest.split(None, 1)[0]) if found else 0
    except (OSError, ValueError, IndexError):
        return 0
    finally:
        os.close(fd)


def unlinked_bytes(pids: Iterable[int], device: int, max_descriptors: int) -> int:
    """Bytes in files of a device that have no name but are open; looks at `max_descriptors` at most."""
    found: dict[int, int] = {}
    for descriptor in itertools.islice(descriptors(pids), max_descriptors):
        try:
            status = os.stat(descriptor)  # noqa: PTH116 - as in scan
        except OSError:
            continue
        if status.st_nlink == 0 and status.st_dev == device and stat.S_ISREG(status.st_mode):
            found[status.st_ino] = status.st_blocks * BLOCK_BYTES
    return sum(found.values())


def descriptors(pids: Iterable[int]) -> Iterator[str]:
    """Paths of what the processes have open; none of those that cannot be read."""
    for pid in pids:
        try:
            names = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208 - as in scan
        except OSError:
            continue
        yield from (f"/proc/{pid}/fd/{name}" for name in names)


def send_signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def kill_tree(root: int, *, include_root: bool = True, spared: Collection[int] = ()) -> int:
    """Kills `root` and all below it, but for the `spared`; how many living processes were below it."""
    return kill_trees([root], include_roots=include_root, spared=spared)


def names_below(root: int, most: int) -> list[str]:
    """Up to `most` names of programs below `root`, each once; killed ones that are not reaped yet have theirs."""
    found: set[str] = set()
    for pid in below(scan(), [root], ()):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", "rb") as file:  # noqa: PTH123 - as above
            found.add(file.read(64).decode("ascii", "replace").strip())
    return sorted(found)[:most]


def kill_trees(roots: Collection[int], *, include_roots: bool = True, spared: Collection[int] = ()) -> int:
    """As `kill_tree`, for several roots, none of them below another, at the price of one.

    The price is the look at all processes: 80 ms in a busy gVisor. The trees are stopped first, because a stopped
    process does not fork: a fork bomb could outrun the killing otherwise.
    """
    frozen: set[int] = set()
    if include_roots:
        send_signal(roots, signal.SIGSTOP)
    for _ in range(FREEZE_ROUNDS):
        processes = scan()
        living = {pid for pid in below(processes, roots, spared) if processes[pid].state != "Z"}
        if living <= frozen:
            break
        send_signal(living - frozen, signal.SIGSTOP)
        frozen |= living
    send_signal(frozen, signal.SIGKILL)
    if include_roots:
        send_signal(roots, signal.SIGKILL)
    return len(frozen)
