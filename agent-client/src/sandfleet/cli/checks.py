"""Checks of `sandfleet doctor`, and how they are shown."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass

from sandfleet.cli import table

# The column at which details stand.
_DETAIL = 29


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check. `needed` checks decide the verdict."""

    name: str
    ok: bool
    detail: str
    needed: bool = False


def show(checks: Iterable[Check]) -> None:
    """Print one line for each; on a narrow terminal the details go on below each other."""
    most = max(20, table.width() - _DETAIL) if sys.stdout.isatty() else sys.maxsize
    for check in checks:
        detail = f"\n{'':<{_DETAIL}}".join(textwrap.wrap(check.detail, most)) or check.detail
        print(f"{_mark(check)} {check.name:<20} {detail}")


def _mark(check: Check) -> str:
    word = "ok" if check.ok else "MISSING" if check.needed else "-"
    if not sys.stdout.isatty() or "NO_COLOR" in os.environ:
        return f"{word:<7}"
    if not check.ok and not check.needed:
        return f"{word:<7}"
    colour = 32 if check.ok else 31
    return f"\033[{colour}m{word:<7}\033[0m"
