"""When a session that waits for its model gives its sandbox back. Pure.

To keep a sandbox while its model thinks costs sandbox-seconds; to park it costs the suspension, the resumption and
the wait for it. How long a gap will be is not known while it lasts: this is the ski-rental problem. `LearnedParking`
takes the timeout that would have cost least on the gaps seen lately (Karlin, Manasse, McGeoch and Owicki, "Competitive
randomized algorithms for nonuniform problems", Algorithmica 1994, section on known distributions); before it has seen
enough, the break-even timeout, which costs at most twice as much as hindsight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol


class Parking(Protocol):
    """Decides after how long a gap a session is parked."""

    def timeout(self) -> float:
        """Return the seconds of a gap after which to park; `inf` means never."""

    def saw_gap(self, seconds: float) -> None:
        """Note the length of a gap that has ended."""

    def saw_parking(self, seconds: float) -> None:
        """Note how long one suspension and its resumption took together."""


class NoParking:
    """Never parks."""

    def timeout(self) -> float:
        """Return `inf`."""
        return inf

    def saw_gap(self, seconds: float) -> None:
        """Nothing is learned."""

    def saw_parking(self, seconds: float) -> None:
        """Nothing is learned."""


@dataclass(frozen=True, slots=True)
class FixedParking(NoParking):
    """Parks each gap after the same time."""

    seconds: float

    def timeout(self) -> float:
        """Return that time."""
        return self.seconds


class LearnedParking:
    """Parks after the time that would have cost least on the gaps seen lately.

    latency_weight  sandbox-seconds that one second of added latency is worth. 0 counts only what sandboxes cost; a
                    larger number parks less.
    cost            seconds of one suspension with its resumption, until the first was seen.
    """

    WINDOW = 512
    # So many gaps have to be seen before they count.
    ENOUGH = 20
    # The timeout is computed again after so many gaps.
    EVERY = 16

    def __init__(self, *, latency_weight: float = 1.0, cost: float = 2.0) -> None:
        self._weight = latency_weight
        self._cost = cost
        self._gaps: deque[float] = deque(maxlen=self.WINDOW)
        self._new = 0
        self._timeout: float | None = None

    def timeout(self) -> float:
        """Return the seconds of a gap after which to park; `inf` means never."""
        if len(self._gaps) < self.ENOUGH:
            return self._price
        if self._timeout is None or self._new >= self.EVERY:
            self._new, self._timeout = 0, best_timeout(self._gaps, self._price)
        return self._timeout

    def saw_gap(self, seconds: float) -> None:
        """Note the length of a gap that has ended."""
        self._gaps.append(max(0.0, seconds))
        self._new += 1

    def saw_parking(self, seconds: float) -> None:
        """Note how long one suspension and its resumption took together; the newest counts for a fifth."""
        self._cost += (max(0.0, seconds) - self._cost) / 5
        self._timeout = None

    @property
    def _price(self) -> float:
        """What one parking costs, in sandbox-seconds: a sandbox is in use meanwhile, and the agent waits."""
        return self._cost * (1 + self._weight)


def best_timeout(gaps: Sequence[float] | deque[float], price: float) -> float:
    """Return the timeout that would have cost least on these gaps: one of them, 0 or `inf`. O(n log n).

    A gap costs its own length when it is shorter than the timeout, else the timeout and the price of one parking.
    """
    ordered = sorted(gaps)
    kept, best, least = 0.0, 0.0, price * len(ordered)
    for index, gap in enumerate(ordered):
        kept += gap
        longer = len(ordered) - index - 1
        if (cost := kept + longer * (gap + price)) < least:
            least, best = cost, gap if longer else inf
    return best
