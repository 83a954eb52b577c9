"""At which pools the claims of each queue wait, so that freed quota finds them."""

from collections import Counter
from collections.abc import Iterable

# In the place of a pool: of sandboxes that the operator makes, which no pool serves.
DECLARED = ""


class Places:
    def __init__(self) -> None:
        self._at: dict[str, Counter[str]] = {}
        self._totals: Counter[str] = Counter()

    def arrive(self, queue: str, pool: str) -> None:
        self._at.setdefault(queue, Counter())[pool] += 1
        self._totals[queue] += 1

    def leave(self, queue: str, pool: str) -> None:
        pools = self._at[queue]
        pools[pool] -= 1
        self._totals[queue] -= 1
        if not pools[pool]:
            del pools[pool]
        if not pools:
            del self._at[queue]
            del self._totals[queue]

    def of(self, queues: Iterable[str]) -> list[str]:
        """The pools of these queues, in the order of the queues; each once."""
        return list(dict.fromkeys(pool for queue in queues for pool in self._at.get(queue, ())))

    def with_claims(self, queues: Iterable[str]) -> list[str]:
        """Those of the queues whose claims wait anywhere."""
        return [queue for queue in queues if queue in self._at]

    def waiting(self, queue: str) -> int:
        """Claims of the queue that wait, at all pools together."""
        return self._totals[queue]
