"""A claim as the cluster keeps it: on the pod that it bound, and in the CodeSandbox that is written behind it. Times are seconds since the epoch.

Binding is one JSON patch, whose first operations are tests: the API server gives a pod to one caller only, however many
fleets there are. Whatever is needed to go on after a crash is in the record that the patch leaves on the pod.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from sandfleet_operator.api.quantities import bytes_text
from sandfleet_operator.api.resources import API_VERSION, Contract, Meta, Retention
from sandfleet_operator.api.validate import trace_parent
from sandfleet_operator.api.values import MIB, Claim, Limits, RequestKey
from sandfleet_operator.plan import names
from sandfleet_operator.plan.effective import LIMIT_FIELDS, MIN_USER_MEMORY
from sandfleet_operator.plan.podspec import PodState

Json = dict[str, Any]
NAME_DIGITS = 20
MAX_RECORD = 192 << 10
# The least that the schema of a CodeSandbox takes. A claim may ask for less, and its executor keeps to that.
LEAST = {
    "tmp": MIB,
    "output": MIB,
    "processes": 8,
    "executions": 1,
    "maxTimeoutSeconds": 1,
    "defaultTimeoutSeconds": 1,
    "openFiles": 64,
    "disk": MIB,
}
SIZES = {"tmp", "output", "disk"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What a pod says of its claim. `lease` is infinite for a sandbox that ends with its CodeSandbox only."""

    # Name of the CodeSandbox.
    object: str
    request: str
    holder: str
    # The number of the fleet that bound it; a higher one took over later.
    fencing: int
    at: float
    lease: float
    idle: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    envs: Mapping[str, str] = field(default_factory=dict)
    contract: str = Contract.AUTONOMOUS.value
    # Whether what the template allows may be reached.
    egress: bool = True
    # The workspace stays after the release.
    keep: bool = False
    # Name of the volume claim of an earlier session; empty: a new workspace.
    workspace: str = ""
    limits: Limits = field(default_factory=Limits)
    # Of the CodeSandbox where it was there before the claim; empty: the fleet makes it.
    uid: str = ""
    traceparent: str = ""
    # The number of the fleet that took it over before it was written down; 0: it is still that of who bound it.
    keeper: int = 0

    @property
    def number(self) -> int:
        """Of the last fleet that had it."""
        return max(self.fencing, self.keeper)

    @property
    def key(self) -> RequestKey:
        return RequestKey(self.holder, self.request)


def object_name(key: RequestKey) -> str:
    """Of the CodeSandbox: the same request has the same name, so that of two bindings of it one is refused."""
    said = json.dumps([key.holder, key.request_id])
    return f"claim-{hashlib.sha256(said.encode()).hexdigest()[:NAME_DIGITS]}"


def record_of(claim: Claim, fencing: int, now: float) -> Record:
    return Record(
        object=claim.name or object_name(claim.key),
        request=claim.key.request_id,
        holder=claim.key.holder,
        fencing=fencing,
        at=now,
        lease=claim.lease,
        idle=claim.idle_timeout,
        labels=dict(claim.labels),
        envs=dict(claim.envs),
        contract=claim.contract,
        egress=claim.egress,
        keep=claim.keep_workspace,
        workspace=volume_of_workspace(claim.workspace_id),
        limits=claim.limits,
        uid=claim.object_uid,
        traceparent=claim.traceparent,
    )


def claim_of(record: Record, pool: str) -> Claim:
    """The claim again, after a restart. `pool` is NAMESPACE/NAME."""
    return Claim(
        key=record.key,
        pool=pool,
        labels=record.labels,
        envs=record.envs,
        lease=record.lease,
        idle_timeout=record.idle,
        workspace_id=workspace_key(pool.partition("/")[0], record.workspace) if record.workspace else "",
        keep_workspace=record.keep,
        limits=record.limits,
        traceparent=record.traceparent,
        name=record.object,
        object_uid=record.uid,
        contract=record.contract,
        egress=record.egress,
    )


def workspace_key(namespace: str, claim: str) -> str:
    """What the engine calls the workspace on this volume claim."""
    return f"{namespace}/{claim}"


def volume_of_workspace(key: str) -> str:
    """Name of the volume claim; empty for a new workspace."""
    return key.partition("/")[2]


def record_text(record: Record) -> str:
    """The same record gives the same text, also after an update: what an older fleet did not know is said only where it is set."""
    said = asdict(record)
    if not record.workspace:
        del said["workspace"]
    if record.limits == Limits():
        del said["limits"]
    said["lease"] = None if math.isinf(record.lease) else record.lease
    if not record.keeper:
        del said["keeper"]
    return json.dumps(said, sort_keys=True, separators=(",", ":"))


def read_record(text: str) -> Record | None:
    """None for what is no record: nobody else than the fleet writes them, and people may break them."""
    try:
        said = json.loads(text) if len(text) <= MAX_RECORD else None
        if not isinstance(said, dict):
            return None
        known = {one.name for one in fields(Record)}
        given = {name: value for name, value in said.items() if name in known}
        given["lease"] = math.inf if given.get("lease") is None else float(given["lease"])
        given["limits"] = Limits(**given.get("limits", {}))
        return Record(**given)
    except (ValueError, TypeError):
        return None


def claim_patch(pod_uid: str, record: Record, egress_class: str, copied: Mapping[str, str]) -> list[Json]:
    """Binds a warm pod. `egress_class` is the label's value where the template allows anything, else empty."""
    labels = {names.SANDBOX: record.object, **copied}
    if egress_class and record.egress:
        labels[names.EGRESS_CLASS] = egress_class
    annotations = {names.CLAIM: record_text(record)}
    if trace := trace_parent(record.traceparent):
        annotations[names.TRACEPARENT] = trace
    return [
        {"op": "test", "path": _label(names.STATE), "value": PodState.WARM.value},
        {"op": "test", "path": "/metadata/uid", "value": pod_uid},
        {"op": "replace", "path": _label(names.STATE), "value": PodState.CLAIMED.value},
        *({"op": "add", "path": _label(key), "value": value} for key, value in labels.items()),
        *({"op": "add", "path": _annotation(key), "value": value} for key, value in annotations.items()),
        # Neither its pool nor its template takes it away from now on.
        {"op": "replace", "path": "/metadata/ownerReferences", "value": []},
        # Who has set which field matters to nobody here, and keeping those books is half of what the API server does in a patch.
        {"op": "add", "path": "/metadata/managedFields", "value": [{}]},
    ]


def retire_patch(pod_uid: str, record: Record | None = None) -> list[Json]:
    """Takes a pod out of everybody's reach, by the same compare-and-swap as a claim: a warm one, or one that still is of this very claim."""
    still = {"op": "test", "path": _label(names.STATE), "value": PodState.WARM.value}
    if record is not None:
        still = {"op": "test", "path": _annotation(names.CLAIM), "value": record_text(record)}
    return [
        still,
        {"op": "test", "path": "/metadata/uid", "value": pod_uid},
        {"op": "replace", "path": _label(names.STATE), "value": PodState.RETIRING.value},
    ]


def keep_patch(pod_uid: str, record: Record, kept: Record) -> list[Json]:
    """Makes the claim of a fleet that is no more that of its successor: what the first one had sent to undo it is refused from now on."""
    return [
        {"op": "test", "path": _label(names.STATE), "value": PodState.CLAIMED.value},
        {"op": "test", "path": "/metadata/uid", "value": pod_uid},
        {"op": "test", "path": _annotation(names.CLAIM), "value": record_text(record)},
        {"op": "replace", "path": _annotation(names.CLAIM), "value": record_text(kept)},
    ]


def owner_patch(pod_uid: str, record: Record, owner: Meta) -> list[Json]:
    """Gives a claimed pod to its CodeSandbox. Only while the claim is the one that was made: a late write changes nothing."""
    return [
        {"op": "test", "path": "/metadata/uid", "value": pod_uid},
        {"op": "test", "path": _annotation(names.CLAIM), "value": record_text(record)},
        {"op": "add", "path": "/metadata/ownerReferences", "value": [names.owned_by("CodeSandbox", owner)]},
    ]


def bound_annotations(pod: str, pod_uid: str, record: Record) -> dict[str, str]:
    """Of the CodeSandbox of a claim."""
    annotations = {names.BOUND_POD: f"{pod}/{pod_uid}", names.CLAIM: record_text(record)}
    if trace := trace_parent(record.traceparent):
        annotations[names.TRACEPARENT] = trace
    return annotations


def code_sandbox(
    namespace: str, pod: str, pod_uid: str, record: Record, *, template: str, pool: str, memory_reserve: int
) -> Json:
    """The CodeSandbox of a claim, which is written behind the reply. `pool` empty: a cold start without one.

    `memory_reserve` is what the executor needs for itself, in bytes.
    """
    spec: Json = {"template": template, "contract": record.contract}
    if pool:
        spec["pool"] = pool
    if record.envs:
        spec["env"] = [{"name": name, "value": value} for name, value in sorted(record.envs.items())]
    if not record.egress:
        spec["egress"] = {}
    if workspace := _workspace(record):
        spec["workspace"] = workspace
    if limits := _limits(record.limits):
        spec["limits"] = limits
    if record.limits.memory_bytes:
        # Memory is said once, of the container: what the executor leaves of it is the user's.
        memory = memory_reserve + max(record.limits.memory_bytes, MIN_USER_MEMORY)
        spec["resources"] = {"memory": bytes_text(memory)}
    if record.idle is not None:
        spec["idleTimeoutSeconds"] = math.ceil(record.idle)
    labels = {**record.labels, names.MANAGED_BY: names.PRODUCT}
    if pool:
        labels[names.POOL] = names.bounded(pool)
    metadata = {
        "namespace": namespace,
        "name": record.object,
        "labels": labels,
        "annotations": bound_annotations(pod, pod_uid, record),
    }
    return {"apiVersion": API_VERSION, "kind": "CodeSandbox", "metadata": metadata, "spec": spec}


def _workspace(record: Record) -> Json:
    if not record.workspace:
        return {"retention": Retention.RETAIN.value} if record.keep else {}
    return {"claimName": record.workspace, "retention": retention(record).value}


def retention(record: Record) -> Retention:
    return Retention.RETAIN if record.keep else Retention.DELETE


def _limits(limits: Limits) -> Json:
    """In the schema's words and whole numbers, rounded up; the default timeout follows the longest, as in the executor."""
    said = {words: getattr(limits, name) for name, words in LIMIT_FIELDS.items()}
    longest, default = limits.max_timeout, limits.default_timeout
    if longest and default:
        said["defaultTimeoutSeconds"] = min(longest, default)
    whole = {words: max(LEAST[words], math.ceil(value)) for words, value in said.items() if value}
    return {words: bytes_text(value) if words in SIZES else value for words, value in whole.items()}


def _label(key: str) -> str:
    return f"/metadata/labels/{_escaped(key)}"


def _annotation(key: str) -> str:
    return f"/metadata/annotations/{_escaped(key)}"


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
