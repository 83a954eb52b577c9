"""Which TCP ports a tree of processes listens on: the network's table joined with the processes' descriptors.

What cannot be read is reported (`known` is false), never guessed: a process may hide its descriptors, and a kernel may
show no inodes.
"""

import os
from collections.abc import Iterable, Mapping

from ..base import tree

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
LISTEN = b"0A"
MAX_TABLE = 1 << 20
# Of all processes together: the look must not keep the spawner from its other work.
MAX_LINKS = 4096
MAX_PORTS = 64


def listening() -> dict[int, int] | None:
    """Inode of a listening socket → its port; None if the kernel does not tell."""
    found: dict[int, int] = {}
    for path in TABLES:
        try:
            found |= parse(read(path))
        except FileNotFoundError:
            # Without IPv6 there is no second table.
            continue
        except (OSError, ValueError, IndexError):
            return None
    return None if 0 in found else found


def parse(table: bytes) -> dict[int, int]:
    """Raises ValueError and IndexError for other text than such a table."""
    fields = (line.split() for line in table.splitlines()[1:])
    return {int(one[9]): int(one[1].rpartition(b":")[2], 16) for one in fields if one and one[3] == LISTEN}


def read(path: str) -> bytes:
    """The table's text. Raises ValueError if it is too large to be searched."""
    with open(path, "rb") as file:  # noqa: PTH123 - pathlib is not needed in PID 1
        data = file.read(MAX_TABLE)
    if len(data) == MAX_TABLE:
        raise ValueError("the table is too large")
    return data


def of_trees(roots: Iterable[int]) -> dict[int, tuple[list[int], bool]]:
    """Root → (the ports on which processes below it listen, whether all are known)."""
    sockets = listening()
    if sockets is None:
        return {root: ([], False) for root in roots}
    processes = tree.scan()
    left = MAX_LINKS
    found = {}
    for root in roots:
        ports, known, used = _of_tree(processes, root, sockets, left)
        left -= used
        found[root] = (sorted(ports)[:MAX_PORTS], known and len(ports) <= MAX_PORTS)
    return found


def _of_tree(
    processes: Mapping[int, tree.Process], root: int, sockets: Mapping[int, int], left: int
) -> tuple[set[int], bool, int]:
    ports: set[int] = set()
    known, used = True, 0
    for pid in tree.descendants(processes, root):
        if processes[pid].state == "Z":
            continue
        inodes, seen, whole = _sockets(pid, left - used)
        used += seen
        known = known and whole
        ports |= {sockets[inode] for inode in inodes if inode in sockets}
    return ports, known, used


def _sockets(pid: int, most: int) -> tuple[set[int], int, bool]:
    """(inodes of the process's sockets, number of links read, whether those were all)."""
    found: set[int] = set()
    seen = 0
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                if seen >= most:
                    return found, seen, False
                seen += 1
                try:
                    target = os.readlink(entry.path)  # noqa: PTH115 - pathlib is not needed in PID 1
                except FileNotFoundError:
                    continue
                if target.startswith("socket:[") and target[8:-1].isdecimal():
                    found.add(int(target[8:-1]))
    except (FileNotFoundError, ProcessLookupError):
        # It has ended.
        return found, seen, True
    except OSError:
        return found, seen, False
    return found, seen, True
