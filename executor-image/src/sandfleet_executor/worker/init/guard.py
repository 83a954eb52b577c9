"""The memory guard's decisions (pure): how often to look, and which trees to kill before the memory is used up."""

from collections.abc import Mapping

from ..base.tree import Tree

# Sampling intervals in seconds: with nothing running, with something running, and with memory getting short.
IDLE_INTERVAL = 1.0
BUSY_INTERVAL = 0.1
TIGHT_INTERVAL = 0.02
TIGHT_SHARE = 0.5
# The share of the limit that copies must hold for killing them to be worthwhile.
WORTHWHILE_SHARE = 1 / 16


def interval(*, busy: bool, used: int, limit: int) -> float:
    """Seconds until the next sample."""
    if is_tight(used, limit):
        return TIGHT_INTERVAL
    return BUSY_INTERVAL if busy else IDLE_INTERVAL


def is_tight(used: int, limit: int) -> bool:
    return used > limit * TIGHT_SHARE


def trees_to_kill(
    trees: Mapping[int, Tree], copies: Mapping[int, int], tmp_used: int, limit: int, *, used: int | None = None
) -> list[int]:
    """The roots of the trees to kill; none while memory is within the limit.

    Memory is `used`, or, where that is unknown, the sum of all trees and of `tmp_used`; all in bytes. `copies`: waiting
    copies of contexts, with the bytes that each shares with no other process. All copies are killed first if that is
    enough. Otherwise the largest running tree is killed, and its copy keeps its variables. Copies that hold next to
    nothing are spared.
    """
    used = sum(tree.rss for tree in trees.values()) + tmp_used if used is None else used
    if used <= limit or not trees:
        return []
    alone = sum(copies.values())
    if alone >= limit * WORTHWHILE_SHARE and used - alone <= limit:
        return list(copies)
    running = trees.keys() - copies.keys()
    # Only copies are left: kill them.
    return [max(running, key=lambda pid: (trees[pid].rss, pid))] if running else list(copies)
