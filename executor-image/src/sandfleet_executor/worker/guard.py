"""The memory guard's decision (pure): which trees have to go before the sandbox's memory is used up."""

from collections.abc import Mapping

from .tree import Tree

# Sampling intervals in seconds: with nothing running, with something running, and with memory getting short.
IDLE_INTERVAL = 1.0
BUSY_INTERVAL = 0.1
TIGHT_INTERVAL = 0.02
TIGHT_SHARE = 0.5
# Of the limit: what copies have to hold for their end to be worth it.
WORTH_SHARE = 1 / 16


def interval(*, busy: bool, used: int, limit: int) -> float:
    """Seconds until the next sample."""
    if is_tight(used, limit):
        return TIGHT_INTERVAL
    return BUSY_INTERVAL if busy else IDLE_INTERVAL


def is_tight(used: int, limit: int) -> bool:
    return used > limit * TIGHT_SHARE


def to_end(
    trees: Mapping[int, Tree], copies: Mapping[int, int], tmp_used: int, limit: int, *, used: int | None = None
) -> list[int]:
    """The roots of the trees to end when all of them and the tmpfs together (bytes) are over the limit, or `used` is where it is known.

    `copies` are those that wait, with the bytes that each of them holds alone. They go first where that is enough; where a tree
    has to go in any case, its copy is what saves its variables, and where they hold next to nothing their end would help nobody.
    """
    used = sum(tree.rss for tree in trees.values()) + tmp_used if used is None else used
    if used <= limit or not trees:
        return []
    alone = sum(copies.values())
    if alone >= limit * WORTH_SHARE and used - alone <= limit:
        return list(copies)
    running = trees.keys() - copies.keys()
    # Without anything that runs it is the copies all the same.
    return [max(running, key=lambda pid: (trees[pid].rss, pid))] if running else list(copies)
