"""The pod of a sandbox that is to run: create it, adopt it, wait for it, greet its executor."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sandfleet_operator.api.conditions import Reason
from sandfleet_operator.api.kinds.sandbox import OnIdle, SandboxStatus
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.api.times import time_text
from sandfleet_operator.api.values import Hold, Isolation
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.merge import Effective
from sandfleet_operator.plan.pods.podspec import PodRequest, own_labels, pod_labels, sandbox_pod, spec_hash
from sandfleet_operator.plan.sandbox import restarts
from sandfleet_operator.plan.sandbox.actions import AdoptPod, AwaitTurn, CreatePod, DeletePod, Greet, SandboxAction
from sandfleet_operator.plan.sandbox.dependencies import is_own, volume_claim_name, waits_for_claim
from sandfleet_operator.plan.sandbox.observed import NODE_GONE, Contact, Observed, Pod
from sandfleet_operator.plan.sandbox.remains import queue_for_pod
from sandfleet_operator.plan.sandbox.restarts import End
from sandfleet_operator.plan.sandbox.status import Finding, is_proved

# Seconds until a failed attempt is repeated.
REFUSED_RETRY = 5.0
GREET_RETRY = 1.0
MISMATCH_RETRY = 30.0
# A sandbox is woken when its turn has come.
TURN_RETRY = 30.0
NO_TURN = Finding(Reason.POD_STARTING, "as many pods are being started as the nodes can start at once; it has its turn")
# Seconds after a greeting for which the pod counts as ready before its readiness probe (every two seconds) has passed.
PROBE_SECONDS = 10.0
# Seconds that the fleet has to make the CodeSandbox the owner of the pod it bound; then the operator does it.
FLEET_ADOPTION_SECONDS = 5.0

# The kubelet's reasons for a container that does not start.
WAITING = {
    "ErrImagePull": Reason.IMAGE_PULL_FAILED,
    "ImagePullBackOff": Reason.IMAGE_PULL_FAILED,
    "InvalidImageName": Reason.IMAGE_PULL_FAILED,
    "ErrImageNeverPull": Reason.IMAGE_PULL_FAILED,
    "ImageInspectError": Reason.IMAGE_PULL_FAILED,
    "RegistryUnavailable": Reason.IMAGE_PULL_FAILED,
    "CreateContainerConfigError": Reason.CONTAINER_CREATE_FAILED,
    "CreateContainerError": Reason.CONTAINER_CREATE_FAILED,
    "RunContainerError": Reason.CONTAINER_CREATE_FAILED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundInput:
    """Everything that a round of a running sandbox depends on."""

    seen: Observed
    wanted: Effective
    now: float
    settings: Settings
    # Seconds left of the sandbox's lifetime; None: no limit.
    lifetime: float | None
    # Why no pod may be created now.
    held: Finding | None = None
    # Which policies of others open the sandbox, although its template requires that none does.
    opened: Finding | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRound:
    status: SandboxStatus
    # Why code cannot run; None when it can.
    not_ready: Finding | None
    actions: tuple[SandboxAction, ...] = ()
    # The last contact with the executor of the current pod.
    proved: Contact | None = None
    requeue_after: float | None = None


def pod_round(given: RoundInput) -> PodRound:
    seen = given.seen
    status, pod = seen.sandbox.status, seen.pod
    if pod is None:
        return _create_round(given)
    if not is_own(pod, seen):
        # Ignore the annotation: warm pods belong to the fleet, owned pods to their owner.
        why = f"cannot create the pod: pod {pod.name} exists and does not belong to this sandbox"
        return PodRound(status=status, not_ready=Finding(Reason.FORBIDDEN, why), requeue_after=REFUSED_RETRY)
    # The status no longer names a pod whose end was recorded.
    if pod.deleting or (pod.uid != status.pod_uid and (pod.ended or _is_outdated(given, pod))):
        return _ending_round(seen, pod)
    return _running_round(given, pod)


def correction(given: RoundInput) -> End | None:
    """The end of a pod that cannot start, after its template or spec was corrected. No code ever ran in it."""
    pod, seen = given.seen.pod, given.seen
    if pod is None or pod.deleting or pod.uid != seen.sandbox.status.pod_uid or not is_own(pod, seen):
        return None
    if not _is_outdated(given, pod):
        return None
    found = _not_started(given, pod)
    return End(
        found.reason,
        f"{found.message}; the template or the spec has changed since, and another pod follows",
        crash=False,
    )


def _is_outdated(given: RoundInput, pod: Pod) -> bool:
    """Whether the pod cannot start and a new one would differ. A pod that the fleet has bound has run before."""
    is_stuck = bool(pod.unschedulable and not pod.node) or pod.waiting in WAITING
    if not is_stuck or pod.ended or given.seen.claimed_pod == (pod.name, pod.uid):
        return False
    return pod.annotations.get(names.SPEC_HASH) not in {None, spec_hash(given.wanted, given.settings)}


def _create_round(given: RoundInput) -> PodRound:
    seen = given.seen
    status = seen.sandbox.status
    if waits_for_claim(seen):
        missing = Finding(Reason.POOL_NOT_FOUND, seen.pool_problem)
        return PodRound(status=status, not_ready=missing if seen.pool_problem else Finding(Reason.WAITING_FOR_CLAIM))
    if (status.pod_uid or seen.claimed_pod) and not seen.pod_gone:
        # The earlier pod may still exist until the API server has confirmed that it is gone.
        return PodRound(status=status, not_ready=Finding(Reason.WORKSPACE_IN_USE), requeue_after=1.0)
    if held := given.held or given.opened:
        return PodRound(status=status, not_ready=held, requeue_after=REFUSED_RETRY)
    trouble = seen.trouble
    if trouble is not None and (left := refused_left(seen, given.now)) > 0:
        return PodRound(status=status, not_ready=Finding(trouble.reason, trouble.message), requeue_after=left)
    left = restarts.wait_left(status, given.now, given.settings.recovery)
    if left > 0:
        last = status.restart_history[-1]
        until = time_text(round(given.now + left))
        finding = Finding(Reason.BACK_OFF, f"after {last.reason} ({last.message}) the next pod starts at {until}")
        return PodRound(status=status, not_ready=finding, requeue_after=left)
    if not seen.has_turn:
        return PodRound(status=status, not_ready=NO_TURN, actions=(AwaitTurn(),), requeue_after=TURN_RETRY)
    # While the operator tries again, the status keeps the reason of the last refusal.
    finding = Finding(trouble.reason, trouble.message) if trouble else Finding(Reason.POD_STARTING)
    known = replace(restarts.forget_pod(status), pod=seen.sandbox.meta.name)
    return PodRound(status=known, not_ready=finding, actions=(CreatePod(sandbox_pod(_request(given), given.settings)),))


def labels_of_pod(given: RoundInput) -> Mapping[str, str]:
    """The labels of the pod, or those that it will be created with."""
    pod = given.seen.pod
    return pod.labels if pod is not None else pod_labels(_request(given), given.settings)


def refused_left(seen: Observed, now: float) -> float:
    """Seconds until a refused request is repeated; 0 for now."""
    return max(0.0, seen.trouble.at + REFUSED_RETRY - now) if seen.trouble else 0.0


def _request(given: RoundInput) -> PodRequest:
    meta = given.seen.sandbox.meta
    return PodRequest(
        namespace=meta.namespace,
        name=meta.name,
        wanted=given.wanted,
        owner=meta,
        labels=meta.labels,
        pool=given.seen.sandbox.spec.pool,
        traceparent=meta.annotations.get(names.TRACEPARENT, ""),
        lease=given.lifetime,
        workspace=volume_claim_name(given.seen),
        revision=_revision_of(given.seen),
        queue=queue_for_pod(given.seen.sandbox, given.seen.binding),
        user_namespace=given.seen.user_namespaces,
    )


def _revision_of(seen: Observed) -> str:
    """The revision that the next pod is made from."""
    if seen.kept is not None:
        return seen.sandbox.status.template_revision
    return str(seen.revision["metadata"]["name"]) if seen.revision else ""


def _ending_round(seen: Observed, pod: Pod) -> PodRound:
    """The pod is ending, or has ended and its end is recorded. The next pod waits until it is gone."""
    status, node = seen.sandbox.status, seen.node
    if not pod.deleting:
        delete = DeletePod(seen.sandbox.meta.namespace, pod.name, pod.uid)
        finding = Finding(Reason.POD_STARTING, "an older pod is deleted first")
        return PodRound(status=status, not_ready=finding, actions=(delete,))
    if node is not None and not node.ready and not node.out_of_service:
        why = f"node {node.name} does not answer, so the pod on it may still run"
        return PodRound(status=status, not_ready=Finding(Reason.NODE_NOT_RESPONDING, why))
    if pod.disruption in NODE_GONE:
        return PodRound(status=status, not_ready=Finding(Reason.NODE_LOST, pod.disruption_message))
    if pod.disruption:
        return PodRound(status=status, not_ready=Finding(Reason.EVICTED, pod.disruption_message or pod.disruption))
    finding = Finding(Reason.POD_DELETED, "the pod is being deleted; another one follows")
    return PodRound(status=status, not_ready=finding)


def _running_round(given: RoundInput, pod: Pod) -> PodRound:
    seen, on_file = given.seen, given.seen.sandbox.status
    contact = seen.contact if seen.contact and seen.contact.pod_uid == pod.uid else None
    proved = contact is not None and contact.reason is None
    status = replace(
        on_file,
        pod=pod.name,
        pod_uid=pod.uid,
        node=pod.node,
        address=f"{pod.address}:{given.settings.executor_port}" if pod.address else "",
        image_digest=pod.image_digest,
        runtime=contact.runtime if contact and proved else on_file.runtime,
    )
    # An Isolated status for this very pod was proved by this operator or an earlier one.
    if proved or (on_file.pod_uid == pod.uid and is_proved(on_file)):
        found = _greeted(given, pod, contact)
    elif not pod.address or pod.waiting:
        found = _ExecutorState(_not_started(given, pod), requeue_after=_grace_left(given))
    elif given.opened is not None:
        # The greeting starts the session and with it the owner's services.
        found = _ExecutorState(given.opened)
    else:
        found = _greeting(given, pod, contact, status.address)
    stranger = contact is not None and contact.reason is Reason.EXECUTOR_IDENTITY_INVALID
    return PodRound(
        # Do not record a pod that fails its first identity check: its end would later count as the sandbox's.
        status=on_file if stranger else status,
        not_ready=found.not_ready,
        actions=(*_ownership_repairs(given, pod), *found.actions),
        proved=contact,
        requeue_after=min(delays) if (delays := _delays(given, pod, found)) else None,
    )


@dataclass(frozen=True, slots=True)
class _ExecutorState:
    not_ready: Finding | None
    actions: tuple[SandboxAction, ...] = ()
    requeue_after: float | None = None


def _greeted(given: RoundInput, pod: Pod, contact: Contact | None) -> _ExecutorState:
    if pod.ready:
        return _ExecutorState(None)
    left = contact.at + PROBE_SECONDS - given.now if contact else 0.0
    if left > 0:
        return _ExecutorState(None, requeue_after=left)
    finding = _node_trouble(given) or Finding(
        Reason.EXECUTOR_UNREACHABLE, "its executor's port does not answer the node"
    )
    return _ExecutorState(finding, requeue_after=_grace_left(given))


def _greeting(given: RoundInput, pod: Pod, contact: Contact | None, address: str) -> _ExecutorState:
    in_gvisor = given.wanted.runtime_class in given.settings.gvisor_classes
    greet = Greet(
        pod_uid=pod.uid,
        address=address,
        isolation=Isolation.GVISOR if in_gvisor else Isolation.NAMESPACE,
        # For a pod of the operator no token is issued before Ready is written, which records the greeting. The fleet
        # issues tokens for a pod that it has claimed, and has set its lease.
        first=given.seen.claimed_pod != (pod.name, pod.uid),
        lease=given.lifetime,
        # One that is to be suspended does not end by itself.
        idle_timeout=given.wanted.idle_timeout if given.seen.sandbox.spec.on_idle is OnIdle.END else None,
        contract=pod.contract,
        node=pod.node,
        trusts=names.EGRESS_SECRETS in pod.annotations,
    )
    if contact is None or contact.reason is None:
        return _ExecutorState(Finding(Reason.POD_STARTING, "the identity of its executor is being checked"), (greet,))
    finding = Finding(contact.reason, contact.message)
    if contact.reason is Reason.EXECUTOR_IDENTITY_INVALID:
        # The process at this address gets no session; the next pod gets another address.
        return _ExecutorState(finding, (DeletePod(given.seen.sandbox.meta.namespace, pod.name, pod.uid),))
    wait = MISMATCH_RETRY if contact.reason is Reason.RUNTIME_MISMATCH else GREET_RETRY
    left = contact.at + wait - given.now
    return _ExecutorState(finding, requeue_after=left) if left > 0 else _ExecutorState(finding, (greet,))


def _node_trouble(given: RoundInput) -> Finding | None:
    """NodeNotResponding, once the node has been silent for longer than its grace period."""
    node = given.seen.node
    if node is None or node.ready or _grace_left(given) is not None:
        return None
    return Finding(Reason.NODE_NOT_RESPONDING, f"node {node.name} does not answer")


def _grace_left(given: RoundInput) -> float | None:
    """Seconds until the status reports a silent node; None if the node is ready or the time is over."""
    node = given.seen.node
    if node is None or node.ready:
        return None
    left = node.silent_since + given.settings.recovery.node_grace - given.now
    return left if left > 0 else None


def _not_started(given: RoundInput, pod: Pod) -> Finding:
    if pod.node and (silent := _node_trouble(given)):
        return silent
    return start_trouble(pod) or Finding(Reason.POD_STARTING, "" if pod.node else "no node has been chosen yet")


def start_trouble(pod: Pod) -> Finding | None:
    """Why the pod does not start, as the scheduler or the kubelet reports it; None while nothing is wrong."""
    if not pod.node:
        stands = Reason.SCHEDULING_GATED if pod.hold is Hold.SCHEDULING_GATED else Reason.UNSCHEDULABLE
        return Finding(stands, pod.unschedulable) if pod.unschedulable else None
    if "secret" in pod.waiting_message and "not found" in pod.waiting_message:
        return Finding(Reason.SECRET_NOT_FOUND, pod.waiting_message)
    if reason := WAITING.get(pod.waiting):
        return Finding(reason, f"{pod.waiting}: {pod.waiting_message}" if pod.waiting_message else pod.waiting)
    return None


def _delays(given: RoundInput, pod: Pod, found: _ExecutorState) -> list[float]:
    """Seconds until each of the next things to check."""
    turn = None if pod.owner else _fleet_adoption_left(given)
    return [one for one in (found.requeue_after, turn) if one is not None]


def _fleet_adoption_left(given: RoundInput) -> float | None:
    """Seconds that the fleet still has to adopt the pod it bound; None when its time is over."""
    bound, made = given.seen.binding, given.seen.sandbox.meta.created
    # The CodeSandbox of a young claim is written when the claim is some seconds old already.
    left = max(bound.record.at, made) + FLEET_ADOPTION_SECONDS - given.now if bound else 0.0
    return min(left, FLEET_ADOPTION_SECONDS) if left > 0 else None


def _ownership_repairs(given: RoundInput, pod: Pod) -> tuple[SandboxAction, ...]:
    """Actions that give a claimed pod its owner and restore the labels that policies select by."""
    meta = given.seen.sandbox.meta
    right = own_labels(_request(given))
    wrong = {key: right.get(key) for key in sorted(names.OWN_LABELS) if pod.labels.get(key) != right.get(key)}
    if pod.owner:
        return (AdoptPod(meta.namespace, pod.name, pod.uid, wrong),) if wrong else ()
    if not wrong and _fleet_adoption_left(given) is not None:
        return ()
    owner = names.owned_by("CodeSandbox", meta)
    return (AdoptPod(meta.namespace, pod.name, pod.uid, wrong, owner, pod.version),)
