"""Patterns of names: `*`, `?` and `[…]` in a name, `**` for any number of directories."""

import fnmatch
import re
from dataclasses import dataclass

from sandfleet_executor.core.files.paths import UP

MAX_BYTES = 1024
MAX_NAMES = 64
_ANY = b"**"

# Which names of the pattern may come next: their numbers.
State = frozenset[int]


class InvalidPattern(ValueError):
    """The message is the "why" of "cannot X: why"."""


@dataclass(frozen=True, slots=True)
class _Name:
    # None is `**`.
    expression: re.Pattern[str] | None
    dotted: bool


class Glob:
    """One pattern. It is followed from directory to directory, so that none is looked into that cannot hold a match."""

    def __init__(self, pattern: bytes) -> None:
        """Raises InvalidPattern."""
        parts = [part for part in pattern.split(b"/") if part not in (b"", b".")]
        if not parts or pattern.startswith(b"/") or b"\0" in pattern:
            raise InvalidPattern("it has to be names between slashes, relative to the directory that is searched")
        if len(pattern) > MAX_BYTES or len(parts) > MAX_NAMES:
            raise InvalidPattern(f"it has over {MAX_BYTES} bytes or {MAX_NAMES} names")
        if UP in parts:
            raise InvalidPattern("it has .. in it")
        self._names = [_compile(part) for part in parts]
        self.start = self._close({0})

    def _close(self, places: set[int]) -> State:
        """`**` stands for no directory too."""
        closed = set(places)
        for place in sorted(places):
            here = place
            while here < len(self._names) and self._names[here].expression is None:
                here += 1
                closed.add(here)
        return frozenset(closed)

    def step(self, state: State, name: bytes) -> tuple[bool, State]:
        """Whether an entry in a directory of that state matches, and the entry's own state if it is a directory."""
        text = name.decode("utf-8", "surrogateescape")
        after: set[int] = set()
        matches = False
        for place in state:
            if place >= len(self._names):
                continue
            wanted = self._names[place]
            if name.startswith(b".") and not wanted.dotted:
                continue
            if wanted.expression is None:
                after.add(place)
                matches = matches or place == len(self._names) - 1
            elif wanted.expression.fullmatch(text):
                after.add(place + 1)
                matches = matches or place == len(self._names) - 1
        return matches, self._close(after)

    def leads_on(self, state: State) -> bool:
        """Whether anything below a directory of that state can match."""
        return any(place < len(self._names) for place in state)


def _compile(part: bytes) -> _Name:
    if part == _ANY:
        return _Name(None, dotted=False)
    # What fnmatch makes of it takes no more than the square of the time, whatever the pattern.
    text = part.decode("utf-8", "surrogateescape")
    try:
        return _Name(re.compile(fnmatch.translate(text)), dotted=part.startswith(b"."))
    except re.error as error:
        raise InvalidPattern(f"{text!r} is no pattern: {error}") from error
