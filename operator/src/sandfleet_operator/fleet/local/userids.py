"""User ids for user code, one a workspace, when the fleet runs as root.

A fleet takes a whole block of ids, and holds it with an abstract Unix socket: the kernel lets one process of a machine
have a name, keeps no file for it, and frees it when that process ends. So fleets with different state directories never
share ids.
"""

import random
import socket
from collections.abc import Iterator
from pathlib import Path

BLOCK = 4096
FIRST, BLOCKS = 200_000, 512
# Where the ids above do not exist: in a container with a user namespace of 65,536 ids.
FALLBACK_FIRST, FALLBACK_BLOCKS = 20_000, 10


class NoUserIdsError(Exception):
    """Its message is "cannot X: why"."""


class UserIds:
    """Ids of one block, each for one workspace at a time."""

    def __init__(self, first: int, lock: socket.socket) -> None:
        self.first = first
        self._lock = lock
        self._given: dict[str, int] = {}
        self._free: Iterator[int] = iter(range(first, first + BLOCK))
        self._returned: list[int] = []

    def of(self, workspace_id: str) -> int:
        """The same id for the same workspace until it is given back. Raises NoUserIdsError."""
        if workspace_id not in self._given:
            user_id = next(self._free, None)
            if user_id is None and self._returned:
                user_id = self._returned.pop(0)
            if user_id is None:
                raise NoUserIdsError(f"cannot give a user id to a sandbox: all {BLOCK} are in use")
            self._given[workspace_id] = user_id
        return self._given[workspace_id]

    def give_back(self, workspace_id: str) -> None:
        user_id = self._given.pop(workspace_id, None)
        if user_id is not None:
            self._returned.append(user_id)

    def close(self) -> None:
        self._lock.close()


def take_block(uid_map: str | None = None) -> UserIds:
    """A block of ids that exist here and that no other fleet has. Raises NoUserIdsError."""
    known = Path("/proc/self/uid_map").read_text(encoding="ascii") if uid_map is None else uid_map
    for first, count in ((FIRST, BLOCKS), (FALLBACK_FIRST, FALLBACK_BLOCKS)):
        blocks = [start for start in range(first, first + count * BLOCK, BLOCK) if _exists(known, start)]
        # In any order: two machines that share a kernel but not their socket names then hardly ever meet.
        random.shuffle(blocks)
        for start in blocks:
            lock = _hold(start)
            if lock is not None:
                return UserIds(start, lock)
    raise NoUserIdsError(
        "cannot take user ids for sandboxes: this user namespace has none, or other fleets have them all"
    )


def _exists(uid_map: str, start: int) -> bool:
    ranges = [[int(word) for word in line.split()] for line in uid_map.splitlines()]
    return any(inside <= start and start + BLOCK <= inside + count for inside, _, count in ranges)


def _hold(start: int) -> socket.socket | None:
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        lock.bind(f"\0sandfleet-uids-{start}")
    except OSError:
        lock.close()
        return None
    return lock
