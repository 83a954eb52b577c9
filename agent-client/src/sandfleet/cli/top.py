"""`sandfleet sandboxes top`: show what a sandbox and its executions use."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TextIO, TypeAlias, TypeVar

from sandfleet.cli import table
from sandfleet.cli.terminal import keys
from sandfleet.errors import SandfleetError
from sandfleet.values import _show
from sandfleet.values._show import clip

if TYPE_CHECKING:
    from sandfleet.values.execution import RunningCommand
    from sandfleet.values.usage import ExecutionUsage, SandboxUsage

Look = TypeVar("Look")
# Lines, and the share of each.
Drawn: TypeAlias = tuple[list[str], list[float | None]]

_BAR = 20
# Shares of a limit from which a bar is yellow, then red.
_NEAR, _AT = 0.75, 0.9
_RED, _YELLOW, _GREEN, _BOLD, _PLAIN = "\033[31m", "\033[33m", "\033[32m", "\033[1m", "\033[0m"
_UNKNOWN = "?"
_COLUMNS = ("EXECUTION", "TIME", "CPU", "MEMORY", "PEAK", "PROCS", "WRITTEN", "OUTPUT", "WHAT")
_LESS = ("OUTPUT", "WRITTEN", "PEAK")


class Names:
    """Names what runs: a cell by its context, a command by its words, which `look` lists."""

    def __init__(self, look: Callable[[], Iterable[RunningCommand]]) -> None:
        self._look = look
        self._commands: dict[str, str] = {}

    def of(self, one: ExecutionUsage) -> str:
        """Return the name of an execution."""
        if one.context:
            return f"cell in {table.plain(one.context)}"
        if one.execution_id not in self._commands:
            # Commands that have ended are forgotten.
            with suppress(SandfleetError):
                self._commands = {each.execution_id: table.plain(" ".join(each.argv)) for each in self._look()}
            self._commands.setdefault(one.execution_id, "-")
        return self._commands[one.execution_id]


def follow(usages: Iterable[SandboxUsage], *, as_json: bool, name: str, out: TextIO, named: Names) -> None:
    """Show each usage of the sandbox `name` until it ends: see `watch`."""

    def drawn(usage: SandboxUsage, width: int) -> Drawn:
        lines = screen(usage, name, named, width - 1)
        return lines, shares(usage, len(lines))

    watch(usages, out, as_json=as_json, text=line, draw=drawn)


def watch(
    looks: Iterable[Look],
    out: TextIO,
    *,
    as_json: bool,
    text: Callable[[Look], str],
    draw: Callable[[Look, int], Drawn],
) -> None:
    """Show each look until there is no other, or until Ctrl-C or q, which leave the last one.

    On a terminal `draw` gives its lines for a width, and the share by which each is coloured; they are drawn over those
    before. Elsewhere it is one JSON object a line, or its `text`.
    """
    canvas = Canvas(out) if out.isatty() and not as_json else None
    with suppress(KeyboardInterrupt), keys.quitting():
        for look in looks:
            if canvas is not None:
                canvas.draw(*draw(look, table.width()))
            else:
                print(json.dumps(_show.to_json(look)) if as_json else text(look), file=out, flush=True)


def line(usage: SandboxUsage) -> str:
    """Say a usage in one line, for files and pipes."""
    parts = [f"{label} {value}" for label, value, _ in gauges(usage)]
    cpu = f"cpu {usage.total_cpu_seconds:.2f} s"
    return "  ".join([seconds(usage.wall_seconds), *parts, cpu, f"written {size(usage.written_bytes)}"])


class Canvas:
    """Lines of a terminal that are drawn again and again."""

    def __init__(self, out: TextIO) -> None:
        """Draw on `out`."""
        self._out = out
        self._drawn = 0

    def draw(self, lines: list[str], shares: list[float | None]) -> None:
        """Draw lines over those before, each coloured by its share of a limit: see `paint`."""
        columns, height = shutil.get_terminal_size((100, 24))
        shown = [clip(line, columns) for line in lines][: max(1, height - 1)]
        if table.is_plain(self._out):
            painted = shown
        else:
            painted = [paint(line, share) for line, share in zip(shown, shares, strict=False)]
        back = f"\033[{self._drawn}F" if self._drawn else ""
        self._out.write(back + "".join(f"\033[2K{line}\n" for line in painted) + "\033[J")
        self._out.flush()
        self._drawn = len(shown)


def screen(usage: SandboxUsage, name: str, named: Names, width: int = 0) -> list[str]:
    """Return the lines of the screen, without colours; the rows of executions fit the width."""
    head = f"{name}  up {seconds(usage.wall_seconds)}  {table.count(usage.executions, 'execution')} ended"
    bars = [f"{label:<11}{bar(share)}  {value}" for label, value, share in gauges(usage)]
    peaks = f"peaks      memory {size(usage.peak_memory_bytes)}, {usage.peak_processes} process{'' if usage.peak_processes == 1 else 'es'}"
    totals = f"in all     cpu {usage.total_cpu_seconds:.2f} s, written {size(usage.written_bytes)}"
    rows = [(*row(one), named.of(one)) for one in usage.running]
    lines = table.lines(_COLUMNS, rows, width, _LESS) if rows else []
    return [head, *bars, peaks, totals, "", *(lines or ["nothing runs"])]


def gauges(usage: SandboxUsage) -> list[tuple[str, str, float | None]]:
    """Return each limited quantity: its name, its usage in words, and its share of the limit; None if not known."""
    limits = usage.limits
    return [
        _gauge("memory", usage.memory_bytes + usage.tmp_bytes, limits.memory_bytes, size),
        _gauge("disk", usage.disk_bytes, limits.disk_bytes, size),
        _gauge("processes", usage.processes, limits.processes, _count),
        _gauge("executions", usage.running_executions, limits.executions, _count),
    ]


def _gauge(label: str, used: int | None, limit: int, words: _Words) -> tuple[str, str, float | None]:
    if not limit:
        return label, words(used), None
    return label, f"{words(used)}/{words(limit)}", None if used is None else used / limit


class _Words(Protocol):
    def __call__(self, value: int | None, /) -> str: ...


def row(one: ExecutionUsage) -> tuple[str, ...]:
    """Format one execution as columns."""
    used = one.usage
    return (
        one.execution_id[:12],
        seconds(used.wall_seconds),
        f"{used.cpu_seconds:.2f}",
        size(one.memory_bytes),
        size(used.peak_memory_bytes),
        str(one.processes),
        size(used.written_bytes),
        size(used.stdout_bytes + used.stderr_bytes),
    )


def bar(share: float | None) -> str:
    """Draw a share of a limit."""
    filled = 0 if share is None else min(_BAR, max(round(share * _BAR), int(share > 0)))
    return "█" * filled + "·" * (_BAR - filled)


def shares(usage: SandboxUsage, lines: int) -> list[float | None]:
    """Return the share of each line of the screen: -1 for a headline, None without a limit."""
    found: list[float | None] = [-1.0, *(share for _, _, share in gauges(usage))]
    return (found + [None] * lines)[:lines]


def paint(line: str, share: float | None) -> str:
    """Colour the bar of a line, or all of a headline."""
    if share is None:
        return line
    if share < 0:
        return f"{_BOLD}{line}{_PLAIN}"
    colour = _RED if share >= _AT else _YELLOW if share >= _NEAR else _GREEN
    filled = line.count("█")
    return line.replace("█" * filled, f"{colour}{'█' * filled}{_PLAIN}", 1) if filled else line


def size(value: int | None) -> str:
    """Format bytes, as 1.5G; a question mark if not known."""
    if value is None:
        return _UNKNOWN
    number, units = float(value), iter("KMGTPE")
    unit = "B"
    while number >= 999.5 and (next_unit := next(units, "")):
        number, unit = number / 1024, next_unit
    return f"{number:.0f}{unit}" if number >= 99.5 or unit == "B" else f"{number:.1f}{unit}"


def _count(value: int | None) -> str:
    return _UNKNOWN if value is None else str(value)


def seconds(value: float) -> str:
    """Format a time: 3.4s, 12:34, 1:02:03."""
    if value < 60:
        return f"{value:.1f}s"
    minutes, left = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"
