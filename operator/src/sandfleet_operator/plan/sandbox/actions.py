"""What a plan asks for, as data. They are carried out in their order; one that fails ends the round, and the next one begins anew."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandfleet_operator.api.resources import SandboxStatus
from sandfleet_operator.api.values import Isolation

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EnsurePolicy:
    """Make the NetworkPolicy so."""

    manifest: Json


@dataclass(frozen=True, slots=True)
class RemovePolicy:
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class EnsureKeys:
    """Publish the keys that tokens are checked with in this namespace."""

    namespace: str


@dataclass(frozen=True, slots=True)
class CreateVolume:
    manifest: Json


@dataclass(frozen=True, slots=True)
class AdjustVolume:
    """Give the claim these owner references, and these annotations and labels beside those that it has."""

    namespace: str
    name: str
    uid: str
    owners: tuple[Json, ...]
    annotations: Mapping[str, str]
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CreatePod:
    manifest: Json


@dataclass(frozen=True, slots=True)
class AdoptPod:
    """Give a pod without an owner this one, and put labels of ours back that were changed (None: take away)."""

    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str | None]
    owner: Json | None = None
    # Its resourceVersion when it had no owner: whoever gave it one meanwhile keeps it.
    version: str = ""


@dataclass(frozen=True, slots=True)
class DeletePod:
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Greet:
    """Prove the executor's identity and runtime, and open its session.

    `first`: no user code can have run in this pod. A pod that the fleet has claimed is not: the fleet has opened its session.
    """

    pod_uid: str
    address: str
    isolation: Isolation
    first: bool
    # Seconds from now; None: without end.
    lease: float | None
    idle_timeout: float | None


@dataclass(frozen=True, slots=True)
class AskServices:
    """Whom to ask for the services that the pod was made with, again and again, for as long as plans say so."""

    # Of the CodeSandbox.
    namespace: str
    name: str
    pod_uid: str
    address: str


Action = (
    EnsurePolicy | RemovePolicy | EnsureKeys | CreateVolume | AdjustVolume | CreatePod | AdoptPod | DeletePod | Greet
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One round. `again` is when to look once more if nothing happens before: seconds from now, None for never."""

    status: SandboxStatus
    actions: tuple[Action, ...] = ()
    # The status has to be there before the actions: what they destroy is the evidence for it.
    status_first: bool = False
    again: float | None = None
    # None: nobody is asked.
    ask: AskServices | None = None
