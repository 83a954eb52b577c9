"""What the operator has seen of one sandbox, as values. Times are seconds since the epoch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sandfleet_operator.api.conditions import ConditionType, Reason
from sandfleet_operator.api.fields import Fields
from sandfleet_operator.api.resources import CodeSandbox, SandboxTemplate, ServiceStatus
from sandfleet_operator.plan import names
from sandfleet_operator.plan.claims import read_record
from sandfleet_operator.plan.podspec import CONTAINER

# Reasons of the condition DisruptionTarget, and of a pod's status, that say who ended it.
NODE_GONE = {"DeletionByTaintManager", "DeletionByPodGC", "NodeLost"}
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


@dataclass(frozen=True, slots=True)
class Ended:
    """How the executor's container ended; without a code it never ran, and the message says why."""

    code: int | None
    # The kubelet's word: OOMKilled, Error, Completed, …
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
    # The uid of its CodeSandbox in its owner references.
    owner: str = ""
    created: float = 0.0
    deleting: bool = False
    node: str = ""
    address: str = ""
    # The scheduler's message while it finds no node.
    unschedulable: str = ""
    # The kubelet's word and message while the container does not run.
    waiting: str = ""
    waiting_message: str = ""
    # The kubelet has seen the executor's port open.
    ready: bool = False
    image_digest: str = ""
    workspace_claim: str = ""
    # Why somebody else than its sandbox's owner ends it: Evicted, DeletionByTaintManager, …
    disruption: str = ""
    disruption_message: str = ""
    # Its container is over, for good: restartPolicy is Never.
    ended: Ended | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """The claim of the workspace."""

    name: str
    uid: str
    phase: str = ""
    deleting: bool = False
    owner: str = ""
    # The uid of the warm pod that it was made for, until a CodeSandbox has it.
    pod_owner: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    # Whether it goes with its CodeSandbox, as the annotation of the operator says.
    retention: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    name: str
    ready: bool = True
    # Since when it is not.
    silent_since: float = 0.0
    out_of_service: bool = False
    user_namespaces: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Contact:
    """How the last contact with the executor of one pod went."""

    pod_uid: str
    at: float
    # Of a failure; None after a success.
    reason: Reason | None = None
    message: str = ""
    runtime: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """The API server's refusal of what the sandbox needs."""

    reason: Reason
    message: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What the executor of one pod has said of services, or why it does not answer."""

    pod_uid: str
    services: tuple[ServiceStatus, ...] = ()
    # Empty where it answers.
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    sandbox: CodeSandbox
    template: SandboxTemplate | None = None
    # Why the template cannot be read.
    template_problem: str = ""
    # Why no pool can give it a pod, such as one that is not there.
    pool_problem: str = ""
    pod: Pod | None = None
    # The pod that the status names is certainly gone: the API server was asked.
    pod_gone: bool = False
    volume: Volume | None = None
    # Of a workspace that was there before, and is not on record: who else uses it, by the API server's own word.
    workspace_users: tuple[str, ...] = ()
    # Name → spec of the NetworkPolicies of the namespace that are ours.
    policies: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # The public keys are in the namespace.
    keys: bool = False
    # Why no volume can be made, such as a StorageClass that is not there.
    storage_problem: str = ""
    # Of the pod.
    node: Node | None = None
    # Every node's runtime can give pods user namespaces.
    user_namespaces: bool = False
    contact: Contact | None = None
    # None: it was not asked yet.
    heard: Heard | None = None
    trouble: Trouble | None = None

    @property
    def lifetime(self) -> float | None:
        """Seconds from its creation; None: no end."""
        spec = self.sandbox.spec
        template = self.template.spec if self.template else spec.inline
        return spec.lifetime if spec.lifetime is not None or template is None else template.max_lifetime

    @property
    def claimed_pod(self) -> tuple[str, str] | None:
        """Name and uid of the warm pod that the fleet has bound to this object."""
        return bound_pod(self.sandbox)


def bound_pod(sandbox: CodeSandbox) -> tuple[str, str] | None:
    """Name and uid of the warm pod that the fleet has bound to this object."""
    name, slash, uid = sandbox.meta.annotations.get(names.BOUND_POD, "").partition("/")
    return (name, uid) if name and slash and uid else None


def is_claims_own(sandbox: CodeSandbox) -> bool:
    """Whether the fleet has made this object, for a claim: people's were there before theirs."""
    record = read_record(sandbox.meta.annotations.get(names.CLAIM, ""))
    return record is not None and not record.uid


def has_no_volume(seen: Observed) -> bool:
    """Whether its workspace is a directory of its pod. What has a volume on record keeps it, whatever becomes of its template."""
    template = seen.template.spec if seen.template else seen.sandbox.spec.inline
    return template is not None and template.workspace.ephemeral and not seen.sandbox.status.workspace_claim


def is_unrecorded(sandbox: CodeSandbox) -> bool:
    """Whether nothing was written yet of any pod that it had: the bound one, if any, is still to be taken over."""
    status = sandbox.status
    suspended = any(one.type == ConditionType.SUSPENDED.value and one.status == "True" for one in status.conditions)
    return not (status.pod or status.pod_uid or status.restarts or status.workspace_claim or suspended)


def current_uid(sandbox: CodeSandbox) -> str:
    """Of the pod that it has: the one on record, or the warm one that was bound to it while nothing is on record yet."""
    bound = bound_pod(sandbox)
    return bound[1] if bound and is_unrecorded(sandbox) else sandbox.status.pod_uid


def pod_names(sandbox: CodeSandbox) -> tuple[str, ...]:
    """Of the pods that may be there: the warm one that was bound to it, until it is gone, and its own."""
    bound = bound_pod(sandbox)
    own = sandbox.meta.name
    return (own,) if bound is None or bound[0] == own else (bound[0], own)


def pod_of(obj: Mapping[str, Any]) -> Pod:
    """From the API server's JSON, whose wrong types raise FleetError."""
    fields = Fields.of(obj, "")
    meta, spec, status = fields.inner("metadata"), fields.inner("spec"), fields.inner("status")
    container = _container(obj)
    state: Mapping[str, Any] = container.get("state") or {}
    waiting = state.get("waiting") or {}
    disruption, why = _disruption(obj)
    return Pod(
        name=meta.required_text("name"),
        uid=meta.text("uid"),
        version=meta.text("resourceVersion"),
        labels=meta.mapping("labels"),
        annotations=meta.mapping("annotations"),
        owner=owner_of(obj),
        created=meta.time("creationTimestamp"),
        deleting=meta.has("deletionTimestamp"),
        node=spec.text("nodeName"),
        address=status.text("podIP"),
        unschedulable=_unschedulable(obj),
        waiting=waiting.get("reason", ""),
        waiting_message=waiting.get("message", ""),
        ready=condition(obj, "Ready").get("status") == "True",
        image_digest=container.get("imageID", ""),
        workspace_claim=_workspace_claim(obj),
        disruption=disruption,
        disruption_message=why,
        ended=_ended(obj, state),
    )


def volume_of(obj: Mapping[str, Any]) -> Volume:
    fields = Fields.of(obj, "")
    meta = fields.inner("metadata")
    return Volume(
        name=meta.required_text("name"),
        uid=meta.text("uid"),
        phase=fields.inner("status").text("phase"),
        deleting=meta.has("deletionTimestamp"),
        owner=owner_of(obj),
        pod_owner=owner_of(obj, "Pod"),
        labels=meta.mapping("labels"),
        retention=meta.mapping("annotations").get(names.RETENTION, ""),
    )


def node_of(obj: Mapping[str, Any]) -> Node:
    fields = Fields.of(obj, "")
    ready = condition(obj, "Ready")
    taints = obj.get("spec", {}).get("taints") or ()
    handlers = obj.get("status", {}).get("runtimeHandlers") or ()
    return Node(
        name=fields.inner("metadata").required_text("name"),
        ready=ready.get("status") == "True",
        silent_since=Fields.of(ready, "status.conditions").time("lastTransitionTime"),
        out_of_service=any(taint.get("key") == OUT_OF_SERVICE for taint in taints),
        user_namespaces=frozenset(
            one.get("name", "") for one in handlers if (one.get("features") or {}).get("userNamespaces")
        ),
    )


def owner_of(obj: Mapping[str, Any], kind: str = "CodeSandbox") -> str:
    """The uid of the CodeSandbox, or of what else, that owns it, or empty."""
    owners = obj.get("metadata", {}).get("ownerReferences") or ()
    return next((owner.get("uid", "") for owner in owners if owner.get("kind") == kind), "")


def condition(obj: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    conditions: Sequence[Mapping[str, Any]] = obj.get("status", {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == kind), {})


def _container(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    statuses: Sequence[Mapping[str, Any]] = obj.get("status", {}).get("containerStatuses") or ()
    return next((one for one in statuses if one.get("name") == CONTAINER), {})


def _unschedulable(obj: Mapping[str, Any]) -> str:
    scheduled = condition(obj, "PodScheduled")
    if scheduled.get("status") == "False":
        return str(scheduled.get("message") or scheduled.get("reason") or "no node fits")
    return ""


def _disruption(obj: Mapping[str, Any]) -> tuple[str, str]:
    target, status = condition(obj, "DisruptionTarget"), obj.get("status", {})
    if target.get("status") == "True":
        return str(target.get("reason", "")), str(target.get("message", ""))
    return str(status.get("reason", "")), str(status.get("message", ""))


def _workspace_claim(obj: Mapping[str, Any]) -> str:
    volumes = obj.get("spec", {}).get("volumes") or ()
    found: Mapping[str, Any] = next((one for one in volumes if one.get("name") == "workspace"), {})
    return str((found.get("persistentVolumeClaim") or {}).get("claimName", ""))


def _ended(obj: Mapping[str, Any], state: Mapping[str, Any]) -> Ended | None:
    over = state.get("terminated")
    if over:
        return Ended(over.get("exitCode"), str(over.get("reason", "")), str(over.get("message", ""))[:500])
    status = obj.get("status", {})
    if status.get("phase") in {"Failed", "Succeeded"}:
        return Ended(None, str(status.get("reason", "")), str(status.get("message", ""))[:500])
    return None


__all__ = [
    "NODE_GONE",
    "Contact",
    "Ended",
    "Heard",
    "Node",
    "Observed",
    "Pod",
    "Trouble",
    "Volume",
    "condition",
    "node_of",
    "owner_of",
    "pod_of",
    "volume_of",
]
