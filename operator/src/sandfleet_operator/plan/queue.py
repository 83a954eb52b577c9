"""Claims that wait: their order, their position, and when their turn may come."""

import bisect
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from sandfleet_operator.api.errors import Code, Problem
from sandfleet_operator.api.values import Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    claim: Claim
    # Of the arrival: from 1, kept when the claim has to wait again.
    number: int
    asked: float
    deadline: float
    # The sandbox that is being started for this claim alone, or that it is being bound to.
    sandbox_id: str = ""
    # Sandboxes that came to nothing for it.
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Queued:
    """Where a claim stands: `position` from 1, `eta` in seconds from now or None where nothing is known."""

    position: int
    eta: float | None
    reason: str


class Line(Protocol):
    """The claims of one pool that have no sandbox yet, in the order of their turns."""

    def add(self, waiting: Waiting) -> None: ...
    def discard(self, waiting: Waiting) -> None:
        """It need not be there."""
        ...

    def position(self, waiting: Waiting) -> int:
        """From 1."""
        ...

    def __iter__(self) -> Iterator[Waiting]:
        """The next one first."""
        ...

    def __len__(self) -> int: ...


class FirstComeFirstServed:
    """By the number of the arrival, also for those that wait again."""

    def __init__(self) -> None:
        self._line: list[Waiting] = []

    def add(self, waiting: Waiting) -> None:
        bisect.insort(self._line, waiting, key=_number)

    def discard(self, waiting: Waiting) -> None:
        place = self.position(waiting) - 1
        if place < len(self._line) and self._line[place].number == waiting.number:
            del self._line[place]

    def position(self, waiting: Waiting) -> int:
        return bisect.bisect_left(self._line, waiting.number, key=_number) + 1

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._line)

    def __len__(self) -> int:
        return len(self._line)


def _number(waiting: Waiting) -> int:
    return waiting.number


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What a queue's future can be told from."""

    # Seconds since the start of each sandbox that is being started, in any order.
    start_ages: tuple[float, ...]
    # What a start takes, as observed; None before the first one.
    start_seconds: float | None
    max_starting: int
    # No further sandbox may be started until one ends.
    full: bool
    # Why nothing is handed out; empty where it is.
    closed: str = ""


def standing(position: int, waiting: Waiting, outlook: Outlook) -> Queued:
    """The position, the time and the reason of a claim that waits at `position` (from 1)."""
    if outlook.closed:
        return Queued(position, None, outlook.closed)
    reason = "ColdStart" if waiting.sandbox_id else "PoolEmpty"
    if outlook.full and position > len(outlook.start_ages):
        return Queued(position, None, "SandboxLimit")
    return Queued(position, _eta(position, outlook), reason)


def _eta(position: int, outlook: Outlook) -> float | None:
    if outlook.start_seconds is None:
        return None
    left = sorted(max(0.0, outlook.start_seconds - age) for age in outlook.start_ages)
    if position <= len(left):
        return left[position - 1]
    waves = math.ceil((position - len(left)) / outlook.max_starting)
    return (left[0] if left else 0.0) + waves * outlook.start_seconds


def observed(start_seconds: float | None, sample: float) -> float:
    """The running mean of start times with one more sample; a recent one counts for a fifth."""
    return sample if start_seconds is None else start_seconds + (sample - start_seconds) / 5


def overdue_problem(waiting: Waiting, *, full: bool, closed: str = "") -> Problem:
    """Why a claim whose longest wait is over was not served."""
    waited = f"cannot claim: no sandbox within {waiting.claim.max_wait:g} s"
    if closed:
        return Problem(Code.UNAVAILABLE, closed, f"{waited}: the pool hands out nothing ({closed})")
    if full:
        return Problem(Code.RESOURCE_EXHAUSTED, "SandboxLimit", f"{waited}: the limit of sandboxes is reached")
    return Problem(Code.DEADLINE_EXCEEDED, "NotBoundInTime", f"{waited}: none was ready")
