"""Fleets: waiting and served claims, queues, pools, and changes of sandboxes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from sandfleet.values.sandbox import EgressState, SandboxInfo

# The egress of a claim by its template; None means the template's.
EgressWord = Literal["none", "template"]
# The reason of `Queued` while no fleet answers.
FLEET_UNAVAILABLE = "FleetUnavailable"


@dataclass(frozen=True, slots=True)
class Queued:
    """A claim that waits.

    position  in the queue, from 1; 0 while the claim is in no queue and will be sent again: no fleet answers (reason
              FleetUnavailable), or the fleet has said when to come back (reason QueueFull, …).
    eta       seconds within which half of such claims are served; None if that is not known.
    reason    one word of `QueueReason`, or of the pool: PolicyMissing, TemplateNotFound, TemplateInvalid,
              QuotaExceeded, CreationForbidden, ApiServerFailed.
    message   the same in a sentence: what it waits for, and what would let it in.
    eta_p90   seconds within which nine of ten such claims are served; None if that is not known.
    queue     in which it waits, NAMESPACE/NAME on Kubernetes; "" if in none.
    """

    position: int
    eta: float | None = None
    reason: str = ""
    message: str = ""
    eta_p90: float | None = None
    queue: str = ""


# Called when the place of a claim in the queue changes; awaited if it returns an awaitable.
OnQueued = Callable[[Queued], object]


@dataclass(frozen=True, slots=True)
class Bound:
    """How a claim was served.

    `warm`: by a sandbox that was already running; otherwise it was started for this claim.
    """

    warm: bool
    egress: EgressState = EgressState.UNKNOWN


@dataclass(frozen=True, slots=True)
class Quota:
    """An amount of sandboxes, and of what they ask for; None: without bound, or not said.

    cpu     in cores.
    memory  in bytes.
    """

    sandboxes: int | None = None
    cpu: float | None = None
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue, in which claims wait and whose quota they use.

    queue_id          NAMESPACE/NAME on Kubernetes.
    cohort            the queues that lend each other quota; "" if it is in none.
    priority_classes  of its claims; the first is served first.
    stop_policy       "None", "Hold" (admits nothing) or "HoldAndDrain" (also ends its sandboxes).
    pending           claims and declared sandboxes that wait; admitted: sandboxes that use its quota.
    usage, borrowed   what they use, and the part of it that is borrowed.
    oldest_wait       seconds that its oldest claim has waited; None if none waits.
    share             what it borrows of the scarcest resource of its cohort, divided by its weight.
    reason, message   why its claims wait, in one word and in a sentence; "" if none waits for quota.
    admission_rate    claims per second that were admitted, over the last minute.
    """

    queue_id: str
    weight: float = 1.0
    cohort: str = ""
    nominal: Quota = field(default_factory=Quota)
    borrowing_limit: Quota = field(default_factory=Quota)
    lending_limit: Quota = field(default_factory=Quota)
    priority_classes: tuple[str, ...] = ()
    stop_policy: str = "None"
    pending: int = 0
    admitted: int = 0
    usage: Quota = field(default_factory=Quota)
    borrowed: Quota = field(default_factory=Quota)
    oldest_wait: float | None = None
    share: float = 0.0
    reason: str = ""
    message: str = ""
    admission_rate: float = 0.0


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a claim waits, what stands before it and what would let it in.

    verdict       "Waiting" or "Admitted"; of a claim that is not made "WouldBeAdmitted", "WouldWait" or
                  "WouldBeRefused".
    reason        why it waits or would be refused, in one word; message: the whole explanation in a sentence.
    queue         in which it waits; "" if in none.
    position      from 1; 0 if it does not wait.
    eta, eta_p90  seconds within which half and nine of ten such claims are served; None if that is not known.
    ahead         queue → claims that are served before it; "" are claims without a queue.
    missing       the quota that is missing; None if it does not wait for quota.
    """

    verdict: str
    reason: str = ""
    message: str = ""
    queue: str = ""
    position: int = 0
    eta: float | None = None
    eta_p90: float | None = None
    ahead: Mapping[str, int] = field(default_factory=dict)
    missing: Quota | None = None


@dataclass(frozen=True, slots=True)
class PoolInfo:
    """A pool of warm sandboxes of one template.

    pool_id      NAMESPACE/NAME on Kubernetes.
    target_warm  the target number of warm sandboxes; warm, starting, claimed: the actual numbers; waiting: queued
                 claims.
    hit_rate     the share of recent claims that got a warm sandbox, 0 to 1; None before the first claim.
    reason       why the pool is below its target, in one word; "" if it is not.
    """

    pool_id: str
    template: str = ""
    target_warm: int = 0
    warm: int = 0
    starting: int = 0
    claimed: int = 0
    waiting: int = 0
    hit_rate: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SandboxChange:
    """An event of a watch.

    kind     `synced` comes once, without a sandbox, after all existing sandboxes were reported. `unreadable`: the
             sandbox exists, but the fleet cannot read its object until a person or an upgrade corrects that.
    sandbox  of `unreadable` and `removed`, as it was last reported.
    reason   of `unreadable`, in one word.
    message  of `unreadable`: the field that cannot be read.
    """

    kind: Literal["changed", "removed", "synced", "unreadable"]
    sandbox: SandboxInfo | None = None
    reason: str = ""
    message: str = ""
