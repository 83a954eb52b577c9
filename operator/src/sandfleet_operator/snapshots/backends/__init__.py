"""Where the objects of a store are. They know no snapshots: keys, bytes, and a write that happens only once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Found:
    """An object in a listing. `modified`: seconds since the epoch, by the store's clock."""

    key: str
    size: int
    modified: float


class Objects(Protocol):
    """A store of objects. All methods block, may be called from any thread, and raise SnapshotError.

    What a write has returned from is there for every later read and listing, and survives a loss of power.
    """

    def put(self, key: str, data: bytes, *, new: bool = False) -> None:
        """Write it whole or not at all. `new`: only where there is none, else SnapshotError with reason Exists."""

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """`length` bytes from `start`, fewer at the end. Reason NotFound where there is none."""

    def delete(self, keys: Sequence[str]) -> None:
        """Without an error where there is none."""

    def list(self, prefix: str) -> Iterator[Found]:
        """Those whose keys begin so, ascending by their keys."""

    def close(self) -> None:
        """Let connections go."""
