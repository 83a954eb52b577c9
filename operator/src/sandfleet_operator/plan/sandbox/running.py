"""The pod of a sandbox that is to run: made, adopted, watched, greeted."""

from dataclasses import dataclass, replace

from sandfleet_operator.api.conditions import ConditionType, Reason
from sandfleet_operator.api.resources import SandboxStatus
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.api.times import time_text
from sandfleet_operator.api.values import Isolation
from sandfleet_operator.plan import names
from sandfleet_operator.plan.claims import read_record
from sandfleet_operator.plan.effective import Effective
from sandfleet_operator.plan.podspec import PodRequest, own_labels, sandbox_pod, spec_hash
from sandfleet_operator.plan.sandbox import ends
from sandfleet_operator.plan.sandbox.actions import Action, AdoptPod, CreatePod, DeletePod, Greet
from sandfleet_operator.plan.sandbox.ends import End
from sandfleet_operator.plan.sandbox.observed import NODE_GONE, Contact, Observed, Pod
from sandfleet_operator.plan.sandbox.parts import claim_name, is_own, waits_for_claim
from sandfleet_operator.plan.sandbox.starting import WAITING, start_trouble
from sandfleet_operator.plan.sandbox.status import Finding, holds

# Seconds until what failed is tried again.
REFUSED_AGAIN = 5.0
GREET_AGAIN = 1.0
MISMATCH_AGAIN = 30.0
# The kubelet looks at the port every two seconds: so long after a greeting its word is not waited for.
PROBE_SECONDS = 10.0
# The fleet gives a pod that it has bound to its CodeSandbox: two that do it get in each other's way.
FLEETS_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What a round goes by."""

    seen: Observed
    wanted: Effective
    now: float
    settings: Settings
    # What is left of the sandbox's lifetime in seconds; None: no end.
    lifetime: float | None
    # Why no pod may be made now.
    held: Finding | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRound:
    status: SandboxStatus
    # Why code cannot be run.
    not_ready: Finding | None
    actions: tuple[Action, ...] = ()
    # The contact that counts for the pod that is there.
    proved: Contact | None = None
    again: float | None = None


def pod_round(here: Moment) -> PodRound:
    seen = here.seen
    status, pod = seen.sandbox.status, seen.pod
    if pod is None:
        return _to_make(here)
    if not is_own(pod, seen):
        # A warm one is the fleet's, one that another sandbox owns is that one's, whatever an annotation says.
        why = f"cannot make a pod: pod {pod.name} exists and is not this sandbox's"
        return PodRound(status=status, not_ready=Finding(Reason.FORBIDDEN, why), again=REFUSED_AGAIN)
    # One that was counted is on record no more.
    if pod.deleting or (pod.uid != status.pod_uid and (pod.ended or _is_outdated(here, pod))):
        return _going(seen, pod)
    return _alive(here, pod)


def correction(here: Moment) -> End | None:
    """The end of a pod that cannot start, where what it was made of has been corrected since: nothing ever ran in it."""
    pod, seen = here.seen.pod, here.seen
    if pod is None or pod.deleting or pod.uid != seen.sandbox.status.pod_uid or not is_own(pod, seen):
        return None
    if not _is_outdated(here, pod):
        return None
    found = _not_started(here, pod)
    return End(
        found.reason, f"{found.message}; what it is made of has changed since, and another pod follows", crash=False
    )


def _is_outdated(here: Moment, pod: Pod) -> bool:
    """Whether it cannot start, and another one would be made otherwise. What the fleet has bound has run before."""
    is_stuck = bool(pod.unschedulable and not pod.node) or pod.waiting in WAITING
    if not is_stuck or pod.ended or here.seen.claimed_pod == (pod.name, pod.uid):
        return False
    return pod.annotations.get(names.SPEC_HASH) not in {None, spec_hash(here.wanted, here.settings)}


def _to_make(here: Moment) -> PodRound:
    seen = here.seen
    status = seen.sandbox.status
    if waits_for_claim(seen):
        missing = Finding(Reason.POOL_NOT_FOUND, seen.pool_problem)
        return PodRound(status=status, not_ready=missing if seen.pool_problem else Finding(Reason.WAITING_FOR_CLAIM))
    if (status.pod_uid or seen.claimed_pod) and not seen.pod_gone:
        # The pod that it had may still be there: the API server has to be asked.
        return PodRound(status=status, not_ready=Finding(Reason.WORKSPACE_IN_USE), again=1.0)
    if here.held is not None:
        return PodRound(status=status, not_ready=here.held, again=REFUSED_AGAIN)
    trouble = seen.trouble
    if trouble is not None and (left := refused_left(seen, here.now)) > 0:
        return PodRound(status=status, not_ready=Finding(trouble.reason, trouble.message), again=left)
    left = ends.wait_left(status, here.now, here.settings.recovery)
    if left > 0:
        last = status.restart_history[-1]
        until = time_text(round(here.now + left))
        finding = Finding(Reason.BACK_OFF, f"after {last.reason} ({last.message}) the next pod comes at {until}")
        return PodRound(status=status, not_ready=finding, again=left)
    # While it is tried again, the reason of the last refusal stands.
    finding = Finding(trouble.reason, trouble.message) if trouble else Finding(Reason.POD_STARTING)
    known = replace(ends.forget_pod(status), pod=seen.sandbox.meta.name)
    return PodRound(status=known, not_ready=finding, actions=(CreatePod(sandbox_pod(_request(here), here.settings)),))


def refused_left(seen: Observed, now: float) -> float:
    """Seconds until what the API server refused is asked for again; 0 for now."""
    return max(0.0, seen.trouble.at + REFUSED_AGAIN - now) if seen.trouble else 0.0


def _request(here: Moment) -> PodRequest:
    meta = here.seen.sandbox.meta
    return PodRequest(
        namespace=meta.namespace,
        name=meta.name,
        wanted=here.wanted,
        owner=meta,
        labels=meta.labels,
        pool=here.seen.sandbox.spec.pool,
        traceparent=meta.annotations.get(names.TRACEPARENT, ""),
        lease=here.lifetime,
        workspace=claim_name(here.seen),
        user_namespace=here.seen.user_namespaces,
    )


def _going(seen: Observed, pod: Pod) -> PodRound:
    """It ends, or has ended and was counted; the next one waits until it is gone."""
    status, node = seen.sandbox.status, seen.node
    if not pod.deleting:
        delete = DeletePod(seen.sandbox.meta.namespace, pod.name, pod.uid)
        finding = Finding(Reason.POD_STARTING, "an older pod is removed first")
        return PodRound(status=status, not_ready=finding, actions=(delete,))
    if node is not None and not node.ready and not node.out_of_service:
        why = f"node {node.name} does not answer, so that the pod on it may still run"
        return PodRound(status=status, not_ready=Finding(Reason.NODE_NOT_RESPONDING, why))
    if pod.disruption in NODE_GONE:
        return PodRound(status=status, not_ready=Finding(Reason.NODE_LOST, pod.disruption_message))
    if pod.disruption:
        return PodRound(status=status, not_ready=Finding(Reason.EVICTED, pod.disruption_message or pod.disruption))
    finding = Finding(Reason.POD_DELETED, "the pod is being deleted; another one follows")
    return PodRound(status=status, not_ready=finding)


def _alive(here: Moment, pod: Pod) -> PodRound:
    seen, on_file = here.seen, here.seen.sandbox.status
    contact = seen.contact if seen.contact and seen.contact.pod_uid == pod.uid else None
    proved = contact is not None and contact.reason is None
    status = replace(
        on_file,
        pod=pod.name,
        pod_uid=pod.uid,
        node=pod.node,
        address=f"{pod.address}:{here.settings.executor_port}" if pod.address else "",
        image_digest=pod.image_digest,
        runtime=contact.runtime if contact and proved else on_file.runtime,
    )
    # What the status says of this very pod was proved, by this operator or the one before it.
    if proved or (on_file.pod_uid == pod.uid and holds(on_file, ConditionType.ISOLATED)):
        found = _greeted(here, pod, contact)
    elif not pod.address or pod.waiting:
        found = _Found(_not_started(here, pod), again=_grace_left(here))
    else:
        found = _to_greet(here, pod, contact, status.address)
    stranger = contact is not None and contact.reason is Reason.EXECUTOR_IDENTITY_INVALID
    return PodRound(
        # One that goes at its first contact was never this sandbox's, and is not counted as an end of it later.
        status=on_file if stranger else status,
        not_ready=found.not_ready,
        actions=(*_mended(here, pod), *found.actions),
        proved=contact,
        again=min(waits) if (waits := _waits(here, pod, found)) else None,
    )


@dataclass(frozen=True, slots=True)
class _Found:
    not_ready: Finding | None
    actions: tuple[Action, ...] = ()
    again: float | None = None


def _greeted(here: Moment, pod: Pod, contact: Contact | None) -> _Found:
    if pod.ready:
        return _Found(None)
    left = contact.at + PROBE_SECONDS - here.now if contact else 0.0
    if left > 0:
        return _Found(None, again=left)
    finding = _silent(here) or Finding(Reason.EXECUTOR_UNREACHABLE, "its port does not answer the node")
    return _Found(finding, again=_grace_left(here))


def _to_greet(here: Moment, pod: Pod, contact: Contact | None, address: str) -> _Found:
    in_gvisor = here.wanted.runtime_class in here.settings.gvisor_classes
    greet = Greet(
        pod_uid=pod.uid,
        address=address,
        isolation=Isolation.GVISOR if in_gvisor else Isolation.NAMESPACE,
        # Of a pod of ours nobody gets a token before Ready is written, which says for good that it was greeted. The
        # fleet gives them out for what it has claimed, and has set the lease there.
        first=here.seen.claimed_pod != (pod.name, pod.uid),
        lease=here.lifetime,
        idle_timeout=here.wanted.idle_timeout,
    )
    if contact is None or contact.reason is None:
        return _Found(Finding(Reason.POD_STARTING, "its executor is asked who it is"), (greet,))
    finding = Finding(contact.reason, contact.message)
    if contact.reason is Reason.EXECUTOR_IDENTITY_INVALID:
        # Whoever answers there is not to get a session, and another pod gets another address.
        return _Found(finding, (DeletePod(here.seen.sandbox.meta.namespace, pod.name, pod.uid),))
    wait = MISMATCH_AGAIN if contact.reason is Reason.RUNTIME_MISMATCH else GREET_AGAIN
    left = contact.at + wait - here.now
    return _Found(finding, again=left) if left > 0 else _Found(finding, (greet,))


def _silent(here: Moment) -> Finding | None:
    """The node is silent for longer than it may."""
    node = here.seen.node
    if node is None or node.ready or _grace_left(here) is not None:
        return None
    return Finding(Reason.NODE_NOT_RESPONDING, f"node {node.name} does not answer")


def _grace_left(here: Moment) -> float | None:
    """Seconds for which a silent node may go on being silent before the status says so."""
    node = here.seen.node
    if node is None or node.ready:
        return None
    left = node.silent_since + here.settings.recovery.node_grace - here.now
    return left if left > 0 else None


def _not_started(here: Moment, pod: Pod) -> Finding:
    if pod.node and (silent := _silent(here)):
        return silent
    return start_trouble(pod) or Finding(Reason.POD_STARTING, "" if pod.node else "no node was chosen yet")


def _waits(here: Moment, pod: Pod, found: _Found) -> list[float]:
    """Seconds after which there is something to be seen to."""
    turn = None if pod.owner else _fleets_turn(here)
    return [one for one in (found.again, turn) if one is not None]


def _fleets_turn(here: Moment) -> float | None:
    """Seconds for which the fleet that has bound the pod is left to give it its owner; None where it had its time."""
    record = read_record(here.seen.sandbox.meta.annotations.get(names.CLAIM, ""))
    left = record.at + FLEETS_SECONDS - here.now if record else 0.0
    return left if left > 0 else None


def _mended(here: Moment, pod: Pod) -> tuple[Action, ...]:
    """A claimed pod gets its owner; labels that policies go by are put back."""
    meta = here.seen.sandbox.meta
    right = own_labels(_request(here))
    wrong = {key: right.get(key) for key in sorted(names.OWN_LABELS) if pod.labels.get(key) != right.get(key)}
    if pod.owner:
        return (AdoptPod(meta.namespace, pod.name, pod.uid, wrong),) if wrong else ()
    if not wrong and _fleets_turn(here) is not None:
        return ()
    owner = names.owned_by("CodeSandbox", meta)
    return (AdoptPod(meta.namespace, pod.name, pod.uid, wrong, owner, pod.version),)
