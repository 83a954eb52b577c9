"""Files and folders of a snapshot as values, and which of them a workspace takes: decided before a file is touched."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

from sandfleet_executor.core.errors import RpcError
from sandfleet_executor.core.files.disk import ENTRY_BYTES
from sandfleet_executor.core.files.paths import MAX_NAME_BYTES, PARTIAL_PREFIX, UP

MAX_ENTRIES = 1_000_000
MAX_DEPTH = 2000
# Of one path, and of the text of a link, which the kernel bounds.
MAX_PATH_BYTES, MAX_TARGET_BYTES = 64 << 10, 4096
MAX_MODE = 0o7777
# Of one entry.
MAX_ATTRIBUTE_BYTES = 64 << 10
MAX_EXTENTS = 1000
MAX_FILE_BYTES = 1 << 60
# Nanoseconds since the epoch, and before it: the years 1677 to 2262.
LONGEST_NS = (1 << 63) - 1
MAX_LISTED = 1000
# Extended attributes that code in a sandbox may set.
USER = b"user."


class InvalidEntry(RpcError, ValueError, code="INVALID_ARGUMENT", reason="InvalidEntry"):
    """No workspace has such an entry. The message is "cannot restore X: why"."""


class Tree(enum.Enum):
    """The trees of a snapshot, in their order."""

    # A file for each context.
    VARIABLES = 1
    WORKSPACE = 2


class Kind(enum.Enum):
    FILE = 1
    DIRECTORY = 2
    SYMLINK = 3
    HARD_LINK = 4


@dataclass(frozen=True, slots=True)
class Stamp:
    """Which contents a file has: they are the same while this is the same. User code cannot set `changed_ns`."""

    inode: int
    size: int
    modified_ns: int
    changed_ns: int


Names = tuple[bytes, ...]
Attributes = tuple[tuple[bytes, bytes], ...]
# (offset, length), in their order; between two of them is a hole.
Extents = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """One file, folder or link. `path` is relative to the top of its tree; empty for the top itself.

    `target` is the text of a symlink, or the path of the file that a hard link is another name of; that file is
    `linked`. The data of a file are the bytes of its extents, one after the other.
    """

    tree: Tree
    path: bytes
    kind: Kind
    mode: int = 0o644
    modified_ns: int = 0
    target: bytes = b""
    attributes: Attributes = ()
    size: int = 0
    extents: Extents = ()
    linked: bool = False
    # Its data are those of an earlier save, and do not come.
    known: bool = False

    @property
    def names(self) -> Names:
        return tuple(self.path.split(b"/")) if self.path else ()

    @property
    def data_bytes(self) -> int:
        return sum(length for _, length in self.extents)

    @property
    def counted(self) -> int:
        """Bytes that it takes of a workspace's limit."""
        return max(ENTRY_BYTES, self.data_bytes)


@dataclass
class Unsaved:
    """What was left out: how many entries, and the first of them with one word each."""

    count: int = 0
    listed: list[tuple[bytes, str]] = field(default_factory=list)

    def add(self, path: bytes, reason: str) -> None:
        self.count += 1
        if len(self.listed) < MAX_LISTED:
            self.listed.append((path[:256], reason))


@dataclass(frozen=True, slots=True)
class Totals:
    """Entries, and bytes of their data."""

    entries: int = 0
    bytes: int = 0


def moment(nanoseconds: int) -> int:
    """A time of a file, or the nearest one that a snapshot can tell."""
    return max(-LONGEST_NS, min(nanoseconds, LONGEST_NS))


def whole(size: int) -> Extents:
    """Of a file without holes."""
    return ((0, size),) if size else ()


def names_of(path: bytes) -> Names:
    """The names on the way to an entry; none for the top. Raises InvalidEntry."""
    if not path:
        return ()
    names = tuple(path.split(b"/"))
    if why := _why_not(path, names):
        raise InvalidEntry(f"cannot restore {shown(path)}: {why}")
    return names


def _why_not(path: bytes, names: Names) -> str:
    if b"\0" in path:
        return "its path contains a NUL byte"
    if path.startswith(b"/"):
        return "its path is absolute"
    if len(path) > MAX_PATH_BYTES or len(names) > MAX_DEPTH:
        return f"its path has over {MAX_PATH_BYTES} bytes or {MAX_DEPTH} levels"
    if UP in names:
        return "its path has .. in it"
    if b"" in names or b"." in names:
        return "its path has an empty name or a dot in it"
    if any(len(name) > MAX_NAME_BYTES for name in names):
        return f"a name in its path has over {MAX_NAME_BYTES} bytes"
    if any(name.startswith(PARTIAL_PREFIX) for name in names):
        return "a name in its path is one of Sandfleet's own"
    return ""


def check(entry: Entry) -> Names:
    """The names of an entry that a workspace may have. Raises InvalidEntry."""
    names = names_of(entry.path)
    if problem := _problem(entry, names):
        raise InvalidEntry(f"cannot restore {shown(entry.path)}: {problem}")
    return names


def _problem(entry: Entry, names: Names) -> str:
    if not names and entry.kind is not Kind.DIRECTORY:
        return "the top of a tree has to be a folder"
    if not 0 <= entry.mode <= MAX_MODE or abs(entry.modified_ns) > LONGEST_NS:
        return "its mode or its time is none"
    if entry.tree is Tree.VARIABLES and names and (len(names) > 1 or entry.kind is not Kind.FILE):
        return "saved variables are plain files"
    if entry.kind is Kind.SYMLINK and not is_link_text(entry.target):
        return "it is a link to no possible name"
    if entry.kind is Kind.HARD_LINK and not () < names_of(entry.target) < names:
        return "it is another name of no file that came before"
    return _problem_of_attributes(entry.attributes) or (_problem_of_file(entry) if entry.kind is Kind.FILE else "")


def is_link_text(target: bytes) -> bool:
    return bool(target) and b"\0" not in target and len(target) <= MAX_TARGET_BYTES


def _problem_of_attributes(attributes: Attributes) -> str:
    if attribute_bytes(attributes) > MAX_ATTRIBUTE_BYTES:
        return f"its extended attributes have over {MAX_ATTRIBUTE_BYTES} bytes"
    if any(not name.startswith(USER) or b"\0" in name for name, _ in attributes):
        return "it has an extended attribute that code in a sandbox cannot set"
    return ""


def _problem_of_file(entry: Entry) -> str:
    if not 0 <= entry.size <= MAX_FILE_BYTES or len(entry.extents) > MAX_EXTENTS:
        return f"it has over {MAX_FILE_BYTES} bytes or {MAX_EXTENTS} extents"
    if entry.tree is Tree.VARIABLES and entry.extents != whole(entry.size):
        return "saved variables have no holes"
    end = -1
    for offset, length in entry.extents:
        if offset <= end or length <= 0 or offset + length > entry.size:
            return "its extents are out of order or beyond its end"
        end = offset + length
    return ""


def attribute_bytes(attributes: Iterable[tuple[bytes, bytes]]) -> int:
    return sum(len(name) + len(value) for name, value in attributes)


def shown(path: bytes) -> str:
    """A path as one short line of ASCII."""
    return repr(path[:120])[1:]
