"""How long and how often a stream that broke is taken up again."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Budget:
    """For one stream since it came to something new; time in seconds."""

    seconds: float = 60.0
    attempts: int = 10
    # The first pause and the longest; each is drawn from half of it to all of it, so that many do not come at once.
    pauses: tuple[float, float] = (0.05, 2.0)
    chance: Callable[[], float] = random.random


class Attempts:
    """What is used up of a budget. Time is an argument."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._made = 0
        self._until = 0.0
        self._at = -1
        self.total = 0

    @property
    def first(self) -> bool:
        """Whether this attempt is the first since something new came."""
        return self._made == 1

    def pause(self, now: float, position: int) -> float | None:
        """Seconds to wait before the next attempt at a stream that came to `position`; None when there is none left."""
        if position > self._at:
            self._at, self._made, self._until = position, 0, now + self._budget.seconds
        if self._made >= self._budget.attempts or now >= self._until:
            return None
        first, longest = self._budget.pauses
        # The first attempt is made at once: most connections that break can be made again.
        pause = 0.0 if not self._made else min(longest, first * 2 ** (self._made - 1)) * (1 + self._budget.chance()) / 2
        self._made += 1
        self.total += 1
        return min(pause, self._until - now)
