"""What the workspace takes and when that is too much (pure).

The workspace is walked to know what it takes, which costs; how the free space of its file system falls is free to see and says
when a walk is due: no more can have come in than that. Others may write to the same file system, so only a walk decides.
"""

from collections.abc import Mapping
from dataclasses import dataclass

MIB = 1 << 20
# The least that a file or folder counts as: so that the limit bounds their number as well.
ENTRY_BYTES = 4096
BLOCK_BYTES = 512
# Beyond the limit there is room for a tenth, and this at least: in it executions may run that do not let the workspace grow,
# because who is to remove something has to run.
LEAST_MARGIN = 64 * MIB
# Seconds between walks while something runs, and walks' largest share of the time: as a rule, and when the limit may be reached.
PERIOD = 5.0
SHARE = 0.05
URGENT_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Free:
    """Of the workspace's file system, whoever uses it."""

    bytes: int
    files: int


@dataclass(frozen=True, slots=True)
class Walked:
    """What a walk found, and what was free when it began. `at` is its end, `seconds` how long it took."""

    used: int
    free: Free
    at: float
    seconds: float


def counted(blocks: int) -> int:
    """Bytes that a file or folder of so many blocks counts as. Holes of sparse files take no blocks."""
    return max(blocks * BLOCK_BYTES, ENTRY_BYTES)


def most(walked: Walked, free: Free) -> int:
    """What the workspace takes at most now, going by what is free now."""
    grown = walked.free.bytes - free.bytes
    files = walked.free.files - free.files
    return walked.used + max(0, grown) + max(0, files) * ENTRY_BYTES


def is_due(walked: Walked | None, free: Free, now: float, limit: int, *, running: bool) -> bool:
    """Whether to walk again. While no execution runs what they have left running is looked at, without haste."""
    if walked is None:
        return True
    urgent = most(walked, free) > limit
    if running and urgent:
        return now - walked.at >= walked.seconds * (1 / URGENT_SHARE - 1)
    return (running or urgent) and now - walked.at >= max(PERIOD, walked.seconds * (1 / SHARE - 1))


def beyond(limit: int) -> int:
    """Where nothing may run any more, whatever it does."""
    return limit + max(limit // 10, LEAST_MARGIN)


def is_over(used: int, before: int, limit: int) -> bool:
    """Whether executions have to end: `before` is what the workspace took at the last walk before."""
    return used > limit and (used > before or used > beyond(limit))


def blamed(grown: Mapping[str, int | None]) -> list[str]:
    """Whose executions end: the one that wrote most since the last look; where nothing is known of what they write, all."""
    known = {name: size for name, size in grown.items() if size}
    if known:
        return [max(known, key=lambda name: (known[name], name))]
    return list(grown)
