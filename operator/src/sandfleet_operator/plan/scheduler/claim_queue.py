"""Claims that wait: their order and position, why they wait, and when their turn may come."""

import bisect
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from sandfleet_operator.api.errors import Code, Problem
from sandfleet_operator.api.reasons import ClaimReason, QueueReason
from sandfleet_operator.api.values import Claim, Sandbox
from sandfleet_operator.plan.scheduler.starts.health import Trouble


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    claim: Claim
    # The number of its arrival, from 1. The claim keeps it when it has to wait again.
    number: int
    asked: float
    deadline: float
    # The sandbox that is being started for this claim alone, or that it is being bound to.
    sandbox_id: str = ""
    # Sandboxes that were lost on their way to this claim.
    failures: int = 0
    # The suspended session that it takes on; empty: the claim is for a new one. Its claim names the workspace.
    resumes: str = ""


@dataclass(frozen=True, slots=True)
class WhyNot:
    """Why a claim was not admitted: a QueueReason or the reason of its pool, and a sentence."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Queued:
    """The standing of a claim: `position` from 1, `eta` in seconds from now, or None if it cannot be told."""

    position: int
    eta: float | None
    reason: str
    message: str = field(default="", compare=False)


class ClaimQueue(Protocol):
    """The claims of one pool that have no sandbox yet, in the order of their turns."""

    def add(self, waiting: Waiting) -> None: ...
    def discard(self, waiting: Waiting) -> None:
        """Removes the claim, if it is in the queue."""
        ...

    def position(self, waiting: Waiting) -> int:
        """From 1."""
        ...

    def alone(self) -> int:
        """The number of claims that need a start of their own."""
        ...

    def __iter__(self) -> Iterator[Waiting]:
        """The next one first."""
        ...

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Nomination:
    """A claim and the warm sandbox that it is to get."""

    waiting: Waiting
    sandbox: Sandbox


class SchedulingPolicy(Protocol):
    """Which claims of a pool get its warm sandboxes, and in which order."""

    def new_queue(self) -> ClaimQueue:
        """For one pool."""
        ...

    def heads(self, queue: ClaimQueue) -> Iterator[Waiting]:
        """The claims that a warm sandbox can serve, the next one first. Lazy: queues are long."""
        ...

    def order(self, nominations: list[Nomination]) -> list[Nomination]:
        """The nominations in the order of their admission."""
        ...


class FirstComeFirstServed:
    """Each pool serves its claims in the order of their arrival."""

    def new_queue(self) -> ClaimQueue:
        return ArrivalQueue()

    def heads(self, queue: ClaimQueue) -> Iterator[Waiting]:
        # A claim on an earlier workspace needs a start of its own.
        return (one for one in queue if not one.claim.workspace_id)

    def order(self, nominations: list[Nomination]) -> list[Nomination]:
        return nominations


def nominate(heads: Iterable[Waiting], warm: Iterable[Sandbox], most: int) -> list[Nomination]:
    """Pairs the first `most` heads with warm sandboxes, as far as both go."""
    return [Nomination(waiting, sandbox) for waiting, sandbox in zip(islice(heads, most), warm, strict=False)]


class ArrivalQueue:
    """Ordered by the number of the arrival, so that a claim that waits again has its old place."""

    def __init__(self) -> None:
        self._claims: list[Waiting] = []
        self._alone = 0

    def add(self, waiting: Waiting) -> None:
        bisect.insort(self._claims, waiting, key=_number)
        self._alone += bool(waiting.claim.workspace_id)

    def discard(self, waiting: Waiting) -> None:
        place = self.position(waiting) - 1
        if place < len(self._claims) and self._claims[place].number == waiting.number:
            self._alone -= bool(self._claims[place].claim.workspace_id)
            del self._claims[place]

    def position(self, waiting: Waiting) -> int:
        return bisect.bisect_left(self._claims, waiting.number, key=_number) + 1

    def alone(self) -> int:
        return self._alone

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._claims)

    def __len__(self) -> int:
        return len(self._claims)


def _number(waiting: Waiting) -> int:
    return waiting.number


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What a pool can do for its claims at one moment."""

    # Why the pool hands out nothing; empty while it does.
    closed: str = ""
    warm: int = 0
    # Sandboxes that are being started.
    starting: int = 0
    # No further sandbox may be started until one ends.
    full: bool = False
    # Of those that are being started: the API server has not taken them yet.
    unmade: int = 0
    # Why the API server takes no further ones.
    trouble: Trouble | None = None


def why_not(position: int, waiting: Waiting, snapshot: Snapshot) -> WhyNot:
    """Why the claim at `position` (from 1) still waits."""
    if snapshot.closed:
        return WhyNot(snapshot.closed, f"the pool hands out nothing now ({snapshot.closed})")
    if snapshot.full and position > snapshot.starting:
        return WhyNot(QueueReason.SANDBOX_LIMIT.value, "the limit of sandboxes is reached")
    trouble = snapshot.trouble
    if trouble and (trouble.binds or position > snapshot.starting - snapshot.unmade):
        doing = "bound" if trouble.binds else "started"
        return WhyNot(trouble.reason, f"no sandbox can be {doing} now: {trouble.message}")
    if waiting.sandbox_id:
        return WhyNot(QueueReason.COLD_START.value, "a sandbox is being started for this claim")
    return WhyNot(QueueReason.POOL_EMPTY.value, f"no sandbox is warm, and {snapshot.starting} are being started")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """From which a queue's future can be estimated."""

    # Seconds since the start of each sandbox that is being started, in any order.
    start_ages: tuple[float, ...]
    # Seconds that a start takes, as observed; None before the first one.
    start_seconds: float | None
    max_starting: int
    full: bool
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


def standing(position: int, waiting: Waiting, outlook: Outlook) -> Queued:
    """The position, the time and the reason of a claim that waits at `position` (from 1)."""
    why = why_not(position, waiting, outlook.snapshot)
    hindered = outlook.trouble is not None and why.reason == outlook.trouble.reason
    blocked = bool(outlook.closed) or hindered or why.reason == QueueReason.SANDBOX_LIMIT.value
    return Queued(position, None if blocked else _eta(position, outlook), why.reason, why.message)


def _eta(position: int, outlook: Outlook) -> float | None:
    if outlook.start_seconds is None:
        return None
    left = sorted(max(0.0, outlook.start_seconds - age) for age in outlook.start_ages)
    if position <= len(left):
        return left[position - 1]
    waves = math.ceil((position - len(left)) / outlook.max_starting)
    return (left[0] if left else 0.0) + waves * outlook.start_seconds


def observed(start_seconds: float | None, sample: float) -> float:
    """The running mean of start times with one more sample, which counts for a fifth."""
    return sample if start_seconds is None else start_seconds + (sample - start_seconds) / 5


def overdue_problem(waiting: Waiting, *, full: bool, closed: str = "", trouble: Trouble | None = None) -> Problem:
    """Why a claim whose longest wait is over was not served."""
    doing = "resume the sandbox" if waiting.resumes else "claim"
    waited = f"cannot {doing}: no sandbox within {waiting.claim.max_wait:g} s"
    if closed:
        return Problem(Code.UNAVAILABLE, closed, f"{waited}: the pool hands out nothing ({closed})")
    if trouble:
        reason = next(one for one in ClaimReason if one.value == trouble.reason)
        return reason.problem(f"{waited}: {trouble.message}")
    if full:
        return ClaimReason.SANDBOX_LIMIT.problem(f"{waited}: the limit of sandboxes is reached")
    return ClaimReason.NOT_BOUND_IN_TIME.problem(f"{waited}: none was ready")
