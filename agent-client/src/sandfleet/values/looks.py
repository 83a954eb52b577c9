"""What a context knows of code at a position: completions and descriptions, in Jupyter's words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Completion:
    """What may stand between the characters `cursor_start` and `cursor_end` of the code.

    `omitted` counts matches that were left out: there were too many, or they were too long.
    """

    matches: tuple[str, ...]
    cursor_start: int
    cursor_end: int
    omitted: int = 0


@dataclass(frozen=True, slots=True)
class Inspection:
    """The object at a position: `text` has its signature, its documentation, and its source if it was asked for.

    `parts` maps MIME types to text. An inspection is false where there is no object.
    """

    found: bool
    parts: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The plain text; "" if nothing was found."""
        return self.parts.get("text/plain", "")

    def __bool__(self) -> bool:
        """Say whether there is an object."""
        return self.found
