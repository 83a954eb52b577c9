"""What a plan asks for, as data. Actions are applied in order; a failure ends the round, and the next starts over."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandfleet_operator.api.kinds.sandbox import SandboxStatus
from sandfleet_operator.api.values import Isolation

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EnsurePolicy:
    """Create the NetworkPolicy, or change it to this manifest."""

    manifest: Json


@dataclass(frozen=True, slots=True)
class RemovePolicy:
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class EnsureKeys:
    """Publish the public token keys in this namespace."""

    namespace: str


@dataclass(frozen=True, slots=True)
class EnsureRevision:
    """Keep the spec of the template."""

    manifest: Json


@dataclass(frozen=True, slots=True)
class CreateVolume:
    manifest: Json


@dataclass(frozen=True, slots=True)
class AdjustVolume:
    """Replace the volume claim's owner references, and add these annotations and labels.

    Nothing is done to a volume claim that has got another owner since.
    """

    namespace: str
    name: str
    uid: str
    owners: tuple[Json, ...]
    # The owner references and resourceVersion that the decision was based on.
    before: tuple[Json, ...]
    version: str
    annotations: Mapping[str, str]
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DeleteVolume:
    """The session is in a snapshot."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class CreatePod:
    manifest: Json


@dataclass(frozen=True, slots=True)
class AdoptPod:
    """Give a pod its owner, and restore labels of ours that were changed (None: remove the label)."""

    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str | None]
    owner: Json | None = None
    # The pod's resourceVersion when it had no owner. If the pod has got an owner since, that owner keeps it.
    version: str = ""


@dataclass(frozen=True, slots=True)
class DeletePod:
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Greet:
    """Verify the executor's identity and runtime, and open its session.

    `first`: no user code can have run in this pod. It is False for a pod that the fleet has claimed, whose session the
    fleet has opened.
    """

    pod_uid: str
    address: str
    isolation: Isolation
    first: bool
    # Seconds from now; None: without end.
    lease: float | None
    idle_timeout: float | None
    # The pod's.
    contract: str = "autonomous"
    node: str = ""
    # Secrets are put into its requests: executors/contact.py.
    trusts: bool = False


@dataclass(frozen=True, slots=True)
class AwaitTurn:
    """Come back when the nodes can start another pod."""


@dataclass(frozen=True, slots=True)
class AskServices:
    """The executor to ask for the state of its services, repeatedly, for as long as plans name it."""

    # Of the CodeSandbox.
    namespace: str
    name: str
    pod_uid: str
    address: str
    # The pod's.
    contract: str = "autonomous"
    node: str = ""


SandboxAction = (
    EnsurePolicy
    | RemovePolicy
    | EnsureKeys
    | EnsureRevision
    | CreateVolume
    | AdjustVolume
    | DeleteVolume
    | CreatePod
    | AwaitTurn
    | AdoptPod
    | DeletePod
    | Greet
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The result of one round.

    `requeue_after`: seconds until the next round, unless an event comes first; None: only an event starts it.
    """

    status: SandboxStatus
    actions: tuple[SandboxAction, ...] = ()
    # Write the status before the actions, because they destroy the evidence for it.
    status_first: bool = False
    requeue_after: float | None = None
    # None: no executor is asked.
    ask: AskServices | None = None
