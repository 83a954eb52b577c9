"""Tables for people."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TextIO

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
# A unit is used from so many of it on, so that "80 s" is not "1 min".
_ENOUGH = 1.5


def show(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows below their columns' names, each column as wide as its widest cell."""
    lines = [columns, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(columns))]
    for number, line in enumerate(lines):
        text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        print(_bold(text) if number == 0 else text)


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
