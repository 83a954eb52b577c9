"""Room for the files of exports and imports, which pass through the snapshotter's own disk."""

from collections import Counter

from sandfleet_operator.plan.snapshots.errors import Reason, SnapshotError

# Of the room, one tenant has one of so many parts.
PARTS = 2


class Scratch:
    """`size`: bytes in all. What is taken is there before any byte of it is written."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._taken: Counter[str] = Counter()

    def take(self, tenant: str, size: int) -> None:
        """Raises SnapshotError where there is no room for so much more."""
        share = self._size // PARTS
        if self._taken[tenant] + size > share:
            why = f"its file may need {self._taken[tenant] + size} bytes of the snapshotter's disk, and {share} are its share"
            raise SnapshotError(Reason.FULL, f"cannot move the snapshot: {why}")
        if self._taken.total() + size > self._size:
            raise SnapshotError(Reason.FULL, "cannot move the snapshot: others use the snapshotter's disk; retry")
        self._taken[tenant] += size

    def give(self, tenant: str, size: int) -> None:
        """So much of it is free again."""
        self._taken[tenant] -= size
        if not self._taken[tenant]:
            del self._taken[tenant]
