"""Puts the entries and the data of a restore together, and refuses what is no snapshot.

Flat in memory: of the entries it knows the folders on the way to the last one, and those that wait for data.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sandfleet_executor.core.errors import RpcError
from sandfleet_executor.core.snapshots.entries import (
    MAX_ENTRIES,
    Entry,
    InvalidEntry,
    Kind,
    Names,
    Totals,
    Tree,
    check,
    shown,
)

# Entries that wait for data that stand before theirs.
MAX_AHEAD = 100_000


class InvalidStream(RpcError, ValueError, code="INVALID_ARGUMENT", reason="InvalidStream"):
    """The parts of a restore come in no order, or not all of them. The message is "cannot restore: why"."""


@dataclass(frozen=True, slots=True)
class Begin:
    """The entry is made now. A file gets its bytes next, up to `End`."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Bytes:
    """Of the file that was begun last."""

    offset: int
    data: memoryview


@dataclass(frozen=True, slots=True)
class End:
    """The file that was begun last is whole."""


Step: TypeAlias = Begin | Bytes | End


class Order:
    """Checks that entries come tree after tree, depth first, and by the bytes of their names."""

    def __init__(self) -> None:
        self._tree: Tree | None = None
        self._last: Names = ()
        # How many of the names of `_last` are folders.
        self._folders = 0

    def take(self, entry: Entry, names: Names) -> None:
        """Raises InvalidEntry."""
        if entry.tree is not self._tree:
            self._begin_tree(entry, names)
        elif names <= self._last:
            raise InvalidEntry(f"cannot restore {shown(entry.path)}: it comes after {shown(b'/'.join(self._last))}")
        else:
            self._check_parent(entry, names)
        self._last = names
        self._folders = len(names) - (entry.kind is not Kind.DIRECTORY)

    def _begin_tree(self, entry: Entry, names: Names) -> None:
        if names or (self._tree is not None and entry.tree.value < self._tree.value):
            raise InvalidEntry(f"cannot restore {shown(entry.path)}: its tree does not begin with its top, or in order")
        self._tree = entry.tree

    def _check_parent(self, entry: Entry, names: Names) -> None:
        above = len(names) - 1
        if above > self._folders or names[:above] != self._last[:above]:
            raise InvalidEntry(f"cannot restore {shown(entry.path)}: no folder that came before has it")


class Assembly:
    """What comes, as steps in their order. `ended_trees` tells which trees can get nothing more."""

    def __init__(self) -> None:
        self._order = Order()
        self._waiting: deque[Entry] = deque()
        # Of the file that is being written: the index of its extent, and how many of its bytes are there.
        self._file: Entry | None = None
        self._extent = self._at = 0
        self._entries = self._bytes = 0

    @property
    def totals(self) -> Totals:
        return Totals(self._entries, self._bytes)

    def feed(self, entries: Sequence[Entry], data: bytes) -> Iterator[Step]:
        """Raises InvalidEntry and InvalidStream."""
        for entry in entries:
            self._order.take(entry, check(entry))
            self._waiting.append(entry)
        self._entries += len(entries)
        self._bytes += len(data)
        if self._entries > MAX_ENTRIES or len(self._waiting) > MAX_AHEAD:
            raise InvalidStream(f"cannot restore: over {MAX_ENTRIES} entries, or over {MAX_AHEAD} ahead of their data")
        rest = memoryview(data)
        while self._file is not None or self._waiting:
            if self._file is None:
                yield from self._begin(self._waiting.popleft())
            elif rest:
                step = self._bytes_of(self._file, rest)
                rest = rest[len(step.data) :]
                yield step
                yield from self._ended()
            else:
                return
        if rest:
            raise InvalidStream("cannot restore: data came that belong to no entry")

    def finish(self, sent: Totals) -> None:
        """The end was said. Raises InvalidStream."""
        if self._file is not None or self._waiting:
            raise InvalidStream("cannot restore: the data of some entries did not come")
        if sent != self.totals:
            raise InvalidStream(
                f"cannot restore: {self._entries} entries and {self._bytes} bytes came"
                f" of {sent.entries} and {sent.bytes}"
            )

    def _begin(self, entry: Entry) -> Iterator[Step]:
        yield Begin(entry)
        if entry.kind is Kind.FILE:
            self._file, self._extent, self._at = entry, 0, 0
            yield from self._ended()

    def _bytes_of(self, entry: Entry, data: memoryview) -> Bytes:
        offset, length = entry.extents[self._extent]
        piece = data[: length - self._at]
        step = Bytes(offset + self._at, piece)
        self._at += len(piece)
        if self._at == length:
            self._extent, self._at = self._extent + 1, 0
        return step

    def _ended(self) -> Iterator[Step]:
        if self._file is not None and self._extent == len(self._file.extents):
            self._file = None
            yield End()
