"""A claim that waits, and what can be said of it: why it waits, and what becomes of it when its time is over."""

from dataclasses import dataclass, field

from sandfleet_operator.api.errors import Code, Problem
from sandfleet_operator.api.reasons import AdmissionReason, ClaimReason, QueueReason
from sandfleet_operator.api.values import Claim
from sandfleet_operator.plan.scheduler.starts.health import Trouble


@dataclass(frozen=True, slots=True)
class StartTags:
    """The start tags that a claim had at its turn: of its queue, and of its holder within the queue."""

    of_queue: float
    of_holder: float


@dataclass(frozen=True, slots=True)
class Place:
    """Of a waiting claim in its queue, as another leader of the fleet can give it back.

    `asked` is when it came. `lead`: how far its queue and its holder are before virtual time, from 0.
    """

    queue: str
    asked: float
    lead: StartTags


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
    # Until when a preempted session waits to be resumed, with and without a caller; None: only callers wait.
    returns: float | None = None
    # Of its last turn, so that it has its place again; None before it.
    start: StartTags | None = None
    # Of its place at an earlier leader; None: it is new.
    lead: StartTags | None = None
    # The sandbox that was lost on its way to this claim of a gang, and still uses the quota that the claim is to have.
    follows: str = ""
    # Claims that it stands for: those of a gang are in their queue as one.
    many: int = 1


@dataclass(frozen=True, slots=True)
class WhyNot:
    """Why a claim was not admitted: a QueueReason or the reason of its pool, and a sentence."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Eta:
    """Seconds from now by which half of such claims are served, and nine of ten."""

    p50: float
    p90: float


@dataclass(frozen=True, slots=True)
class Queued:
    """The standing of a claim: `position` from 1 in its queue; `eta` None if it cannot be told."""

    position: int
    eta: Eta | None
    reason: str
    message: str = field(default="", compare=False)
    queue: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What a pool can do for its claims at one moment."""

    # Why the pool hands out nothing; empty while it does.
    closed: str = ""
    # Sandboxes that are being started.
    starting: int = 0
    # No further sandbox may be started until one ends.
    full: bool = False
    # Of those that are being started: the API server has not taken them yet.
    unmade: int = 0
    # Why the API server takes no further ones.
    trouble: Trouble | None = None


def why_not(position: int, waiting: Waiting, snapshot: Snapshot, quota: WhyNot | None = None) -> WhyNot:
    """Why the claim at `position` (from 1) still waits. `quota`: why the quota of its queue does not permit it."""
    if snapshot.closed:
        return WhyNot(snapshot.closed, f"the pool hands out nothing now ({snapshot.closed})")
    if quota and not waiting.sandbox_id:
        return quota
    if snapshot.full and position > snapshot.starting:
        return WhyNot(QueueReason.SANDBOX_LIMIT.value, "the limit of sandboxes is reached")
    trouble = snapshot.trouble
    if trouble and (trouble.binds or position > snapshot.starting - snapshot.unmade):
        doing = "bound" if trouble.binds else "started"
        return WhyNot(trouble.reason, f"no sandbox can be {doing} now: {trouble.message}")
    if waiting.sandbox_id:
        return WhyNot(QueueReason.COLD_START.value, "a sandbox is being started for this claim")
    return WhyNot(QueueReason.POOL_EMPTY.value, f"no sandbox is warm, and {snapshot.starting} are being started")


def observed(start_seconds: float | None, sample: float) -> float:
    """The running mean of start times with one more sample, which counts for a fifth."""
    return sample if start_seconds is None else start_seconds + (sample - start_seconds) / 5


def overdue_problem(
    waiting: Waiting, *, full: bool, closed: str = "", trouble: Trouble | None = None, within: float | None = None
) -> Problem:
    """Why a claim whose longest wait is over was not served. `within`: the longest that its queue lets it wait."""
    doing = "resume the sandbox" if waiting.resumes else "claim"
    longest = waiting.claim.max_wait if within is None else within
    waited = f"cannot {doing}: no sandbox within {longest:g} s"
    if closed:
        return Problem(Code.UNAVAILABLE, closed, f"{waited}: the pool hands out nothing ({closed})")
    if trouble:
        reason = next(one for one in ClaimReason if one.value == trouble.reason)
        return reason.problem(f"{waited}: {trouble.message}")
    if full:
        return ClaimReason.SANDBOX_LIMIT.problem(f"{waited}: the limit of sandboxes is reached")
    if longest < waiting.claim.max_wait:
        queue = waiting.claim.queue
        return AdmissionReason.WAIT_TOO_LONG.problem(f"{waited}, the longest that queue {queue} lets wait", queue)
    return ClaimReason.NOT_BOUND_IN_TIME.problem(f"{waited}: none was ready")
