"""Rollback of the variables when a cell fails."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class OnFailure(StrEnum):
    """What happens to the variables when a cell raises."""

    KEEP = "keep"
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True)
class Rollback:
    """What happened to the variables after a cell failed.

    done          the context is as after cell `cell_number` (0: as new); `restored` names what was rolled back.
    kept          what stays as the cell left it: "files", "tmp", "offsets" of open files, "sockets".
    refused       why it was not rolled back, one CamelCase word: "ThreadsRunning", …; "" if it was.
    cells_undone  number of earlier cells that are undone as well: they ran too quickly for a copy between them.
    """

    done: bool
    message: str = ""
    restored: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    refused: str = ""
    cell_number: int = 0
    cells_undone: int = 0

    def __bool__(self) -> bool:
        """Whether it was rolled back."""
        return self.done
