"""Whether the queue of a CodeSandbox lets it have a pod.

The fleet decides, and writes its decision into `status.admission`. The operator makes no pod against it, and says it as
the condition Admitted (docs/adr/0029-the-fleet-admits-the-operator-says-so.md).
"""

from collections.abc import Collection
from dataclasses import dataclass

from sandfleet_operator.api.conditions import Reason
from sandfleet_operator.api.kinds.queue import DEFAULT_QUEUE
from sandfleet_operator.api.kinds.sandbox import AdmissionState, AdmissionStatus, CodeSandbox
from sandfleet_operator.plan.sandbox.dependencies import is_own
from sandfleet_operator.plan.sandbox.observed import Observed
from sandfleet_operator.plan.sandbox.status import Finding


@dataclass(frozen=True, slots=True)
class Admission:
    """`ends`: a pod that the sandbox has is to end."""

    admitted: bool
    finding: Finding
    ends: bool = False


def queue_of(sandbox: CodeSandbox, queues: Collection[str]) -> str:
    """Name of the queue that has to admit the sandbox; empty: none. `queues` are those of its namespace."""
    return sandbox.spec.queue or (DEFAULT_QUEUE if DEFAULT_QUEUE in queues else "")


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
    if said is None:
        return Admission(False, Finding(Reason.WAITING_FOR_ADMISSION, f"queue {queue} has not looked at it yet"))
    return Admission(False, _waits(said), ends=True)


def _waits(said: AdmissionStatus) -> Finding:
    return Finding(Reason.WAITING_FOR_ADMISSION, said.message)


def ended_by_queue(seen: Observed) -> Finding | None:
    """Why the sandbox may have no pod any more; None if it may."""
    found = admission_of(seen)
    return found.finding if found is not None and found.ends else None


def held_by_queue(seen: Observed) -> Finding | None:
    """Why no pod may be created yet; None if one may. A pod from before the queue goes on."""
    found = admission_of(seen)
    if found is None or found.admitted or (seen.pod is not None and is_own(seen.pod, seen)):
        return None
    return found.finding
