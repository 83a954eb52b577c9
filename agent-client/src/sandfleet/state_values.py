"""Saved variables as values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Autosave:
    """Save the variables of a context behind each cell, never on its latency.

    max_bytes  of one save; None means 256 MiB. What does not fit is left out by name.
    timeout    seconds of one save; None means 30.
    """

    max_bytes: int | None = None
    timeout: float | None = None

    @classmethod
    def of(cls, wish: bool | Autosave) -> Autosave | None:
        """Read an argument; None is off."""
        return wish if isinstance(wish, cls) else cls() if wish else None


@dataclass(frozen=True, slots=True)
class SavedState:
    """A saved state. `cell_number`: the last cell that had ended; `size` in bytes; `saved` and `unsaved` count variables."""

    name: str
    context_id: str
    created: datetime | None
    cell_number: int
    size: int
    saved: int
    unsaved: int


@dataclass(frozen=True, slots=True)
class Autosaved:
    """How the automatic saves of a context stand: the newest (None before the first), and why the last attempt failed ("")."""

    state: SavedState | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class StateItem:
    """A variable. `reason` (one CamelCase word) and `message` say why it is not there; "" where it is. `size` in bytes."""

    name: str
    type: str = ""
    size: int = 0
    reason: str = ""
    message: str = ""
    overwrote: bool = False


@dataclass(frozen=True, slots=True)
class StateSaved:
    """What a save took, and what it could not take.

    omitted  variables that were not listed, because there are too many; the counts of `state` have them.
    threads  that were running: what they were changing may have been caught halfway.
    """

    state: SavedState
    saved: tuple[StateItem, ...]
    unsaved: tuple[StateItem, ...]
    omitted: int = 0
    threads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StateRestored:
    """What a restore brought back, and what it could not.

    unrestored  of what was saved; `unsaved` was not saved in the first place.
    lost        both in a few words.
    """

    state: SavedState
    restored: tuple[StateItem, ...]
    unrestored: tuple[StateItem, ...] = ()
    unsaved: tuple[StateItem, ...] = ()
    omitted: int = 0
    lost: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """How many, and of when."""
        return brought_back(len(self.restored), self.state.cell_number)


def brought_back(variables: int, cell_number: int) -> str:
    """In words."""
    names = "1 variable" if variables == 1 else f"{variables:,} variables"
    return f"{names}, as after cell {cell_number}"
