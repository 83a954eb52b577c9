"""The entries of a snapshot: what stands in its trees, one line each, and the order that makes them easy to check.

The trees come in the order of TREES. Within a tree a folder comes before what is in it, and the names of one folder
ascend by their bytes. So whether each parent is a folder, and each name new, needs no memory but the path.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Any

from sandfleet_operator.plan.snapshots.errors import Reason, SnapshotError, hostile

TREES = ("state", "journal", "workspace")
MAX_NAME = 255
MAX_PATH = 64 << 10
MAX_TARGET = 4096
MAX_EXTENTS = 16_384
MAX_XATTR_BYTES = 64 << 10
# Files with several names, of one tree: their paths are kept in memory.
MAX_LINKED = 200_000
MAX_ENTRIES = 20_000_000
MAX_SIZE = (1 << 63) - 1
# One encoded entry.
MAX_LINE = 2 << 20

_XATTRS = b"user."


class Kind(Enum):
    FILE = "f"
    DIRECTORY = "d"
    SYMLINK = "l"
    HARD_LINK = "h"


@dataclass(frozen=True, slots=True)
class Extent:
    """A range of a sparse file that has data."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a tree. `path` is relative to the tree; the root's is empty.

    Attributes:
        mtime_ns: nanoseconds since the epoch.
        size: of a file, in bytes, holes included.
        extents: where a sparse file has data; None: all of it is data.
        target: the text of a symbolic link; of a hard link the path of an earlier file of this tree that is `linked`.
        linked: a file with further names.
        xattrs: name and value, names ascending, `user.` alone.

    """

    tree: str
    path: bytes
    kind: Kind
    mode: int = 0
    mtime_ns: int = 0
    size: int = 0
    extents: tuple[Extent, ...] | None = None
    target: bytes = b""
    linked: bool = False
    xattrs: tuple[tuple[bytes, bytes], ...] = ()

    @property
    def data_bytes(self) -> int:
        """How much of the snapshot's data is this entry's."""
        return self.size if self.extents is None else sum(extent.length for extent in self.extents)


@dataclass(frozen=True, slots=True)
class Totals:
    entries: int = 0
    files: int = 0
    # Data; holes do not count.
    bytes: int = 0
    # The sizes of all files; holes count.
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreLimits:
    """What the place of a restore can take. `size` is that of all files, with their holes."""

    bytes: int = MAX_SIZE
    size: int = MAX_SIZE
    entries: int = MAX_ENTRIES


class Validator:
    """Takes the entries of one snapshot in their order. Raises SnapshotError at the first that no save writes."""

    def __init__(self, limits: RestoreLimits | None = None) -> None:
        self._limits = limits or RestoreLimits()
        self._tree = ""
        # The folders that are open, and the last name in each of them and in the root.
        self._open: list[bytes] = []
        self._last: list[bytes] = []
        self._linked: set[bytes] = set()
        self._entries = self._files = self._bytes = self._size = 0

    @property
    def totals(self) -> Totals:
        return Totals(self._entries, self._files, self._bytes, self._size)

    def add(self, entry: Entry) -> None:
        if entry.tree != self._tree:
            self._begin(entry)
        elif not entry.path:
            raise hostile(f"the tree {entry.tree} begins twice")
        else:
            self._place(entry)
        _attributes(entry)
        _CHECKS[entry.kind](entry)
        self._links(entry)
        self._count(entry)

    def _begin(self, entry: Entry) -> None:
        before = TREES.index(self._tree) if self._tree else -1
        if entry.tree not in TREES or TREES.index(entry.tree) <= before:
            raise hostile("a tree has an unknown name or comes out of order")
        if entry.path or entry.kind is not Kind.DIRECTORY:
            raise hostile(f"the tree {entry.tree} does not begin with its root")
        self._tree, self._open, self._last = entry.tree, [], [b""]
        self._linked.clear()

    def _place(self, entry: Entry) -> None:
        if len(entry.path) > MAX_PATH:
            raise hostile(f"a path has more than {MAX_PATH} bytes")
        *parents, name = entry.path.split(b"/")
        if not _is_name(name):
            raise hostile(f"{_shown(entry.path)} is no path")
        depth = len(parents)
        if self._open[:depth] != parents:
            raise hostile(f"{_shown(entry.path)} is not in a folder, or comes out of order")
        del self._open[depth:], self._last[depth + 1 :]
        if name <= self._last[depth]:
            raise hostile(f"{_shown(entry.path)} comes twice, or out of order")
        self._last[depth] = name
        if entry.kind is Kind.DIRECTORY:
            self._open.append(name)
            self._last.append(b"")

    def _links(self, entry: Entry) -> None:
        if entry.linked:
            if len(self._linked) == MAX_LINKED:
                raise SnapshotError(
                    Reason.TOO_LARGE, f"cannot use the snapshot: over {MAX_LINKED} files have several names"
                )
            self._linked.add(entry.path)
        if entry.kind is Kind.HARD_LINK and entry.target not in self._linked:
            raise hostile(f"{_shown(entry.path)} links to no file before it")

    def _count(self, entry: Entry) -> None:
        self._entries += 1
        self._files += entry.kind is Kind.FILE
        self._bytes += entry.data_bytes
        self._size += entry.size
        limits = self._limits
        for word, value, limit in (
            ("entries", self._entries, limits.entries),
            ("bytes", self._bytes, limits.bytes),
            ("bytes with their holes", self._size, limits.size),
        ):
            if value > limit:
                raise SnapshotError(
                    Reason.TOO_LARGE, f"cannot use the snapshot: it has more than {limit} {word}, which is the limit"
                )


def _is_name(name: bytes) -> bool:
    return 0 < len(name) <= MAX_NAME and name not in {b".", b".."} and b"\0" not in name


def _shown(path: bytes) -> str:
    return ascii(path[:200].decode("utf-8", "replace"))


def _attributes(entry: Entry) -> None:
    if not 0 <= entry.mode <= 0o7777 or not -MAX_SIZE <= entry.mtime_ns <= MAX_SIZE or not 0 <= entry.size <= MAX_SIZE:
        raise hostile(f"mode, time or size of {_shown(entry.path)} is out of range")
    names = [name for name, _ in entry.xattrs]
    if sum(len(name) + len(value) for name, value in entry.xattrs) > MAX_XATTR_BYTES:
        raise hostile(f"{_shown(entry.path)} has more than {MAX_XATTR_BYTES} bytes of extended attributes")
    if any(not name.startswith(_XATTRS) or len(name) > MAX_NAME or b"\0" in name for name in names):
        raise hostile(f"{_shown(entry.path)} has an extended attribute that is not the user's")
    if any(one >= other for one, other in pairwise(names)):
        raise hostile(f"the extended attributes of {_shown(entry.path)} are out of order")


def _check_file(entry: Entry) -> None:
    if entry.target:
        raise hostile(f"the file {_shown(entry.path)} has a target")
    end = -1
    for extent in entry.extents or ():
        if extent.length <= 0 or extent.offset <= end:
            raise hostile(f"the ranges of {_shown(entry.path)} are empty, touch or come out of order")
        end = extent.offset + extent.length
    if end > entry.size or len(entry.extents or ()) > MAX_EXTENTS:
        raise hostile(f"the ranges of {_shown(entry.path)} go beyond its end, or are too many")


def _check_other(entry: Entry) -> None:
    if entry.size or entry.extents is not None or entry.linked:
        raise hostile(f"{_shown(entry.path)} has data and is no file")


def _check_directory(entry: Entry) -> None:
    _check_other(entry)
    if entry.target:
        raise hostile(f"the folder {_shown(entry.path)} has a target")


def _check_link(entry: Entry) -> None:
    _check_other(entry)
    longest = MAX_TARGET if entry.kind is Kind.SYMLINK else MAX_PATH
    if not 0 < len(entry.target) <= longest or b"\0" in entry.target:
        raise hostile(f"the link {_shown(entry.path)} has no possible target")
    if entry.kind is Kind.HARD_LINK and entry.xattrs:
        raise hostile(f"the further name {_shown(entry.path)} has attributes of its own")


_CHECKS = {
    Kind.FILE: _check_file,
    Kind.DIRECTORY: _check_directory,
    Kind.SYMLINK: _check_link,
    Kind.HARD_LINK: _check_link,
}


def encode(entry: Entry) -> bytes:
    """One line of ASCII JSON; bytes stand in it as Latin-1."""
    extents = None if entry.extents is None else [[extent.offset, extent.length] for extent in entry.extents]
    xattrs = [[_text(name), _text(value)] for name, value in entry.xattrs]
    values = [
        entry.tree,
        _text(entry.path),
        entry.kind.value,
        entry.mode,
        entry.mtime_ns,
        entry.size,
        extents,
        _text(entry.target),
        entry.linked,
        xattrs,
    ]
    return _ENCODER.encode(values).encode("ascii") + b"\n"


def decode(line: bytes) -> Entry:
    """Raises SnapshotError: it is no entry."""
    try:
        tree, path, kind, mode, mtime_ns, size, extents, target, linked, xattrs = json.loads(line)
        entry = Entry(
            tree=tree,
            path=path.encode("latin-1"),
            kind=Kind(kind),
            mode=mode,
            mtime_ns=mtime_ns,
            size=size,
            extents=None if extents is None else tuple(Extent(offset, length) for offset, length in extents),
            target=target.encode("latin-1"),
            linked=linked,
            xattrs=tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in xattrs),
        )
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise hostile("an entry cannot be read") from error
    if not _is_typed(entry):
        raise hostile("an entry has values of other types")
    return entry


def _is_typed(entry: Entry) -> bool:
    numbers: list[Any] = [entry.mode, entry.mtime_ns, entry.size]
    for extent in entry.extents or ():
        numbers += [extent.offset, extent.length]
    return all(type(number) is int for number in numbers) and type(entry.tree) is str and type(entry.linked) is bool


class Lines:
    """Cuts a stream of encoded entries into entries."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Entry]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE:
            raise hostile("an entry is too long")
        yield from map(decode, lines)

    def end(self) -> None:
        if self._rest:
            raise hostile("its last entry is cut off")


def data_bytes(entries: Sequence[Entry]) -> int:
    return sum(entry.data_bytes for entry in entries)


def _text(data: bytes) -> str:
    return data.decode("latin-1")


_ENCODER = json.JSONEncoder(separators=(",", ":"))
