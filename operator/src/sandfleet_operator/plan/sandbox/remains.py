"""What a pod counts against its queue's quota when its CodeSandbox is gone before it.

The pod says its queue itself, in metadata that only the control plane writes: the annotation QUEUE of the operator, or
the claim's record. A pod can only count against a queue of its own namespace.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.sandbox import CodeSandbox
from sandfleet_operator.api.quantities import parse_bytes, parse_cores
from sandfleet_operator.api.table import as_type
from sandfleet_operator.api.values import Amount
from sandfleet_operator.plan.claims.record import NAME, Record, read_record
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.podspec import CONTAINER, PodState
from sandfleet_operator.plan.sandbox.binding import Binding
from sandfleet_operator.plan.sandbox.observed import Pod


@dataclass(frozen=True, slots=True)
class Remains:
    """`queue` is NAMESPACE/NAME."""

    queue: str
    amount: Amount


def queue_for_pod(sandbox: CodeSandbox, binding: Binding | None) -> str:
    """Name of the queue that has admitted the sandbox, for the annotation of its next pod; empty: none has."""
    said = sandbox.status.admission
    if said is not None:
        return said.queue
    return binding.record.queue.rpartition("/")[2] if binding is not None else ""


def remains_of(pod: Pod, obj: Mapping[str, Any]) -> Remains | None:
    """None where the pod counts for nothing without its CodeSandbox."""
    namespace, state = obj["metadata"]["namespace"], pod.labels.get(names.STATE)
    record = read_record(pod.annotations.get(names.CLAIM, ""))
    if record is None:
        name = pod.annotations.get(names.QUEUE, "")
        counts = state == PodState.CLAIMED.value and NAME.fullmatch(name)
        return Remains(f"{namespace}/{name}", _requested(obj)) if counts else None
    # Without an owner it waits for its CodeSandbox, unless its session is over.
    is_over = pod.deleting or state == PodState.RETIRING.value
    if state == PodState.WARM.value or not (pod.owner or is_over):
        return None
    return remains_of_session(pod, record, namespace)


def remains_of_session(pod: Pod, record: Record, namespace: str) -> Remains | None:
    """It counts until its processes have ended."""
    if pod.ended is not None or record.amount is None or not record.queue.startswith(f"{namespace}/"):
        return None
    return Remains(record.queue, record.amount)


def _requested(obj: Mapping[str, Any]) -> Amount:
    try:
        spec = as_type(obj.get("spec"), dict, "spec")
        containers = [as_type(one, dict, "container") for one in as_type(spec.get("containers"), list, "containers")]
        mine = next((one for one in containers if one.get("name") == CONTAINER), {})
        resources = as_type(mine.get("resources"), dict, "resources")
        requests = as_type(resources.get("requests"), dict, "requests")
        cpu = parse_cores(requests.get("cpu", 0), "cpu")
        return Amount(sandboxes=1, cpu=round(cpu * 1000), memory=parse_bytes(requests.get("memory", 0), "memory"))
    except FleetError:
        return Amount(sandboxes=1)
