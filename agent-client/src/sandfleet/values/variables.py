"""Saved variables: what a save stored, and what a restore brought back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Autosave:
    """Save the variables of a context after each cell, without delaying the cell.

    max_bytes  of one save; None means 256 MiB. Variables that do not fit are left out and named.
    timeout    seconds of one save; None means 30.
    """

    max_bytes: int | None = None
    timeout: float | None = None

    @classmethod
    def of(cls, wish: bool | Autosave) -> Autosave | None:
        """Read an `autosave` argument; None means off."""
        return wish if isinstance(wish, cls) else cls() if wish else None


@dataclass(frozen=True, slots=True)
class SavedState:
    """A saved state.

    `cell_number`: the last cell before the save; `size` in bytes; `saved`, `unsaved`: numbers of variables.
    """

    name: str
    context_id: str
    created: datetime | None
    cell_number: int
    size: int
    saved: int
    unsaved: int


@dataclass(frozen=True, slots=True)
class Autosaved:
    """The newest automatic save of a context (None before the first), and why the last attempt failed ("" if it did
    not).
    """

    state: SavedState | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class StateItem:
    """A variable; `size` in bytes. `reason` (a CamelCase word) and `message` say why it is missing; "" if it is not."""

    name: str
    type: str = ""
    size: int = 0
    reason: str = ""
    message: str = ""
    overwrote: bool = False


@dataclass(frozen=True, slots=True)
class StateSaved:
    """The variables that a save stored, and those that it could not.

    omitted  number of variables that are not listed, because there are too many; `state` counts them too.
    threads  names of the threads that were running: the values that they were changing may be inconsistent.
    """

    state: SavedState
    saved: tuple[StateItem, ...]
    unsaved: tuple[StateItem, ...]
    omitted: int = 0
    threads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StateRestored:
    """The variables that a restore brought back, and those that it could not.

    unrestored  saved variables that could not be restored; `unsaved`: variables that were not saved.
    lost        both in a few words, as in `Execution.lost`.
    """

    state: SavedState
    restored: tuple[StateItem, ...]
    unrestored: tuple[StateItem, ...] = ()
    unsaved: tuple[StateItem, ...] = ()
    omitted: int = 0
    lost: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """How many variables came back, and of which cell."""
        return brought_back(len(self.restored), self.state.cell_number)


def brought_back(variables: int, cell_number: int) -> str:
    """Describe restored variables."""
    names = "1 variable" if variables == 1 else f"{variables:,} variables"
    return f"{names}, as after cell {cell_number}"
