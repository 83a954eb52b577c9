"""What the operator has observed of one sandbox, as values. Times are seconds since the epoch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from sandfleet_operator.api.conditions import ConditionType, Reason
from sandfleet_operator.api.kinds.meta import meta_of
from sandfleet_operator.api.kinds.sandbox import CodeSandbox, ServiceStatus
from sandfleet_operator.api.kinds.template import Egress, SandboxTemplate, TemplateSpec
from sandfleet_operator.api.table import at, decode, moment
from sandfleet_operator.plan.claims.record import read_record
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.podspec import CONTAINER

# Reasons of the condition DisruptionTarget, and of a pod's status, which mean that the node is gone.
NODE_GONE = {"DeletionByTaintManager", "DeletionByPodGC", "NodeLost"}
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


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
    address: str = ""
    # The scheduler's message while it finds no node.
    unschedulable: str = ""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """The volume claim of the workspace."""

    name: str
    uid: str
    phase: str = ""
    deleting: bool = False
    owner: str = ""
    # UID of the warm pod that it was made for, until a CodeSandbox takes it over.
    pod_owner: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    # The operator's annotation: whether it is deleted with its CodeSandbox.
    retention: str = ""


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

    @property
    def lifetime(self) -> float | None:
        """Seconds from the creation of the sandbox; None: no end."""
        spec = self.sandbox.spec
        template = self.made_of or spec.inline
        return spec.lifetime if spec.lifetime is not None or template is None else template.max_lifetime

    @property
    def made_of(self) -> TemplateSpec | None:
        """What the sandbox's pods are made from; None for an inline template, or without any.

        A sandbox keeps the spec that it first ran with. Its egress is the template's of now, and none without one.
        """
        now = self.template.spec if self.template else None
        if self.kept is None:
            return now
        return replace(self.kept, egress=now.egress if now else Egress())

    @property
    def claimed_pod(self) -> tuple[str, str] | None:
        """Name and uid of the warm pod that the fleet has bound to this object."""
        return bound_pod(self.sandbox)


def bound_pod(sandbox: CodeSandbox) -> tuple[str, str] | None:
    """Name and uid of the warm pod that the fleet has bound to this object."""
    name, slash, uid = sandbox.meta.annotations.get(names.BOUND_POD, "").partition("/")
    return (name, uid) if name and slash and uid else None


def is_claims_own(sandbox: CodeSandbox) -> bool:
    """Whether the fleet created this object for a claim. An object that a user created existed before its claim."""
    record = read_record(sandbox.meta.annotations.get(names.CLAIM, ""))
    return record is not None and not record.uid


def has_no_volume(seen: Observed) -> bool:
    """Whether the workspace is a directory of the pod. A recorded volume stays in use even if the template changes."""
    template = seen.made_of or seen.sandbox.spec.inline
    return template is not None and template.workspace.ephemeral and not seen.sandbox.status.workspace_claim


def is_unrecorded(sandbox: CodeSandbox) -> bool:
    """Whether the status records no pod yet: a bound warm pod, if any, is still to be taken over."""
    status = sandbox.status
    suspended = any(one.type == ConditionType.SUSPENDED.value and one.status == "True" for one in status.conditions)
    return not (status.pod or status.pod_uid or status.restarts or status.workspace_claim or suspended)


def current_uid(sandbox: CodeSandbox) -> str:
    """UID of the current pod: the recorded one, else the warm pod bound by the claim."""
    bound = bound_pod(sandbox)
    return bound[1] if bound and is_unrecorded(sandbox) else sandbox.status.pod_uid


def pod_names(sandbox: CodeSandbox) -> tuple[str, ...]:
    """Names of the pods that may exist: the bound warm pod and the pod under the sandbox's own name."""
    bound = bound_pod(sandbox)
    own = sandbox.meta.name
    return (own,) if bound is None or bound[0] == own else (bound[0], own)


@dataclass(frozen=True, slots=True)
class _Fields:
    """Of pods and volume claims."""

    node: Annotated[str, at("spec.nodeName")] = ""
    address: Annotated[str, at("status.podIP")] = ""
    phase: Annotated[str, at("status.phase")] = ""


def pod_of(obj: Mapping[str, Any]) -> Pod:
    """Reads the API server's JSON. Raises FleetError for a field of the wrong type."""
    meta, own = meta_of(obj), decode(_Fields, obj, "")
    container = _container(obj)
    state: Mapping[str, Any] = container.get("state") or {}
    waiting = state.get("waiting") or {}
    disruption, why = _disruption(obj)
    return Pod(
        name=meta.name,
        uid=meta.uid,
        version=meta.resource_version,
        labels=meta.labels,
        annotations=meta.annotations,
        owner=owner_of(obj),
        created=meta.created,
        deleting=meta.deleting,
        node=own.node,
        address=own.address,
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
    meta = meta_of(obj)
    return Volume(
        name=meta.name,
        uid=meta.uid,
        phase=decode(_Fields, obj, "").phase,
        deleting=meta.deleting,
        owner=owner_of(obj),
        pod_owner=owner_of(obj, "Pod"),
        labels=meta.labels,
        retention=meta.annotations.get(names.RETENTION, ""),
    )


def node_of(obj: Mapping[str, Any]) -> Node:
    ready = condition(obj, "Ready")
    since = ready.get("lastTransitionTime")
    taints = obj.get("spec", {}).get("taints") or ()
    handlers = obj.get("status", {}).get("runtimeHandlers") or ()
    return Node(
        name=meta_of(obj).name,
        ready=ready.get("status") == "True",
        silent_since=0.0 if since is None else moment(since, "status.conditions.lastTransitionTime"),
        out_of_service=any(taint.get("key") == OUT_OF_SERVICE for taint in taints),
        user_namespaces=frozenset(
            one.get("name", "") for one in handlers if (one.get("features") or {}).get("userNamespaces")
        ),
    )


def owner_of(obj: Mapping[str, Any], kind: str = "CodeSandbox") -> str:
    """UID of the owner of this kind; empty if there is none."""
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
