"""What a fleet says of itself: frozen values, free of gRPC and protobuf."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from sandfleet.egress import EgressState
from sandfleet.values import SandboxInfo

# What an egress class of a claim can be; None means as the template says.
Egress = Literal["none", "template"]
# The reason of `Queued` while no fleet answers.
FLEET_UNAVAILABLE = "FleetUnavailable"


@dataclass(frozen=True, slots=True)
class Queued:
    """A claim that waits.

    position  in the line, from 1; 0 while no fleet answers (reason FleetUnavailable: the claim is sent again).
    eta       seconds that it is expected to take; None where nothing is known.
    reason    one word: PoolEmpty, ColdStart, SandboxLimit, PolicyMissing, TemplateNotFound, TemplateInvalid, StartsFail.
    """

    position: int
    eta: float | None = None
    reason: str = ""


# Called with each piece of news of a claim; what it returns is awaited where it can be.
OnQueued = Callable[[Queued], object]


@dataclass(frozen=True, slots=True)
class Bound:
    """How a claim was served. `warm`: the sandbox was waiting for it; else it was started for this claim."""

    warm: bool
    egress: EgressState = EgressState.UNKNOWN


@dataclass(frozen=True, slots=True)
class PoolInfo:
    """Sandboxes of one template that are kept warm.

    pool_id      NAMESPACE/NAME on Kubernetes.
    target_warm  how many are to be warm now; warm, starting, claimed: how many are; waiting: claims that wait for it.
    hit_rate     the share of the last claims that found a warm one, 0 to 1; None where there was none.
    reason       why it has fewer than it is to have, in one word; "" where it has them.
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
    """A step of a watch. `synced` comes once, without a sandbox: everything that was there has been said."""

    kind: Literal["changed", "removed", "synced"]
    sandbox: SandboxInfo | None = None
