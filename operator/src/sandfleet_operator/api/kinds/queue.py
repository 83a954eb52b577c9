"""SandboxQueue: where claims wait, in Kueue's words. On one machine a file has the same specs."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated

from sandfleet_operator.api.kinds.meta import Condition, Meta, meta_of, part
from sandfleet_operator.api.quantities import parse_quantity
from sandfleet_operator.api.table import at, decode, in_bytes, moment, unreadable, whole

# Name of the queue that the claims of its namespace use where they name none.
DEFAULT_QUEUE = "default"


def _in_millicores(value: object, path: str) -> int:
    """Rounded up, as Kubernetes does."""
    return -int(-parse_quantity(value, path) * 1000 // 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """Sandboxes, and what their templates ask for: CPU in millicores, memory in bytes. None: without bound."""

    sandboxes: Annotated[int | None, at("sandboxes")] = None
    cpu: Annotated[int | None, at("cpu", _in_millicores)] = None
    memory: Annotated[int | None, at("memory", in_bytes)] = None


class StopPolicy(Enum):
    """Kueue's words."""

    NONE = "None"
    # Claims wait; what is admitted goes on.
    HOLD = "Hold"
    # Admitted sandboxes end as well: suspended where they can be, released otherwise.
    HOLD_AND_DRAIN = "HoldAndDrain"


class Preemption(Enum):
    """What may happen to a sandbox on borrowed quota when the quota's owner needs it."""

    NEVER = "Never"
    # The session that is idle longest is suspended.
    SUSPEND = "Suspend"
    # A session that cannot be suspended, on an ephemeral workspace, may be released.
    RELEASE = "Release"


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """Claims name it. A restricted one may be named by callers with the verb `prioritize` on the queue."""

    name: Annotated[str, at("name", required=True)] = ""
    restricted: Annotated[bool, at("restricted")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpec:
    """Spec of a SandboxQueue."""

    weight: Annotated[float, at("weight", whole)] = 1.0
    cohort: Annotated[str, at("cohort")] = ""
    nominal: Annotated[Quota, at("nominalQuota")] = field(default_factory=Quota)
    # More than the nominal quota that it may take from its cohort.
    borrowing: Annotated[Quota, at("borrowingLimit")] = field(default_factory=Quota)
    # The most of its nominal quota that it lends.
    lending: Annotated[Quota, at("lendingLimit")] = field(default_factory=Quota)
    # The first is served first. A claim that names none is of the last.
    priority_classes: Annotated[tuple[PriorityClass, ...], at("priorityClasses")] = ()
    # After each such time of waiting a claim counts as of the next higher class.
    ageing: Annotated[float, at("ageingSeconds", whole)] = 60.0
    # Bounds on the claims that wait; None: the fleet's own.
    max_wait: Annotated[float | None, at("maxWaitSeconds", whole)] = None
    max_length: Annotated[int | None, at("maxLength")] = None
    stop: Annotated[StopPolicy, at("stopPolicy")] = StopPolicy.NONE
    preemption: Annotated[Preemption, at("preemption")] = Preemption.NEVER


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageStatus:
    """What the admitted sandboxes have of each part of the quota; CPU and memory as quantities."""

    sandboxes: Annotated[int, at("sandboxes")] = 0
    cpu: Annotated[str, at("cpu")] = "0"
    memory: Annotated[str, at("memory")] = "0"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatus:
    """Status of a SandboxQueue; the fleet is its only writer."""

    conditions: Annotated[tuple[Condition, ...], at("conditions")] = ()
    observed_generation: Annotated[int, at("observedGeneration")] = 0
    # Claims and CodeSandboxes that wait.
    pending: Annotated[int, at("pending")] = 0
    admitted: Annotated[int, at("admitted")] = 0
    # Sandboxes above the nominal quota.
    borrowed: Annotated[int, at("borrowed")] = 0
    usage: Annotated[UsageStatus, at("usage")] = UsageStatus()
    # Of the nominal quota, and of what the cohort lends: percentages.
    used: Annotated[str, at("used", empty="null")] = ""
    share: Annotated[str, at("share", empty="null")] = ""
    admissions: Annotated[int, at("admissionsPerMinute")] = 0
    # Seconds since the epoch; None: nothing waits.
    oldest: Annotated[float | None, at("oldestPendingTime", moment, empty="null")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxQueue:
    meta: Meta
    spec: QueueSpec


def queue_spec(value: object, path: str = "spec") -> QueueSpec:
    """Raises FleetError."""
    spec = decode(QueueSpec, value, path)
    if spec.cohort:
        return spec
    for name, quota in (("borrowingLimit", spec.borrowing), ("lendingLimit", spec.lending)):
        if quota != Quota():
            raise unreadable(f"{path}.{name}", "a queue without a cohort has no queue to borrow from or to lend to")
    return spec


def sandbox_queue(value: object) -> SandboxQueue:
    """Raises FleetError."""
    return SandboxQueue(meta=meta_of(value), spec=queue_spec(part(value, "spec")))
