"""Retries after a failure: the pauses between them, and how many a broken stream gets."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses between attempts, in seconds: each is twice the one before, from `first` to `longest`.

    chance  draws from 0 to 1, by which a pause is from half of it to all of it, so that clients do not come at once.
    """

    first: float
    longest: float
    chance: Callable[[], float] | None = random.random

    def after(self, failures: int) -> float:
        """Return the pause after so many failures; none before the first."""
        if failures <= 0:
            return 0.0
        # The bound of the exponent keeps the power small.
        pause = min(self.longest, self.first * 2.0 ** min(failures - 1, 64))
        return pause if self.chance is None else pause * (1 + self.chance()) / 2

    def told(self, seconds: float, failures: int, room: float) -> float:
        """Return the pause after a server has said when to come back.

        Never shorter than that; longer by chance, by up to half of it, as far as `room` seconds allow.
        """
        spread = max(0.0, min(seconds, room - seconds)) / 2
        return max(self.after(failures), seconds + spread * (1.0 if self.chance is None else self.chance()))


@dataclass(frozen=True, slots=True)
class RetryBudget:
    """The retries of one stream since its last new event; times in seconds."""

    seconds: float = 60.0
    attempts: int = 10
    backoff: Backoff = Backoff(0.05, 2.0)


class Retries:
    """Retries that were made of a budget. The clock is an argument."""

    def __init__(self, budget: RetryBudget) -> None:
        self._budget = budget
        self._made = 0
        self._until = 0.0
        self._at = -1
        self.total = 0

    @property
    def first(self) -> bool:
        """Whether this retry is the first since the last new event."""
        return self._made == 1

    def pause(self, now: float, position: int) -> float | None:
        """Return the pause before the next retry of a stream at `position`, in seconds; None when the budget is used
        up.
        """
        if position > self._at:
            self._at, self._made, self._until = position, 0, now + self._budget.seconds
        if self._made >= self._budget.attempts or now >= self._until:
            return None
        # The first retry is immediate: most broken connections can be restored at once.
        pause = self._budget.backoff.after(self._made)
        self._made += 1
        self.total += 1
        return min(pause, self._until - now)
