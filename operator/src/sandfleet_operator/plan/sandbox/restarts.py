"""Why a sandbox's pod ended, and when the next one may start."""

from dataclasses import dataclass, replace

from sandfleet_rules.backoff import Backoff

from sandfleet_operator.api.conditions import ConditionType, Reason, reason
from sandfleet_operator.api.kinds.sandbox import Restart, SandboxStatus
from sandfleet_operator.api.settings import Recovery
from sandfleet_operator.api.values import ExitCode
from sandfleet_operator.plan.sandbox.binding import claims_own, current_uid, is_unrecorded, settled_binding
from sandfleet_operator.plan.sandbox.dependencies import is_own
from sandfleet_operator.plan.sandbox.observed import NODE_GONE, Ended, Observed, Pod
from sandfleet_operator.plan.sandbox.status import condition

OOM_KILLED = "OOMKilled"
HISTORY = 10
# Seconds from the creation of a claim's object in which the fleet may still write its binding: it does where the pod of
# a young claim went.
BINDING_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class End:
    """Why a pod ended. `final`: no other pod follows; `crash`: it counts towards the limit of crashes."""

    reason: Reason
    message: str
    final: bool = False
    crash: bool = True


def end_of(seen: Observed) -> End | None:
    """How the current pod ended; None while it runs or may still run."""
    uid, pod = current_uid(seen.sandbox, seen.binding), seen.pod
    if not uid:
        return _claim_over() if seen.pod_gone and is_undone(seen) else None
    if pod is not None and pod.uid == uid:
        if not is_own(pod, seen):
            return None
        return _of_ended(seen, pod, pod.ended) if pod.ended else _of_stranger(seen, pod)
    if pod is not None or seen.pod_gone:
        return _of_gone(seen)
    return None


def _of_ended(seen: Observed, pod: Pod, ended: Ended) -> End | None:
    """The container has ended, and the pod still exists and says how."""
    if pod.disruption in NODE_GONE:
        return End(Reason.NODE_LOST, pod.disruption_message, crash=False)
    # Check disruption and deletion first: the kubelet tells such an executor to close, so its exit code is CLOSED.
    if pod.disruption:
        return End(Reason.EVICTED, pod.disruption_message or pod.disruption)
    if pod.deleting:
        return _of_deleted(seen)
    if ended.reason == OOM_KILLED:
        return End(Reason.OUT_OF_MEMORY, "the sandbox used all of its memory")
    match ended.code:
        case ExitCode.CLOSED:
            return End(Reason.CLOSED, "its executor was told to close", final=True)
        case ExitCode.LEASE:
            over = Reason.LEASE_OVER if seen.claimed_pod or seen.lifetime is None else Reason.LIFETIME_OVER
            return End(over, "its executor ended with its lease", final=True)
        case ExitCode.IDLE:
            return End(Reason.IDLE_TIMEOUT_OVER, "its executor was idle for too long", final=True)
    said = ended.message or ended.reason or "it never ran"
    how = f"exit code {ended.code}: {said}" if ended.code is not None else said
    return End(Reason.EXECUTOR_CRASHED, how)


def _of_stranger(seen: Observed, pod: Pod) -> End | None:
    """The process at the pod's address is not its executor. It gets no session; the next pod gets another address."""
    contact = seen.contact
    if contact is None or contact.pod_uid != pod.uid or contact.reason is not Reason.EXECUTOR_IDENTITY_INVALID:
        return None
    return End(contact.reason, contact.message)


def _of_gone(seen: Observed) -> End:
    """The pod is gone. The reason of Ready, written while the pod was ending, says why."""
    ready = condition(seen.sandbox.status, ConditionType.READY)
    said = ready.reason if ready else ""
    if said in {Reason.EVICTED.value, Reason.NODE_LOST.value}:
        return End(reason(said), ready.message if ready else "", crash=said == Reason.EVICTED.value)
    if said == Reason.NODE_NOT_RESPONDING.value:
        return End(Reason.NODE_LOST, "its node did not answer, and Kubernetes removed the pod", crash=False)
    return _of_deleted(seen)


def _of_deleted(seen: Observed) -> End:
    if is_undone(seen):
        return _claim_over()
    return End(Reason.POD_DELETED, "the pod was deleted", crash=False)


def is_undone(seen: Observed) -> bool:
    """Whether the fleet made this object for a claim whose binding it has not written.

    Such an object was written after its claim was released or undone: no caller waits for another pod.
    """
    sandbox = seen.sandbox
    return claims_own(sandbox) is not None and settled_binding(sandbox) is None and is_unrecorded(sandbox)


def undone_left(seen: Observed, end: End | None, now: float) -> float:
    """Seconds for which a claim whose pod is gone may still turn out to go on; 0 of all other ends."""
    if end is None or end.reason is not Reason.CLAIM_OVER:
        return 0.0
    return min(BINDING_SECONDS, max(0.0, seen.sandbox.meta.created + BINDING_SECONDS - now))


def _claim_over() -> End:
    return End(Reason.CLAIM_OVER, "the claimed pod is gone, and the claim ended with it", final=True, crash=False)


def after(status: SandboxStatus, end: End, now: float, recovery: Recovery) -> SandboxStatus:
    """The status after this end. Each end is counted exactly once: the same write removes the pod from the status."""
    # Measure from Isolated, which holds from the greeting to the end. Ready may be lost earlier, as when a node drains.
    isolated = condition(status, ConditionType.ISOLATED)
    since = isolated.changed if isolated and isolated.status == "True" else now
    stable = now - since >= recovery.stable_seconds
    crashes = ((0 if stable else status.crashes) + 1) if end.crash else status.crashes
    history = (*status.restart_history, Restart(reason=end.reason.value, time=now, message=end.message))
    return replace(
        forget_pod(status),
        restarts=status.restarts + 1,
        restart_history=history[-HISTORY:],
        crashes=crashes,
    )


def forget_pod(status: SandboxStatus) -> SandboxStatus:
    return replace(status, pod="", pod_uid="", node="", address="", runtime="", image_digest="", services=())


def wait_left(status: SandboxStatus, now: float, recovery: Recovery) -> float:
    """Seconds until the next pod may be created; 0 for now. After a stable stretch the pause is the shortest."""
    if not status.crashes or not status.restart_history:
        return 0.0
    pause = Backoff(recovery.backoff_base, recovery.backoff_max).after(status.crashes)
    return max(0.0, status.restart_history[-1].time + pause - now)
