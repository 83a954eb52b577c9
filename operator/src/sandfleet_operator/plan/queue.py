"""Claims that wait: their order, their position, and when their turn may come."""

import math
from collections.abc import Iterable, Sequence
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


class Order(Protocol):
    """Decides whose turn it is."""

    def __call__(self, waiting: Iterable[Waiting], /) -> Sequence[Waiting]:
        """All of `waiting`, the next one first."""
        ...


def first_come_first_served(waiting: Iterable[Waiting]) -> Sequence[Waiting]:
    return sorted(waiting, key=lambda one: one.number)


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


def standing(position: int, waiting: Waiting, outlook: Outlook) -> Queued:
    """The position, the time and the reason of a claim that waits at `position` (from 1)."""
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


def overdue_problem(waiting: Waiting, *, full: bool) -> Problem:
    """Why a claim whose longest wait is over was not served."""
    waited = f"cannot claim: no sandbox within {waiting.claim.max_wait:g} s"
    if full:
        return Problem(Code.RESOURCE_EXHAUSTED, "SandboxLimit", f"{waited}: the limit of sandboxes is reached")
    return Problem(Code.DEADLINE_EXCEEDED, "NotBoundInTime", f"{waited}: none was ready")
