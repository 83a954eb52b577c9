"""How the start slots are divided: between namespaces first, then between the pools of each namespace.

Each pool that wants to start may start one sandbox, whatever the others hold. The rest is divided fairly: none gets
more than it wants, and what one leaves goes to the others. A pool that began earlier keeps what it has started, so
that for a while more sandboxes may start than there are slots.
"""

from collections.abc import Mapping

# Starts at the same time on each node that is ready.
STARTS_PER_NODE = 10


def divided(total: int, wanted: Mapping[str, int]) -> dict[str, int]:
    """A fair share for each, at least 1. The shares are the total where that is wanted and at least 1 for each."""
    shares: dict[str, int] = {}
    for place, name in enumerate(sorted(wanted, key=lambda one: (wanted[one], one))):
        fair = total // (len(wanted) - place)
        shares[name] = min(wanted[name], max(1, fair))
        total -= shares[name]
    return shares


def namespace_of(pool: str) -> str:
    """Of a pool NAMESPACE/NAME; on one machine pools have none."""
    return pool.rpartition("/")[0]


class StartShares:
    """How many starts each pool wants at the same time, those in progress included."""

    def __init__(self) -> None:
        self._wanted: dict[str, dict[str, int]] = {}
        self._total = 0

    def want(self, pool: str, many: int) -> None:
        namespace = namespace_of(pool)
        pools = self._wanted.setdefault(namespace, {})
        self._total += many - pools.pop(pool, 0)
        if many > 0:
            pools[pool] = many
        if not pools:
            del self._wanted[namespace]

    def share(self, pool: str, total: int) -> int:
        """Of `total` slots; 0 for a pool that wants none."""
        pools = self._wanted.get(namespace_of(pool), {})
        if pool not in pools or self._total <= total:
            return pools.get(pool, 0)
        if pools[pool] == self._total:
            # No other pool wants any.
            return max(1, total)
        among = divided(total, {name: sum(each.values()) for name, each in self._wanted.items()})
        return divided(among[namespace_of(pool)], pools)[pool]
