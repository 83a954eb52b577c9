"""The memory guard's decision (pure): which tree has to go before the sandbox's memory is used up."""

from collections.abc import Mapping

from .tree import Tree

# Sampling intervals in seconds: with nothing running, with something running, and with memory getting short.
IDLE_INTERVAL = 1.0
BUSY_INTERVAL = 0.1
TIGHT_INTERVAL = 0.02
TIGHT_SHARE = 0.5


def interval(*, busy: bool, used: int, limit: int) -> float:
    """Seconds until the next sample."""
    if is_tight(used, limit):
        return TIGHT_INTERVAL
    return BUSY_INTERVAL if busy else IDLE_INTERVAL


def is_tight(used: int, limit: int) -> bool:
    return used > limit * TIGHT_SHARE


def victim(trees: Mapping[int, Tree], tmp_used: int, limit: int) -> int | None:
    """The root of the tree to end: the largest, when all trees and the tmpfs together (bytes) are over the limit."""
    if not trees or sum(tree.rss for tree in trees.values()) + tmp_used <= limit:
        return None
    return max(trees, key=lambda pid: (trees[pid].rss, pid))
