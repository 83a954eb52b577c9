"""Checks of `sandfleet doctor`, and how they are shown."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check. `needed` checks decide the verdict."""

    name: str
    ok: bool
    detail: str
    needed: bool = False


def show(checks: Iterable[Check]) -> None:
    """Print one line for each."""
    for check in checks:
        print(f"{_mark(check)} {check.name:<20} {check.detail}")


def _mark(check: Check) -> str:
    word = "ok" if check.ok else "MISSING" if check.needed else "-"
    if not sys.stdout.isatty() or "NO_COLOR" in os.environ:
        return f"{word:<7}"
    if not check.ok and not check.needed:
        return f"{word:<7}"
    colour = 32 if check.ok else 31
    return f"\033[{colour}m{word:<7}\033[0m"
