"""Fleets: waiting and served claims, pools, and changes of sandboxes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from sandfleet.values.egress import EgressState
from sandfleet.values.sandbox import SandboxInfo

# The egress of a claim; None means the template's.
Egress = Literal["none", "template"]
# The reason of `Queued` while no fleet answers.
FLEET_UNAVAILABLE = "FleetUnavailable"


@dataclass(frozen=True, slots=True)
class Queued:
    """A claim that waits.

    position  in the queue, from 1; 0 while no fleet answers (reason FleetUnavailable: the claim is sent again).
    eta       expected wait in seconds; None if it is not known.
    reason    one word: PoolEmpty, ColdStart, SandboxLimit, PolicyMissing, TemplateNotFound, TemplateInvalid,
              QuotaExceeded, CreationForbidden, ApiServerFailed.
    """

    position: int
    eta: float | None = None
    reason: str = ""


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
