"""Which pod a CodeSandbox has, and for which claim: one value, read from what only the control plane writes.

The fleet gives a warm pod to a claim by a patch that leaves the claim's record on the pod. It then writes the binding
into the status of the CodeSandbox, where it outlives the pod. Annotations of a CodeSandbox are its owner's to write.
They count only together with the pod that they name, or against the object itself (`told`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from sandfleet_operator.api.conditions import ConditionType
from sandfleet_operator.api.kinds.sandbox import BindingStatus, CodeSandbox, SandboxStatus
from sandfleet_operator.plan.claims.record import Record, read_record, record_text, short_text
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.podspec import PodState

# Characters of a claim in the status, as the schema says.
MAX_CLAIM = 32768


class BoundPod(Protocol):
    """What of a pod tells whose it is."""

    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def annotations(self) -> Mapping[str, str]: ...
    @property
    def owner(self) -> str:
        """UID of its CodeSandbox."""
        ...


P = TypeVar("P", bound=BoundPod)


@dataclass(frozen=True, slots=True)
class Binding:
    """The warm pod that was claimed for a CodeSandbox. Other pods may have followed it."""

    pod: str
    pod_uid: str
    record: Record

    @property
    def status(self) -> BindingStatus:
        """As it stands in the CodeSandbox's status. A long environment is in its spec alone, and so are its mounts."""
        text = record_text(self.record)
        if len(text) > MAX_CLAIM:
            text = short_text(self.record)
        return BindingStatus(pod=self.pod, pod_uid=self.pod_uid, claim=text)


def binding_of(sandbox: CodeSandbox, pods: Iterable[BoundPod] = ()) -> Binding | None:
    """The binding from the status; before it is written there, from the pod that proves it."""
    found = settled_binding(sandbox)
    return found or next((made for pod in pods if (made := _proved(sandbox, pod)) is not None), None)


def settled_binding(sandbox: CodeSandbox) -> Binding | None:
    """The binding from the status: the fleet has written all that belongs to it."""
    said = sandbox.status.binding
    record = read_record(said.claim) if said else None
    if said is None or record is None or not (said.pod and said.pod_uid and _is_about(record, sandbox)):
        return None
    spec = sandbox.spec
    known = replace(record, envs=record.envs or spec.envs, mounts=record.mounts or spec.mounts)
    return Binding(said.pod, said.pod_uid, known)


def _proved(sandbox: CodeSandbox, pod: BoundPod) -> Binding | None:
    """The binding that the pod proves: it is claimed for this object, and belongs to it or to no other one."""
    claimed = (pod.labels.get(names.STATE), pod.labels.get(names.SANDBOX))
    record = read_record(pod.annotations.get(names.CLAIM, ""))
    if claimed != (PodState.CLAIMED.value, sandbox.meta.name) or record is None or not _is_about(record, sandbox):
        return None
    made = Binding(pod.name, pod.uid, record)
    if pod.owner:
        return made if pod.owner == sandbox.meta.uid else None
    # The pod names a declared object by its UID. An object of the fleet's making has to name the pod.
    return made if record.uid or _is_same(_hint(sandbox), made) else None


def is_its(sandbox: CodeSandbox, pod: BoundPod) -> bool:
    """Whether the pod says by itself that it is this CodeSandbox's, whatever the status of the object says.

    Accounts of a namespace may write the status of its CodeSandboxes. Only the control plane's writes put an object
    into a pod: as its owner, or, before that is written, as the object of the claim that the pod serves.
    """
    return pod.owner == sandbox.meta.uid or _proved(sandbox, pod) is not None


def _is_about(record: Record, sandbox: CodeSandbox) -> bool:
    return record.object == sandbox.meta.name and record.uid in {"", sandbox.meta.uid}


def _hint(sandbox: CodeSandbox) -> Binding | None:
    """What the annotations of the CodeSandbox say, which its owner can write."""
    pod, _, uid = sandbox.meta.annotations.get(names.BOUND_POD, "").partition("/")
    record = read_record(sandbox.meta.annotations.get(names.CLAIM, ""))
    if not (pod and uid) or record is None or not _is_about(record, sandbox):
        return None
    return Binding(pod, uid, record)


def _is_same(hint: Binding | None, made: Binding) -> bool:
    """Whether both are of one claim, whichever fleet has it by now."""
    if hint is None or (hint.pod, hint.pod_uid) != (made.pod, made.pod_uid):
        return False
    return replace(hint.record, keeper=0) == replace(made.record, keeper=0)


def told(sandbox: CodeSandbox) -> Binding | None:
    """What the object itself says of its binding. Its owner can forge it: it gives the object nothing.

    It may be held against the object, and it says where to look for its pod.
    """
    return settled_binding(sandbox) or _hint(sandbox)


def claims_own(sandbox: CodeSandbox) -> Binding | None:
    """What an object tells that the fleet made for a claim; None for an object that a user made."""
    found = told(sandbox)
    return found if found is not None and not found.record.uid else None


def has_begun(status: SandboxStatus) -> bool:
    """Whether the operator has recorded a pod, a workspace or a snapshot of the session, now or earlier."""
    return bool(status.pod or status.pod_uid or status.restarts or status.workspace_claim or status.restores_from)


def is_unrecorded(sandbox: CodeSandbox) -> bool:
    """Whether the operator has recorded no pod yet: a bound warm pod, if any, is still to be taken over."""
    suspended = any(
        one.type == ConditionType.SUSPENDED.value and one.status == "True" for one in sandbox.status.conditions
    )
    return not (has_begun(sandbox.status) or suspended)


def current_uid(sandbox: CodeSandbox, binding: Binding | None) -> str:
    """UID of the current pod: the recorded one, else the bound warm pod."""
    return binding.pod_uid if binding is not None and is_unrecorded(sandbox) else sandbox.status.pod_uid


def pod_names(sandbox: CodeSandbox) -> tuple[str, ...]:
    """Names of the pods that may exist: the recorded pod, the bound one, and the pod under the sandbox's own name."""
    found = told(sandbox)
    known = (sandbox.status.pod, found.pod if found else "", sandbox.meta.name)
    return tuple(dict.fromkeys(name for name in known if name))


def current_pod(sandbox: CodeSandbox, pods: Iterable[P]) -> P | None:
    """The pod of the sandbox among these, whatever has been lost of what points to it; else the one of its own name."""
    there = list(pods)
    meta, binding = sandbox.meta, binding_of(sandbox, there)
    current, bound = current_uid(sandbox, binding), binding.pod_uid if binding else ""

    def order(pod: P) -> tuple[bool, ...]:
        return pod.uid == current, pod.owner == meta.uid, pod.uid == bound, pod.name == sandbox.status.pod

    mine = [one for one in there if one.uid == current or one.owner == meta.uid or (one.uid == bound and not one.owner)]
    return max(mine, key=order) if mine else next((one for one in there if one.name == meta.name), None)
