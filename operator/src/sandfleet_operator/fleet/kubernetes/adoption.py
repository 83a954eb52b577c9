"""What a fleet does with pods and CodeSandboxes that it finds: values in, a decision out."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from sandfleet_operator.api.conditions import ConditionType, Reason
from sandfleet_operator.api.kinds.meta import Meta
from sandfleet_operator.api.kinds.sandbox import CodeSandbox
from sandfleet_operator.api.values import Isolation, Mark, Sandbox, State, marks_of
from sandfleet_operator.plan.claims.record import Record, claim_of, read_record
from sandfleet_operator.plan.claims.young import is_only_pod
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.podspec import PodState
from sandfleet_operator.plan.sandbox.binding import Binding, claims_own, has_begun
from sandfleet_operator.plan.sandbox.observed import Ended, Pod
from sandfleet_operator.plan.sandbox.status import condition, holds
from sandfleet_operator.plan.scheduler.sessions.recovery import SESSION_ENDS

# Of a fencing number.
MAX_DIGITS = 10


class Fate(Enum):
    """What is done with a pod that the scheduler does not know."""

    # It belongs to the operator, or to another fleet.
    LEAVE = "leave"
    # It is warm again.
    WARM = "warm"
    # It serves a claim.
    SESSION = "session"
    # No fleet will use it again.
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class LeaderTerm:
    """`fencing` is this fleet's number, `served` the highest number of a fleet that finished its takeover."""

    fencing: int
    served: int
    # Whether this fleet has looked at everything: what comes up later is late.
    serving: bool


def fate(pod: Pod, record: Record | None, here: LeaderTerm) -> Fate:
    """Of a pod of the fleet's that is not known: at a takeover, or because a watch shows it."""
    state = pod.labels.get(names.STATE)
    over = pod.deleting or pod.ended is not None
    if state == PodState.WARM.value:
        # A pod on an earlier workspace, or with the image of a claim, was started for one claim, which is lost.
        own = pod.workspace_claim in {"", names.workspace_claim_name(pod.name)} and names.IMAGE not in pod.annotations
        return Fate.REMOVE if over or not own else Fate.WARM
    if state == PodState.RETIRING.value:
        return Fate.LEAVE if pod.deleting else Fate.REMOVE
    if pod.deleting:
        return Fate.LEAVE
    if pod.owner:
        # Its CodeSandbox decides, and takes it along when it goes.
        return Fate.LEAVE if record is None else Fate.SESSION
    if record is None:
        # No fleet can go on with a claim that cannot be read, and no object ends it.
        return Fate.REMOVE if state == PodState.CLAIMED.value else Fate.LEAVE
    if record.number > here.fencing:
        # Of who leads now: this fleet's time is over.
        return Fate.LEAVE
    if record.number < here.served or is_late(record, here):
        return Fate.REMOVE
    return Fate.SESSION if pod.ended is None or outlives(pod, record, pod.ended) else Fate.REMOVE


def outlives(pod: Pod, record: Record, ended: Ended) -> bool:
    """Whether a claim goes on whose pod has ended before its CodeSandbox was written: a young one, with another pod."""
    over = ended.code is not None and ended.code in SESSION_ENDS and not pod.disruption
    return is_only_pod(pod, record) and not (over or pod.workspace_claim)


def served_of(text: str, fencing: int) -> int:
    """The highest number of a fleet that finished its takeover, from the Lease's annotation; 0 if it says no such."""
    number = int(text) if text.isdecimal() and len(text) <= MAX_DIGITS else 0
    # Of a number that is not below our own, all claims that are not recorded yet would be ended as forgotten ones.
    return number if number < fencing else 0


def is_in_reach(pod: Pod, record: Record | None) -> bool:
    """Whether a fleet may still be about to hand it out, or to go on with its claim."""
    state = pod.labels.get(names.STATE)
    is_claimed = state == PodState.CLAIMED.value and record is not None
    return not pod.deleting and (is_claimed or state == PodState.WARM.value)


def may_lack_volume(pod: Pod) -> bool:
    """Whether the fleet that made it may have ended before it made its volume, without which no node takes it."""
    return not pod.node and pod.workspace_claim == names.workspace_claim_name(pod.name)


def is_late(record: Record, here: LeaderTerm) -> bool:
    """Whether the claim turns up after the takeover: its caller has another answer by now, or is gone.

    A declared CodeSandbox is bound once, by any fleet.
    """
    return here.serving and not record.uid


def record_on(annotations: Mapping[str, str]) -> Record | None:
    text = annotations.get(names.CLAIM, "")
    return read_record(text) if text else None


def warm(
    pod: Pod, key: str, *, pool: str, template: str, revision: str, isolation: Isolation, now: float, fills: bool
) -> Sandbox:
    """The scheduler's sandbox of the pod.

    One whose port is open may be claimed at once: the claim verifies its executor, or discards it. Another one is warm
    once its executor has answered; so is one whose pool `fills` it with a snapshot and whose pod does not say that this
    is done.
    """
    received = _filled_with(pod) if fills else frozenset()
    at_once = pod.ready and received is not None
    return Sandbox(
        sandbox_id=key,
        sandbox_uid=key,
        pool=pool,
        template=template,
        workspace_id=key,
        state=State.WARM if at_once else State.STARTING,
        created=pod.created,
        started=now,
        ready=pod.created if at_once else None,
        untried=at_once,
        received=received or frozenset(),
        isolation=isolation,
        contract=pod.contract,
        revision=revision,
    )


def _filled_with(pod: Pod) -> frozenset[Mark] | None:
    """What the snapshot in it had received; None: it is not known to be filled."""
    text = pod.annotations.get(names.FILLED)
    return None if text is None else marks_of(text.split(",") if text else ())


def session(
    record: Record,
    key: str,
    uid_key: str,
    *,
    pool: str,
    template: str,
    isolation: Isolation,
    now: float,
    running: bool,
    lease_end: float | None,
    answered: bool = True,
) -> Sandbox:
    """A claim goes on, with the end of its lease as last written down; where there is none, the lease begins anew.

    Only the executor knows the last renewal. It is asked before the session ends. `answered`: its caller may have it.
    """
    claim = claim_of(record, pool)
    return Sandbox(
        sandbox_id=key,
        sandbox_uid=uid_key,
        pool=pool,
        template=template,
        workspace_id=claim.workspace_id or key,
        state=State.CLAIMED if running else State.RECOVERING,
        created=record.at,
        arrived=record.at,
        started=now,
        isolation=isolation,
        contract=claim.contract,
        ready=record.at,
        claim=claim,
        warm=not claim.alone,
        bound=True,
        answered=answered,
        lease_expires=now + record.lease if lease_end is None or math.isinf(record.lease) else lease_end,
        lease_known=math.isinf(record.lease),
    )


def wants_pool(sandbox: CodeSandbox, binding: Binding | None) -> bool:
    """Whether it waits for a pod of a pool."""
    mode = sandbox.spec.operating_mode.value
    waits = binding is None and claims_own(sandbox) is None and not has_begun(sandbox.status)
    return (
        waits
        and bool(sandbox.spec.pool)
        and not sandbox.spec.workspace.claim_name
        and not sandbox.meta.deleting
        and mode == "Running"
    )


def is_over(sandbox: CodeSandbox) -> bool:
    return sandbox.meta.deleting or holds(sandbox.status, ConditionType.EXPIRED)


def is_of(sandbox: CodeSandbox, known: Sandbox, binding: Binding | None, written: Meta | None) -> bool:
    """Whether it is the CodeSandbox of this very session: another object may have its name, or claim to be it.

    `written` is the object that this fleet has written for the session, or adopted with it.
    """
    if known.claim is None:
        return False
    if known.claim.object_uid:
        return known.claim.object_uid == sandbox.meta.uid
    if written is not None:
        return written.uid == sandbox.meta.uid
    bound = binding is not None and f"{sandbox.meta.namespace}/{binding.pod}" == known.sandbox_id
    return binding is not None and bound and binding.record.request == known.claim.key.request_id


def incarnation(sandbox: CodeSandbox) -> str | None:
    """The pod that serves it now, NAMESPACE/POD; None where none does."""
    status = sandbox.status
    # A pod that waits for its session is otherwise ready.
    said = condition(status, ConditionType.READY)
    filling = said is not None and said.reason == Reason.RESTORING_SNAPSHOT.value
    if not (status.pod and status.pod_uid and (filling or holds(status, ConditionType.READY))):
        return None
    return f"{sandbox.meta.namespace}/{status.pod}"


def present(sandbox: CodeSandbox, binding: Binding, *, first_is_alive: bool, serves: str | None) -> tuple[str, str]:
    """The pod that serves it now, NAMESPACE/POD and uid: the bound one until it is replaced. No uid: none does.

    `serves` is the pod of its status, if that pod is there.
    """
    namespace, status = sandbox.meta.namespace, sandbox.status
    if first_is_alive and not status.restarts:
        return f"{namespace}/{binding.pod}", binding.pod_uid
    return (serves, status.pod_uid) if serves else (f"{namespace}/{sandbox.meta.name}", "")
