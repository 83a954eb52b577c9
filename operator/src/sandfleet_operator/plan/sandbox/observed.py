"""What the operator has observed of one sandbox, as values. Times are seconds since the epoch."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sandfleet_operator.api.conditions import Reason
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kept import once
from sandfleet_operator.api.kinds.meta import meta_of
from sandfleet_operator.api.kinds.sandbox import CodeSandbox, ServiceStatus
from sandfleet_operator.api.kinds.template import Contract, Egress, SandboxTemplate, TemplateSpec
from sandfleet_operator.api.table import as_type, moment
from sandfleet_operator.api.values import Hold
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.podspec import CONTAINER
from sandfleet_operator.plan.sandbox.binding import Binding, binding_of

# Reasons of the condition DisruptionTarget, and of a pod's status, which mean that the node is gone.
NODE_GONE = {"DeletionByTaintManager", "DeletionByPodGC", "NodeLost"}
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
# Reason of the condition PodScheduled while scheduling gates are there.
GATED = "SchedulingGated"
# Why a container waits while its image is pulled, and before: without and with init containers.
CREATING = {"ContainerCreating", "PodInitializing"}


@dataclass(frozen=True, slots=True)
class Ended:
    """How the executor's container ended. Without a code it never ran, and the message says why."""

    code: int | None
    # The kubelet's reason: OOMKilled, Error, Completed, …
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    name: str
    uid: str
    # Its resourceVersion.
    version: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    # UID of its CodeSandbox, from the owner references.
    owner: str = ""
    created: float = 0.0
    deleting: bool = False
    node: str = ""
    # Name of its RuntimeClass; empty: the nodes' own.
    runtime_class: str = ""
    address: str = ""
    # The scheduler's message while it finds no node, or may not look for one.
    unschedulable: str = ""
    # Why its start stands.
    hold: Hold = Hold.NONE
    # The kubelet's reason and message while the container does not run.
    waiting: str = ""
    waiting_message: str = ""
    # The kubelet has seen the executor's port open.
    ready: bool = False
    image_digest: str = ""
    workspace_claim: str = ""
    # Why Kubernetes or an administrator ends the pod: Evicted, DeletionByTaintManager, …
    disruption: str = ""
    disruption_message: str = ""
    # Its container has ended for good: restartPolicy is Never.
    ended: Ended | None = None
    # scheduled, started, ready: when it came to each of them, for traces.
    marks: tuple[tuple[str, float], ...] = ()

    @property
    def contract(self) -> str:
        """As it was made."""
        return self.labels.get(names.CONTRACT, Contract.AUTONOMOUS.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """The volume claim of the workspace."""

    name: str
    uid: str
    phase: str = ""
    created: float = 0.0
    deleting: bool = False
    owner: str = ""
    # UID of the warm pod that it was made for, until a CodeSandbox takes it over.
    pod_owner: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    # The operator's annotation: whether it is deleted with its CodeSandbox.
    retention: str = ""
    # Its resourceVersion, and its owner references as they stand there.
    version: str = ""
    owners: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    name: str
    ready: bool = True
    # When it stopped being ready.
    silent_since: float = 0.0
    out_of_service: bool = False
    user_namespaces: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Contact:
    """The outcome of the last contact with the executor of one pod."""

    pod_uid: str
    at: float
    # Why it failed; None after a success.
    reason: Reason | None = None
    message: str = ""
    runtime: str = ""
    # Which modules of the template the executor could not load ahead, and why; empty where there are none.
    not_preloaded: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """The API server's refusal of what the sandbox needs."""

    reason: Reason
    message: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What the executor of one pod has reported of its services, or why it does not answer."""

    pod_uid: str
    services: tuple[ServiceStatus, ...] = ()
    # Empty if it answers.
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    sandbox: CodeSandbox
    template: SandboxTemplate | None = None
    # Why the template cannot be read.
    template_problem: str = ""
    # The manifest that keeps the template's spec as it is now, and whether it is in place.
    revision: Mapping[str, Any] | None = None
    revision_there: bool = False
    # The spec that the status names, where the template is another one by now, or gone.
    kept: TemplateSpec | None = None
    # Names of the SandboxQueues of the namespace.
    queues: frozenset[str] = frozenset()
    # Why its pool cannot give it a pod, such as a missing SandboxPool.
    pool_problem: str = ""
    pod: Pod | None = None
    # The API server has confirmed that the pod of the status is gone.
    pod_gone: bool = False
    volume: Volume | None = None
    # Other users of an existing workspace that is not yet recorded, read from the API server past all caches.
    workspace_users: tuple[str, ...] = ()
    # Name → spec of Sandfleet's NetworkPolicies in the namespace.
    policies: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # The public token keys are published in the namespace.
    keys: bool = False
    # Why no volume can be created, such as a missing StorageClass.
    storage_problem: str = ""
    # The pod's node.
    node: Node | None = None
    # Every node's runtime can give pods user namespaces.
    user_namespaces: bool = False
    contact: Contact | None = None
    # None: it has not been asked yet.
    heard: Heard | None = None
    trouble: Trouble | None = None
    # The nodes can start another pod; only asked for a sandbox that has none.
    has_turn: bool = True

    @property
    def lifetime(self) -> float | None:
        """Seconds from the creation of the sandbox; None: no end."""
        spec = self.sandbox.spec
        template = self.made_of or spec.inline
        return spec.lifetime if spec.lifetime is not None or template is None else template.max_lifetime

    @property
    def made_of(self) -> TemplateSpec | None:
        """What the sandbox's pods are made from; None for an inline template, or without any.

        A sandbox keeps the spec that it first ran with. Its network is the template's of now, and closed without one.
        """
        now = self.template.spec if self.template else None
        if self.kept is None:
            return now
        if now is None:
            return replace(self.kept, egress=Egress())
        return replace(self.kept, egress=now.egress, network_closure=now.network_closure)

    @property
    def binding(self) -> Binding | None:
        """The claim that the fleet has bound to this object."""
        return binding_of(self.sandbox, (self.pod,) if self.pod else ())

    @property
    def claimed_pod(self) -> tuple[str, str] | None:
        """Name and uid of the warm pod that the fleet has bound to this object."""
        found = self.binding
        return (found.pod, found.pod_uid) if found else None


def has_no_volume(seen: Observed) -> bool:
    """Whether the workspace is a directory of the pod. A recorded volume stays in use even if the template changes."""
    template = seen.made_of or seen.sandbox.spec.inline
    return template is not None and template.workspace.ephemeral and not seen.sandbox.status.workspace_claim


@dataclass(frozen=True, slots=True)
class Owner:
    """An owner reference."""

    kind: str
    name: str
    uid: str


# Reading the API server's JSON. Every function raises FleetError for a value of the wrong type: the API server checks
# the objects that it knows, but a reader that trusts it would end with one object that it has not checked.


@once
def pod_of(obj: Mapping[str, Any]) -> Pod:
    """Raises FleetError."""
    meta, spec, status = meta_of(obj), _part(obj, "spec"), _part(obj, "status")
    container = _first(_items(status, "containerStatuses"), "name", CONTAINER)
    conditions = _items(status, "conditions")
    state = _part(container, "state")
    waiting = _part(state, "waiting")
    disruption, why = _disruption(status, conditions)
    scheduled = _first(conditions, "type", "PodScheduled")
    return Pod(
        name=meta.name,
        uid=meta.uid,
        version=meta.resource_version,
        labels=meta.labels,
        annotations=meta.annotations,
        owner=owner_of(obj),
        created=meta.created,
        deleting=meta.deleting,
        node=_word(spec, "nodeName"),
        runtime_class=_word(spec, "runtimeClassName"),
        address=_word(status, "podIP"),
        unschedulable=_unschedulable(spec, scheduled),
        hold=_hold(scheduled, conditions, _word(waiting, "reason")),
        waiting=_word(waiting, "reason"),
        waiting_message=_word(waiting, "message"),
        ready=_first(conditions, "type", "Ready").get("status") == "True",
        image_digest=_word(container, "imageID"),
        workspace_claim=_workspace_claim(spec),
        disruption=disruption,
        disruption_message=why,
        ended=_ended(status, _part(state, "terminated")),
        marks=_marks(conditions, _part(state, "running")),
    )


@once
def volume_of(obj: Mapping[str, Any]) -> Volume:
    """Raises FleetError."""
    meta = meta_of(obj)
    return Volume(
        name=meta.name,
        uid=meta.uid,
        phase=_word(_part(obj, "status"), "phase"),
        created=meta.created,
        deleting=meta.deleting,
        owner=owner_of(obj),
        pod_owner=owner_of(obj, "Pod"),
        labels=meta.labels,
        retention=meta.annotations.get(names.RETENTION, ""),
        version=meta.resource_version,
        owners=tuple(_items(_part(obj, "metadata"), "ownerReferences")),
    )


@once
def node_of(obj: Mapping[str, Any]) -> Node:
    """Raises FleetError."""
    spec, status = _part(obj, "spec"), _part(obj, "status")
    ready = _first(_items(status, "conditions"), "type", "Ready")
    since = ready.get("lastTransitionTime")
    handlers = _items(status, "runtimeHandlers")
    return Node(
        name=meta_of(obj).name,
        ready=ready.get("status") == "True",
        silent_since=0.0 if since is None else moment(since, "status.conditions.lastTransitionTime"),
        out_of_service=any(taint.get("key") == OUT_OF_SERVICE for taint in _items(spec, "taints")),
        user_namespaces=frozenset(
            _word(one, "name") for one in handlers if _part(one, "features").get("userNamespaces") is True
        ),
    )


def owners_of(obj: Mapping[str, Any]) -> list[Owner]:
    """Raises FleetError."""
    owners = _items(_part(obj, "metadata"), "ownerReferences")
    return [Owner(_word(one, "kind"), _word(one, "name"), _word(one, "uid")) for one in owners]


def owner_of(obj: Mapping[str, Any], kind: str = "CodeSandbox") -> str:
    """UID of the owner of this kind; empty if there is none. Raises FleetError."""
    return next((owner.uid for owner in owners_of(obj) if owner.kind == kind), "")


def _part(obj: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = obj.get(name)
    return {} if value is None else as_type(value, dict, name)


def _items(obj: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    value = obj.get(name)
    return () if value is None else [as_type(one, dict, name) for one in as_type(value, list, name)]


def _word(obj: Mapping[str, Any], name: str) -> str:
    value = obj.get(name)
    return "" if value is None else as_type(value, str, name)


def _first(items: Sequence[Mapping[str, Any]], name: str, value: str) -> Mapping[str, Any]:
    return next((one for one in items if one.get(name) == value), {})


def _marks(conditions: Sequence[Mapping[str, Any]], running: Mapping[str, Any]) -> tuple[tuple[str, float], ...]:
    """What a pod came to and when, in whole seconds; without what is not there, and without what is no time."""
    scheduled, ready = (_first(conditions, "type", name) for name in ("PodScheduled", "Ready"))
    told = {
        "scheduled": scheduled.get("lastTransitionTime") if scheduled.get("status") == "True" else None,
        "started": running.get("startedAt"),
        "ready": ready.get("lastTransitionTime") if ready.get("status") == "True" else None,
    }
    found = []
    for name, said in told.items():
        # Only for traces: whatever stands there, the pod can be read.
        with contextlib.suppress(FleetError):
            found.append((name, moment(said, f"status.{name}")))
    return tuple(found)


def _unschedulable(spec: Mapping[str, Any], scheduled: Mapping[str, Any]) -> str:
    if scheduled.get("status") != "False":
        return ""
    gates = ", ".join(_word(gate, "name") for gate in _items(spec, "schedulingGates"))
    if gates and scheduled.get("reason") == GATED:
        return f"scheduling gates that others have to remove: {gates[:300]}"
    return _word(scheduled, "message") or _word(scheduled, "reason") or "no node fits"


def _hold(scheduled: Mapping[str, Any], conditions: Sequence[Mapping[str, Any]], waiting: str) -> Hold:
    if scheduled.get("status") == "False":
        return Hold.SCHEDULING_GATED if scheduled.get("reason") == GATED else Hold.UNSCHEDULABLE
    # Volumes and network are there by then.
    prepared = _first(conditions, "type", "PodReadyToStartContainers").get("status") == "True"
    return Hold.IMAGE_PULLING if prepared and waiting in CREATING else Hold.NONE


def _disruption(status: Mapping[str, Any], conditions: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    target = _first(conditions, "type", "DisruptionTarget")
    told = target if target.get("status") == "True" else status
    return _word(told, "reason"), _word(told, "message")


def _workspace_claim(spec: Mapping[str, Any]) -> str:
    found = _first(_items(spec, "volumes"), "name", "workspace")
    return _word(_part(found, "persistentVolumeClaim"), "claimName")


def _ended(status: Mapping[str, Any], over: Mapping[str, Any]) -> Ended | None:
    if over:
        code = over.get("exitCode")
        return Ended(
            None if code is None else as_type(code, int, "exitCode"),
            _word(over, "reason"),
            _word(over, "message")[:500],
        )
    if _word(status, "phase") in {"Failed", "Succeeded"}:
        return Ended(None, _word(status, "reason"), _word(status, "message")[:500])
    return None


__all__ = [
    "NODE_GONE",
    "Contact",
    "Ended",
    "Heard",
    "Node",
    "Observed",
    "Owner",
    "Pod",
    "Trouble",
    "Volume",
    "node_of",
    "owner_of",
    "owners_of",
    "pod_of",
    "volume_of",
]
