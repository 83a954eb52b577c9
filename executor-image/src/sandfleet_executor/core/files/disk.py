"""How much disk the workspace uses, and when that is too much (pure).

The workspace is walked to know what it takes, which costs; how the free space of its file system falls is free to see
and says when a walk is due: no more can have come in than that. Others may write to the same file system, so only a
walk decides.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

MIB = 1 << 20
# The least that a file or folder counts as: so that the limit bounds their number as well.
ENTRY_BYTES = 4096
BLOCK_BYTES = 512
# Beyond the limit there is a margin: a tenth, and at least this (half a second of a quick disk). In it, executions may
# run that do not let the workspace grow: the code that removes files has to run.
LEAST_MARGIN = 512 * MIB
# Seconds between walks while something runs, and walks' largest share of the time: as a rule, and when the limit may be
# reached.
PERIOD = 5.0
SHARE = 0.05
URGENT_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Free:
    """The free space of the workspace's file system, which others may use too."""

    bytes: int
    files: int


@dataclass(frozen=True, slots=True)
class Walked:
    """The result of a walk; the free space, and what the session had written, when it began. `at` is its end, `seconds`
    how long it took.

    `base`: of a walk beside which folders moved, the last one before that has seen everything.
    """

    used: int
    free: Free
    at: float
    seconds: float
    written: int = 0
    base: "Walked | None" = None


def counted(blocks: int) -> int:
    """Bytes that a file or folder of so many blocks counts as. Holes of sparse files take no blocks."""
    return max(blocks * BLOCK_BYTES, ENTRY_BYTES)


def most(walked: Walked, free: Free, written: int | None = None) -> int:
    """The most that the workspace can take now, judged by the free space since a walk that has seen everything.

    `written`: where others free space meanwhile, by what the session has written too.
    """
    base = walked.base or walked
    grown = max(0, base.free.bytes - free.bytes)
    if written is not None:
        grown = max(grown, written - base.written)
    files = base.free.files - free.files
    return max(walked.used, base.used + grown + max(0, files) * ENTRY_BYTES)


def is_due(
    walked: Walked | None, free: Free, now: float, limit: int, *, running: bool, written: int | None = None
) -> bool:
    """Whether to walk again. While no execution runs what they have left running is looked at, without haste."""
    if walked is None:
        return True
    urgent = most(walked, free, written if walked.base else None) > limit
    if running and urgent:
        return now - walked.at >= walked.seconds * (1 / URGENT_SHARE - 1)
    return (running or urgent) and now - walked.at >= max(PERIOD, walked.seconds * (1 / SHARE - 1))


def beyond(limit: int) -> int:
    """Where nothing may run any more, whatever it does."""
    return limit + max(limit // 10, LEAST_MARGIN)


def is_over(used: int, before: int, limit: int) -> bool:
    """Whether executions have to end: `before` is what the workspace took at the last walk before."""
    return used > limit and (used > before or used > beyond(limit))


class Verdict(Enum):
    """What is done about a workspace that is over its limit."""

    FINE = "fine"
    # The executions that are named end.
    END = "end"
    # Interpreters without a cell end: what cells have left running is below them.
    END_IDLE = "end idle"


def judge(
    grown: Mapping[str, int | None], *, ended: bool, hopeless: bool, idle_tried: bool
) -> tuple[Verdict, list[str]]:
    """Who ends, now that the workspace is over its limit.

    `grown` is what each execution that runs has written since the last look, None where that is not known; `ended`
    whether another one ended since; `hopeless` whether it is beyond the margin; `idle_tried` whether idle interpreters
    were ended for it.
    """
    known = {name: size for name, size in grown.items() if size}
    if known:
        return Verdict.END, [max(known, key=lambda name: (known[name], name))]
    if ended and not hopeless:
        # It may have been that one.
        return Verdict.FINE, []
    if not grown or (None not in grown.values() and not idle_tried):
        return Verdict.END_IDLE, []
    return Verdict.END, list(grown)
