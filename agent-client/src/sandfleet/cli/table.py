"""Tables for people."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TextIO, TypeVar

from sandfleet.cli import OK, print_json

T = TypeVar("T")

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
# A unit is used from so many of it on, so that "80 s" is not "1 min".
_ENOUGH = 1.5
# Between columns, and the least that a column is cut to.
_GAP, _LEAST = 2, 8


def show(columns: Sequence[str], rows: Iterable[Sequence[str]], *, drop: Sequence[str] = (), none: str = "") -> None:
    """Print rows below their columns' names; `none` in their place where there are none, on a terminal.

    On a terminal no row wraps: see `lines`. Programs that read the output get all of it.
    """
    found, is_terminal = list(rows), sys.stdout.isatty()
    if is_terminal and none and not found:
        print(none)
        return
    head, *rest = lines(columns, found, width() if is_terminal else 0, drop)
    print("\n".join([_bold(head), *rest]))


def listing(
    found: Sequence[T],
    columns: Sequence[str],
    row: Callable[[T], Sequence[str]],
    *,
    as_json: bool,
    drop: Sequence[str] = (),
    none: str = "",
) -> int:
    """Print what a command lists: an array for programs, a row for each value for people. Return the exit code."""
    if as_json:
        print_json(found)
    else:
        show(columns, map(row, found), drop=drop, none=none)
    return OK


def wrapped(text: str, indent: int = 0) -> str:
    """Break a text between words where it is wider than the terminal; programs that read the output get one line."""
    if not sys.stdout.isatty():
        return text
    return textwrap.fill(text, width(), subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)


def width() -> int:
    """Return the columns of the terminal."""
    return shutil.get_terminal_size().columns


def lines(columns: Sequence[str], rows: Iterable[Sequence[str]], most: int = 0, drop: Sequence[str] = ()) -> list[str]:
    """Format rows below their columns' names, each column as wide as its widest cell.

    Rows wider than `most` lose the columns of `drop`, those that say nothing first; then the widest cells are cut.
    """
    grid = [list(columns), *map(list, rows)]
    empty = [name for name in drop if all(row[grid[0].index(name)] in {"-", ""} for row in grid[1:])]
    for name in (*empty, *(each for each in drop if each not in empty)):
        if most and sum(_widths(grid)) + _GAP * (len(grid[0]) - 1) > most:
            place = grid[0].index(name)
            grid = [row[:place] + row[place + 1 :] for row in grid]
    widths = _widths(grid)
    while most and sum(widths) + _GAP * (len(widths) - 1) > most and max(widths) > _LEAST:
        widths[widths.index(max(widths))] -= 1
    return [(" " * _GAP).join(map(_cell, row, widths)).rstrip() for row in grid]


def _widths(grid: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*grid, strict=True)]


def _cell(text: str, most: int) -> str:
    return text.ljust(most) if len(text) <= most else f"{text[: most - 1]}…"


def count(number: int, noun: str) -> str:
    """Say a number of things: "1 file", "2 files"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def moment(time: datetime | None) -> str:
    """Format a time, or a dash."""
    return time.isoformat(sep=" ", timespec="seconds") if time else "-"


def length(seconds: float) -> str:
    """Format a length of time in its largest unit: "49 min", "3 h", "2 d"."""
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if seconds >= _ENOUGH * unit:
            return f"{round(seconds / unit)} {name}"
    return f"{max(0, round(seconds))} s"


def since(time: datetime | None, now: datetime) -> str:
    """Format how long ago a time was, or a dash."""
    return length((now - time).total_seconds()) if time else "-"


def until(time: datetime | None, now: datetime) -> str:
    """Format in how long a time is, or a dash."""
    if time is None:
        return "-"
    return f"in {length((time - now).total_seconds())}" if time > now else "over"


def pairs(labels: Iterable[tuple[str, str]]) -> str:
    """Format labels, or a dash."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels)) or "-"


def plain(text: str) -> str:
    """Remove characters that a terminal would act on: some texts come from code in a sandbox."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def is_plain(out: TextIO) -> bool:
    """Return whether a stream gets no colours. https://no-color.org: set and not empty."""
    return bool(not out.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb")


def _bold(text: str) -> str:
    return text if is_plain(sys.stdout) else f"\033[1m{text}\033[0m"
