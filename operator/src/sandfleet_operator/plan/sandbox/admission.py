"""Whether the queue of a CodeSandbox lets it have a pod, and whether the sandbox counts against the queue's quota.

The fleet decides, and writes its decision into `status.admission`. The operator makes no pod against it, and says it as
the condition Admitted (docs/dev/adr/0029-the-fleet-admits-the-operator-says-so.md). Both read it here.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum

from sandfleet_operator.api.conditions import ConditionType, Reason
from sandfleet_operator.api.kinds.queue import DEFAULT_QUEUE
from sandfleet_operator.api.kinds.sandbox import AdmissionState, AdmissionStatus, CodeSandbox, OperatingMode
from sandfleet_operator.api.quantities import bytes_text, cores_text, parse_bytes, parse_cores
from sandfleet_operator.api.values import Amount, Claim
from sandfleet_operator.plan.pods.merge import Effective, amount_of
from sandfleet_operator.plan.sandbox.binding import claims_own, has_begun, settled_binding
from sandfleet_operator.plan.sandbox.dependencies import is_own
from sandfleet_operator.plan.sandbox.observed import Observed
from sandfleet_operator.plan.sandbox.status import Finding, condition, holds

# Seconds between two messages to one object while its reason stays the same.
NEWS_PAUSE = 30.0
MAX_MESSAGE = 1024

# What the fleet may say of a sandbox that waits or ends. Any other word is shown as WaitingForAdmission.
REASONS = {
    one.value: one
    for one in (
        Reason.QUEUE_NOT_FOUND,
        Reason.QUEUE_HELD,
        Reason.QUEUE_DRAINED,
        Reason.QUOTA_REACHED,
        Reason.QUOTA_TOO_SMALL,
        Reason.COHORT_EXHAUSTED,
        Reason.PRIORITY_NOT_FOUND,
        Reason.SUSPENDED,
    )
}


def queue_of(sandbox: CodeSandbox, queues: Collection[str]) -> str:
    """Name of the queue that has to admit the sandbox; empty: none. `queues` are those of its namespace."""
    return sandbox.spec.queue or (DEFAULT_QUEUE if DEFAULT_QUEUE in queues else "")


# What the operator does.


@dataclass(frozen=True, slots=True)
class Admission:
    """`ends`: a pod that the sandbox has is to end."""

    admitted: bool
    finding: Finding
    ends: bool = False


def admission_of(seen: Observed) -> Admission | None:
    """None: no queue concerns the sandbox."""
    queue, said = queue_of(seen.sandbox, seen.queues), seen.sandbox.status.admission
    if not queue:
        return None
    if said is not None and said.state is AdmissionState.ADMITTED:
        return Admission(True, Finding(Reason.ADMITTED, f"admitted by queue {said.queue}"))
    if said is None and seen.binding is not None:
        # Its claim was admitted before the fleet bound a pod.
        return Admission(True, Finding(Reason.ADMITTED, "admitted with its claim"))
    if queue not in seen.queues:
        why = f"there is no SandboxQueue {queue!r} in namespace {seen.sandbox.meta.namespace}"
        return Admission(False, Finding(Reason.QUEUE_NOT_FOUND, f"cannot wait for a pod: {why}"), ends=said is not None)
    if said is not None:
        return Admission(
            False, Finding(REASONS.get(said.reason, Reason.WAITING_FOR_ADMISSION), said.message), ends=True
        )
    what = "its claim waits in queue" if is_of_claim(seen.sandbox) else "it has not been looked at yet by queue"
    return Admission(False, Finding(Reason.WAITING_FOR_ADMISSION, f"{what} {queue}"))


def ended_by_queue(seen: Observed) -> Finding | None:
    """Why the sandbox may have no pod any more; None if it may."""
    found = admission_of(seen)
    return found.finding if found is not None and found.ends else None


def held_by_queue(seen: Observed, wanted: Effective) -> Finding | None:
    """Why no pod may be created yet; None if one may. A pod from before the queue goes on."""
    found = admission_of(seen)
    if found is None or (seen.pod is not None and is_own(seen.pod, seen)):
        return None
    if not found.admitted:
        return found.finding
    if needs_more(seen.sandbox, amount_of(wanted)):
        why = "its template has changed, and its pod would request more than the queue has admitted"
        return Finding(Reason.WAITING_FOR_ADMISSION, why)
    return None


def needs_more(sandbox: CodeSandbox, wanted: Amount | None) -> bool:
    """Whether its first pod would request more than was admitted. Later ones are made from the same template."""
    said, status = sandbox.status.admission, sandbox.status
    if said is None or wanted is None or status.template_revision or status.pod_uid:
        return False
    admitted = admitted_amount(said)
    return wanted.cpu > admitted.cpu or wanted.memory > admitted.memory


# What the fleet reads and writes.


# In these states it counts against the quota.
COUNTED = {AdmissionState.ADMITTED, AdmissionState.ENDING}


class Standing(Enum):
    """What a CodeSandbox is to its queue."""

    # It neither waits nor counts, or its claim does both.
    ASIDE = "aside"
    # It wants a pod and needs an admission.
    WAITS = "waits"
    # It counts against the quota: it is admitted, or its pod may still be there.
    COUNTS = "counts"
    # It counts until the fleet has written that it does not: its pod is gone.
    LEAVES = "leaves"


def is_of_claim(sandbox: CodeSandbox) -> bool:
    """Whether a claim of the fleet counts for it: one that has bound it, that made it, or that waits at its pool.

    Annotations say so only of an object that has nothing yet: their owner can write them.
    """
    if settled_binding(sandbox) is not None:
        return True
    if has_begun(sandbox.status) or _state(sandbox) in COUNTED:
        return False
    at_pool = bool(sandbox.spec.pool) and not sandbox.spec.workspace.claim_name
    return at_pool or claims_own(sandbox) is not None


def _state(sandbox: CodeSandbox) -> AdmissionState | None:
    said = sandbox.status.admission
    return said.state if said is not None else None


def standing(sandbox: CodeSandbox, *, has_pod: bool) -> Standing:
    """`has_pod`: a pod of the operator's making is there."""
    status, state = sandbox.status, _state(sandbox)
    pod = has_pod or bool(status.pod_uid)
    counts = state in COUNTED or (state is None and pod)
    if is_of_claim(sandbox):
        return Standing.ASIDE
    if sandbox.meta.deleting or holds(status, ConditionType.EXPIRED):
        return Standing.COUNTS if counts and pod else Standing.ASIDE
    if state is AdmissionState.ENDING:
        return Standing.LEAVES if not pod and _has_obeyed(sandbox) else Standing.COUNTS
    if sandbox.spec.operating_mode is OperatingMode.SUSPENDED:
        gone = not has_pod and sleeps(sandbox)
        return (Standing.LEAVES if gone else Standing.COUNTS) if counts else Standing.ASIDE
    return Standing.COUNTS if counts else Standing.WAITS


def _has_obeyed(sandbox: CodeSandbox) -> bool:
    """Whether the operator has acted on what the fleet has decided: no round from before it can make a pod."""
    said = sandbox.status.admission
    return said is not None and sandbox.status.observed_admission == said.time


def sleeps(sandbox: CodeSandbox) -> bool:
    """Whether it has no pod and none is made: the operator says so of the spec as it is now, not of an earlier one."""
    one = condition(sandbox.status, ConditionType.SUSPENDED)
    is_said = one is not None and one.status == "True" and one.observed_generation == sandbox.meta.generation
    is_meant = sandbox.spec.operating_mode is OperatingMode.SUSPENDED
    return is_said and is_meant and not sandbox.status.pod_uid


def has_given_back(sandbox: CodeSandbox) -> bool:
    """Whether the session of a claim uses no quota while it sleeps: it needs another admission to go on."""
    return _state(sandbox) is AdmissionState.PENDING


def given_back(sandbox: CodeSandbox, claim: Claim, now: float) -> AdmissionStatus | None:
    """What is to be written of a session that uses no quota from then on; None where it is written, or goes on."""
    if has_given_back(sandbox) or not sleeps(sandbox):
        return None
    return _of_session(claim, AdmissionState.PENDING, now, Reason.SUSPENDED)


def admitted_again(sandbox: CodeSandbox, claim: Claim, now: float) -> AdmissionStatus | None:
    """The same of a session that uses its quota again; None where it has not given it back."""
    return _of_session(claim, AdmissionState.ADMITTED, now) if has_given_back(sandbox) else None


def kept_out(sandbox: CodeSandbox, reason: str, message: str) -> AdmissionStatus | None:
    """The same of a session that waits for its quota, and why; None where it is written, or it does not wait."""
    said = sandbox.status.admission
    if said is None or said.state is not AdmissionState.PENDING or not is_news(said, reason, message, NEWS_PAUSE):
        return None
    return replace(said, reason=reason, message=message[:MAX_MESSAGE])


def is_news(said: AdmissionStatus, reason: str, message: str, since: float) -> bool:
    """Whether the object is to be told why it waits. `since`: seconds since it was told the last time."""
    pause = NEWS_PAUSE if reason == said.reason else 0.0
    return (reason, message[:MAX_MESSAGE]) != (said.reason, said.message) and since >= pause


def _of_session(claim: Claim, state: AdmissionState, now: float, reason: Reason | None = None) -> AdmissionStatus:
    said = AdmissionStatus(
        queue=claim.queue.rpartition("/")[2],
        state=state,
        time=now,
        reason=reason.value if reason else "",
        message=reason.meaning if reason else "",
    )
    return with_amount(said, claim.amount or Amount(sandboxes=1))


def admitted_amount(said: AdmissionStatus) -> Amount:
    """Raises FleetError."""
    cpu = parse_cores(said.cpu or 0, "status.admission.cpu")
    memory = parse_bytes(said.memory or 0, "status.admission.memory")
    return Amount(sandboxes=1, cpu=round(cpu * 1000), memory=memory)


def with_amount(said: AdmissionStatus, amount: Amount) -> AdmissionStatus:
    return replace(said, cpu=cores_text(amount.cpu / 1000), memory=bytes_text(amount.memory))
