"""What a run is doing: counts for programs, and a bar for people."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TextIO, cast

from sandfleet.driver.result import TaskEnd, TaskResult
from sandfleet.values._show import clip

if TYPE_CHECKING:
    from sandfleet.values.fleet import Queued

_BAR = 24


class Stage(StrEnum):
    """Where a task is now."""

    # It waits until claims may begin, or for its claim.
    CLAIMING = "claiming"
    # Its agent thinks, or runs code.
    WORKING = "working"
    # Its result is being checked, or its sandbox released.
    ENDING = "ending"
    # It waits before it is tried again.
    PAUSED = "paused"


@dataclass(slots=True)
class Progress:
    """The counts of one run; a live object.

    total    tasks in all; None while that is not known.
    stages   how many tasks are where. ends: how many have ended, and how.
    steps    turns of all agents. retries: sessions that were tried again.
    stored   results that were on record before.
    queued   the fleet's last word on a claim that waits.
    """

    total: int | None = None
    stages: Counter[Stage] = field(default_factory=Counter)
    ends: Counter[TaskEnd] = field(default_factory=Counter)
    steps: int = 0
    retries: int = 0
    stored: int = 0
    queued: Queued | None = None

    @property
    def done(self) -> int:
        """How many tasks have ended."""
        return sum(self.ends.values())

    def ended(self, result: TaskResult) -> None:
        """Count a result."""
        self.ends[result.end] += 1
        self.stored += result.is_stored

    def line(self) -> str:
        """Say it in one line."""
        total = f"/{self.total}" if self.total is not None else ""
        parts = [f"{self.done}{total} done"]
        parts += [f"{count} {end.value.replace('_', ' ')}" for end, count in sorted(self.ends.items())]
        parts += [f"{count} {stage.value}" for stage, count in sorted(self.stages.items()) if count]
        if self.retries:
            parts.append(f"{self.retries} retried")
        if self.queued is not None and self.stages[Stage.CLAIMING]:
            eta = "" if self.queued.eta is None else f", about {self.queued.eta:.0f} s"
            parts.append(f"queue: {self.queued.reason or 'waiting'}{eta}")
        return " · ".join(parts)


class Bar:
    """Draws the progress on a terminal, over itself; elsewhere a line for each tenth of the run.

    What the program prints on the terminal meanwhile stands above the bar. The driver closes it at the end of a run.
    """

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr
        self._is_live = self._out.isatty()
        self._told = -1
        self._is_drawn = False
        self._printed: _Above | None = None

    def __call__(self, progress: Progress) -> None:
        """Show what there is now."""
        if self._is_live:
            self._draw(progress)
        elif (tenth := self._tenth(progress)) > self._told:
            self._told = tenth
            print(progress.line(), file=self._out, flush=True)

    def close(self) -> None:
        """Leave the line."""
        if self._printed is not None:
            # Another program part may have put its own stream in this place meanwhile.
            if sys.stdout is self._printed:
                sys.stdout = self._printed.out
            self._printed = None
        if self._is_drawn:
            self._out.write("\n")
            self._out.flush()
            self._is_drawn = False

    def clear(self) -> None:
        """Make room for what the program prints, until the next drawing."""
        if self._is_drawn:
            self._out.write("\r\x1b[2K")
            self._out.flush()
            self._is_drawn = False

    def _tenth(self, progress: Progress) -> int:
        return progress.done * 10 // progress.total if progress.total else progress.done // 10

    def _draw(self, progress: Progress) -> None:
        if self._printed is None and sys.stdout.isatty():
            self._printed = _Above(sys.stdout, self)
            sys.stdout = cast("TextIO", self._printed)
        if self._printed is not None and self._printed.is_within_line:
            return
        share = progress.done / progress.total if progress.total else 0.0
        bar = "█" * int(_BAR * share)
        line = clip(f"{bar:·<{_BAR}} {progress.line()}", shutil.get_terminal_size((100, 24)).columns)
        self._out.write(f"\r\x1b[2K{line}")
        self._out.flush()
        self._is_drawn = True


class _Above:
    """Standard output while a bar is drawn below it."""

    def __init__(self, out: TextIO, bar: Bar) -> None:
        self.out = out
        self._bar = bar
        self.is_within_line = False

    def write(self, text: str) -> int:
        """Write above the bar."""
        self._bar.clear()
        if text:
            self.is_within_line = not text.endswith("\n")
        return self.out.write(text)

    def __getattr__(self, name: str) -> object:
        return getattr(self.out, name)
