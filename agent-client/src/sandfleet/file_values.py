"""What calls on trees of files answer: frozen values, free of gRPC and protobuf."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

Item = TypeVar("Item")


class FileEventType(StrEnum):
    """What happened to a file or directory. After OVERFLOW events were lost: list again what matters."""

    CREATED = "created"
    MODIFIED = "modified"
    DELETED = "deleted"
    MOVED = "moved"
    OVERFLOW = "overflow"


@dataclass(frozen=True, slots=True)
class FileEvent:
    """One event of a watch. `path` is absolute; `old_path` of a move; `dropped` of an overflow, 0 where nobody knows."""

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


OnProgress = Callable[[Progress], Awaitable[None] | None]
