"""Rollback of cells, as callers see it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class OnFailure(StrEnum):
    """What becomes of the variables when a cell raises."""

    KEEP = "keep"
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True)
class Rollback:
    """What became of the variables when a cell did not end well.

    done          the context is as it was after cell `cell_number` (0: as new); `restored` says what of it.
    kept          what is as the cell left it: "files", "tmp", "offsets" of open files, "sockets".
    refused       why it was not rolled back, one CamelCase word: "ThreadsRunning", …; "" where it was.
    cells_undone  cells before this one that are undone as well, because they came too fast to be copied between them.
    """

    done: bool
    message: str = ""
    restored: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    refused: str = ""
    cell_number: int = 0
    cells_undone: int = 0

    def __bool__(self) -> bool:
        """Say whether it was rolled back."""
        return self.done
