"""Decides which entries of an archive are written, and where: from the headers alone, before any file is touched."""

from dataclasses import dataclass, field

from sandfleet_executor.core.files.disk import ENTRY_BYTES
from sandfleet_executor.core.files.paths import MAX_NAME_BYTES, MAX_PATH_BYTES, PARTIAL_PREFIX, UP

MAX_DEPTH = 256
MAX_LISTED = 1000
# Without the set-id bits and the sticky one.
PERMISSIONS = 0o777


class Refused(Exception):
    """An entry is left out. The message says why."""


class Stopped(Exception):
    """The archive is read no further. `reason` is the name of the API's ExtractStop, the message is for people."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one archive.

    `ratio`: its size against what was sent; it counts above `free_bytes`, for a small one may be all zeros.
    """

    entries: int = 1_000_000
    size: int = 64 << 30
    ratio: int = 1000
    free_bytes: int = 64 << 20


@dataclass
class Skips:
    """What was left out: how many, and the first of them with the reasons."""

    count: int = 0
    listed: list[tuple[bytes, str]] = field(default_factory=list)

    def add(self, path: bytes, reason: str) -> None:
        self.count += 1
        if len(self.listed) < MAX_LISTED:
            self.listed.append((path[:MAX_PATH_BYTES], reason))


@dataclass
class Budget:
    """What an archive has used of its bounds."""

    bounds: Bounds
    received: int = 0
    size: int = 0
    entries: int = 0
    # What there is place for, in bytes that count.
    room: int = 1 << 62

    @property
    def counted(self) -> int:
        """Bytes that it may take on the disk; each entry takes something."""
        return self.size + self.entries * ENTRY_BYTES

    def add_entry(self, size: int) -> None:
        """One more entry, that says its size. Raises Stopped."""
        self.entries += 1
        if self.entries > self.bounds.entries:
            raise Stopped("TOO_MANY_ENTRIES", f"it has over {self.bounds.entries} entries")
        if self.size + size > self.bounds.size:
            raise Stopped("TOO_LARGE", f"it has over {self.bounds.size} bytes")

    def add_bytes(self, count: int) -> None:
        """So many bytes more of the archive itself, unpacked. Raises Stopped."""
        self.size += count
        if self.counted > self.room:
            raise Stopped("NO_SPACE", "no space is left: the workspace's limit is reached")
        if self.size > self.bounds.size + self.bounds.entries * 1024:
            raise Stopped("TOO_LARGE", f"it has over {self.bounds.size} bytes")
        if self.size > self.bounds.free_bytes and self.size > self.bounds.ratio * self.received:
            raise Stopped("COMPRESSION_RATIO", f"it is over {self.bounds.ratio} times as large as what was sent")


def names_of(path: bytes) -> tuple[bytes, ...]:
    """The names on the way to an entry; none for the top itself. Raises Refused."""
    if not path:
        raise Refused("it has no name")
    if path.startswith(b"/"):
        raise Refused("its name is absolute")
    if b"\0" in path:
        raise Refused("its name contains a NUL byte")
    if len(path) > MAX_PATH_BYTES:
        raise Refused(f"its name has over {MAX_PATH_BYTES} bytes")
    names = tuple(name for name in path.split(b"/") if name not in (b"", b"."))
    if UP in names:
        raise Refused("its name has .. in it")
    if any(len(name) > MAX_NAME_BYTES for name in names):
        raise Refused(f"a part of its name has over {MAX_NAME_BYTES} bytes")
    if len(names) > MAX_DEPTH:
        raise Refused(f"it is over {MAX_DEPTH} levels deep")
    if any(name.startswith(PARTIAL_PREFIX) for name in names):
        raise Refused("its name is one of Sandfleet's own")
    return names


def check_symlink(target: bytes, depth: int) -> None:
    """Whether a link that is `depth` directories below the tree's root stays inside. Raises Refused.

    It may go up only first, and no further than there are directories above it: these are real ones, and what follows
    is only down. So no chain of such links leads out; with `..` behind a name that may be a link itself, one could.
    """
    if not target or b"\0" in target or len(target) > MAX_PATH_BYTES:
        raise Refused("it is a link to no possible name")
    if target.startswith(b"/"):
        raise Refused("it is a link to an absolute name")
    names = [name for name in target.split(b"/") if name not in (b"", b".")]
    ups = 0
    while ups < len(names) and names[ups] == UP:
        ups += 1
    if ups > depth or UP in names[ups:]:
        raise Refused("it is a link that may lead outside")
