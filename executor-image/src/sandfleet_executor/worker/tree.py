"""Process trees, read from the session namespace's own /proc."""

import itertools
import os
import signal
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")
# Of what getrusage calls blocks.
BLOCK_BYTES = 512
# Rounds in which a tree may still grow while it is being frozen; RLIMIT_NPROC bounds how much.
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
    """All processes of this namespace. One that ends meanwhile is left out."""
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - every 20 ms when memory is short
        if name.isdecimal() and (process := look(int(name))):
            found[process.pid] = process
    return found


def look(pid: int) -> Process | None:
    """One process; None when it has gone."""
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
    # gVisor shows one that has just been reaped with the pid 0, which as a parent is everybody's, and as a target a whole group.
    return found if found.pid == pid else None


def cpu_seconds(pid: int) -> float:
    """Of a process and the children that it has reaped; 0 when it has gone."""
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
    """The pids below `root`, itself not included; without those that are `spared`, and what is below them."""
    return below(processes, [root], spared)


def below(processes: Mapping[int, Process], roots: Iterable[int], spared: Collection[int] = ()) -> list[int]:
    """The same for several roots, none of them below another."""
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: list[int] = []
    todo = list(roots)
    left_out = {*spared, *todo}
    while todo:
        # Taken out, because what was read while processes came and went may go in a circle.
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
    """The same processes with their share of what they share (PSS) for resident memory, where the kernel tells it.

    Forked copies share most of their pages; summed up, their RSS says many times what is used. Costs ~1 ms a process.
    """
    return {pid: process._replace(rss=min(process.rss, _pss(pid, process.rss))) for pid, process in processes.items()}


def _pss(pid: int, rss: int) -> int:
    """Bytes. What ended since it was seen holds nothing; where the kernel does not tell, `rss` stands."""
    found = _rollup(pid)
    if b"Pss" in found:
        return found[b"Pss"]
    now = look(pid)
    return 0 if now is None or now.state == "Z" else rss


def alone(pid: int) -> int:
    """Bytes that a process shares with no other; 0 where the kernel does not tell."""
    found = _rollup(pid)
    return found.get(b"Private_Clean", 0) + found.get(b"Private_Dirty", 0)


def _rollup(pid: int) -> dict[bytes, int]:
    """Bytes by name; empty where there is no such thing, or the process has gone."""
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


def written(pids: Iterable[int]) -> int:
    """Bytes that living processes, and children that they have waited for, wrote to storage. One that may not be read adds none."""
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


def unlinked(pids: Iterable[int], device: int, most: int) -> int:
    """Bytes in files of a device that have no name any more and are held open; looks at `most` descriptors."""
    found: dict[int, int] = {}
    for descriptor in itertools.islice(_descriptors(pids), most):
        try:
            status = os.stat(descriptor)  # noqa: PTH116 - as in scan
        except OSError:
            continue
        if status.st_nlink == 0 and status.st_dev == device and stat.S_ISREG(status.st_mode):
            found[status.st_ino] = status.st_blocks * BLOCK_BYTES
    return sum(found.values())


def _descriptors(pids: Iterable[int]) -> Iterator[str]:
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
    """Ends everything below `root`, and `root`, but for what is `spared`; returns how many living processes were below it."""
    return kill_trees([root], include_roots=include_root, spared=spared)


def kill_trees(roots: Collection[int], *, include_roots: bool = True, spared: Collection[int] = ()) -> int:
    """The same for several, none of them below another, at the price of one: a look at all processes costs 80 ms in a busy gVisor.

    The trees are frozen first, so that a fork bomb cannot outrun the killing: a stopped process does not fork.
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
