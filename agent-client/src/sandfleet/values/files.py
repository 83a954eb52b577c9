"""Files: what is at a path, what changed, what was found, and what was copied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, StrEnum
from typing import Generic, TypeVar

from sandfleet.values import _show

Item = TypeVar("Item")


class FileType(Enum):
    """What is at a path."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file, folder or link: its absolute path, size in bytes, permission bits, and the names of owner and group.

    A name that is no UTF-8 has surrogate escapes. Files that the sandbox does not own belong to "nobody" and "nogroup".
    """

    path: str
    type: FileType
    size: int
    mode: int
    modified: datetime | None
    symlink_target: str = ""
    owner: str = ""
    group: str = ""

    def __repr__(self) -> str:
        return _show.short("FileInfo", self.path, self.type.value, f"{self.size:,} bytes")

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def is_dir(self) -> bool:
        """Whether it is a directory."""
        return self.type is FileType.DIRECTORY


class FileEventType(StrEnum):
    """What happened to a file or directory. OVERFLOW: events were lost, so list the directory again."""

    CREATED = "created"
    MODIFIED = "modified"
    DELETED = "deleted"
    MOVED = "moved"
    OVERFLOW = "overflow"


@dataclass(frozen=True, slots=True)
class FileEvent:
    """One event of a watch. `path` is absolute; `old_path` of a move; `dropped` of an overflow, 0 if not known."""

    type: FileEventType
    path: str = ""
    old_path: str = ""
    is_dir: bool = False
    sequence: int = 0
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Match:
    """A line that matched. `line` and `column` count from 1, `column` in characters; a long line is shown in part."""

    path: str
    line: int
    column: int
    text: str


@dataclass(frozen=True, slots=True)
class Found(Generic[Item]):
    """What was found. `stopped`: why not everything was looked at ("matches", "time", "size"), or "" where it was."""

    items: tuple[Item, ...]
    stopped: str = ""
    # Of a search in text.
    files_searched: int = 0
    files_skipped: int = 0

    @property
    def complete(self) -> bool:
        """Whether there is no more."""
        return not self.stopped

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that was left out of a transfer, or is not as it was, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Transfer:
    """What was copied. `skipped` lists the first of what was not, `skipped_count` counts all of it."""

    files: int = 0
    directories: int = 0
    links: int = 0
    bytes: int = 0
    skipped: tuple[Skipped, ...] = field(default=())
    skipped_count: int = 0

    @property
    def complete(self) -> bool:
        """Whether nothing was left out."""
        return not self.skipped_count


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a transfer is."""

    files: int
    bytes: int


OnProgress = Callable[[Progress], object]
