"""What a pool and the quota of a queue let expect, and the base time that follows for a claim. Pure."""

import math
from dataclasses import dataclass
from functools import cached_property

from sandfleet_operator.api.reasons import QueueReason
from sandfleet_operator.plan.scheduler.claim_queue import Snapshot, WhyNot
from sandfleet_operator.plan.scheduler.queues.standing.estimates import Base
from sandfleet_operator.plan.scheduler.starts.health import Trouble

# Kinds of waits, which are estimated in different ways.
START, RELEASE, QUOTA = "start", "release", "quota"
# A start is taken to need this share of its age at least: no claim is told 0 seconds while its start is overdue.
OVERDUE = 0.25


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """From which the future of a pool's claims can be estimated."""

    # Seconds since the start of each sandbox that is being started, in any order.
    start_ages: tuple[float, ...]
    # Seconds that a start takes, as observed; None before the first one.
    start_seconds: float | None
    max_starting: int
    full: bool
    # Sandboxes of the pool that end in a second; None where that is not known.
    release_rate: float | None = None
    closed: str = ""
    unmade: int = 0
    trouble: Trouble | None = None

    @property
    def snapshot(self) -> Snapshot:
        return Snapshot(
            closed=self.closed,
            full=self.full,
            starting=len(self.start_ages),
            unmade=self.unmade,
            trouble=self.trouble,
        )

    @cached_property
    def starts_left(self) -> list[float]:
        """Seconds until the starts in progress are over, the next one first. One that is overdue takes longer still."""
        seconds = self.start_seconds or 0.0
        return sorted(max(seconds - age, OVERDUE * age) for age in self.start_ages)


@dataclass(frozen=True, slots=True)
class QuotaWait:
    """Why a quota does not permit a claim, and how many sandboxes that would free it end in a second."""

    why: WhyNot
    rate: float | None


def base(position: int, before: float, outlook: Outlook, why: WhyNot, quota: QuotaWait | None) -> Base | None:
    """`position` is that in the claim's queue, `before` how many of the pool's claims come before it, its own too."""
    hindered = outlook.trouble is not None and why.reason == outlook.trouble.reason
    if outlook.closed or hindered:
        return None
    if quota is not None and why is quota.why:
        return None if quota.rate is None else Base(position / quota.rate, QUOTA)
    if why.reason == QueueReason.SANDBOX_LIMIT.value:
        rate, waiting = outlook.release_rate, max(1.0, before - len(outlook.start_ages))
        return None if rate is None else Base(waiting / rate + (outlook.start_seconds or 0.0), RELEASE)
    return _of_starts(max(1, math.ceil(before)), outlook)


def _of_starts(before: int, outlook: Outlook) -> Base | None:
    if outlook.start_seconds is None:
        return None
    left = outlook.starts_left
    if before <= len(left):
        return Base(left[before - 1], START)
    waves = math.ceil((before - len(left)) / outlook.max_starting)
    return Base((left[0] if left else 0.0) + waves * outlook.start_seconds, START)
