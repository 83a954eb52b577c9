"""What the status says of the services that a sandbox's pod declares, and the Events about them.

While the sandbox is Ready, the status shows what the executor reports. Otherwise services are Unknown; without a pod
there are none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sandfleet_operator.api.conditions import ConditionType, Reason, ServiceReason
from sandfleet_operator.api.kinds.sandbox import SandboxStatus, ServiceState, ServiceStatus
from sandfleet_operator.api.kinds.services import NAME
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.sandbox.actions import AskServices, Plan
from sandfleet_operator.plan.sandbox.observed import Heard, Observed, Pod
from sandfleet_operator.plan.sandbox.status import condition

# The most that a template may declare.
MAX_SERVICES = 16
MAX_MESSAGE = 256
MAX_NOTE = 1024
WELL = frozenset({ServiceState.READY, ServiceState.COMPLETED})
# The state stays the same until a caller changes it or something breaks.
AT_REST = WELL | {ServiceState.FAILED, ServiceState.STOPPED}
# Restarts after which a service in back-off is reported as crash-looping; a single end is not reported.
LOOP_RESTARTS = 2


def with_services(seen: Observed, made: Plan) -> Plan:
    """The plan with the services in its status, and with the executor to ask for them."""
    status, pod = made.status, seen.pod
    known = status.services if status.pod_uid == seen.sandbox.status.pod_uid else ()
    if not status.pod_uid:
        return replace(made, status=_saying(status, ()))
    if pod is None or pod.uid != status.pod_uid:
        return replace(made, status=_saying(status, _unknown(known, _ready(status)[1])))
    declared = declared_by(pod)
    if not declared:
        return replace(made, status=_saying(status, ()))
    ready, why = _ready(status)
    if not ready:
        return replace(made, status=_saying(status, _unknown(known, why)))
    heard = seen.heard if seen.heard and seen.heard.pod_uid == pod.uid else None
    meta = seen.sandbox.meta
    whom = AskServices(meta.namespace, meta.name, pod.uid, status.address, pod.contract, pod.node)
    return replace(made, status=_saying(status, _shown(declared, known, heard)), ask=whom)


def declared_by(pod: Pod) -> tuple[str, ...]:
    """Names of the services that the pod was created with."""
    found = pod.annotations.get(names.SERVICES, "").split(",")
    # Any user who may write pods can change the annotation: leave out names that the status could not hold.
    return tuple(dict.fromkeys(name for name in found if NAME.fullmatch(name)))[:MAX_SERVICES]


def _shown(
    declared: tuple[str, ...], known: tuple[ServiceStatus, ...], heard: Heard | None
) -> tuple[ServiceStatus, ...]:
    if heard is None:
        return known
    if heard.problem:
        before = _by_name(known)
        all_of_them = (before.get(name, ServiceStatus(name=name, state=ServiceState.UNKNOWN)) for name in declared)
        return _unknown(tuple(all_of_them), Reason.EXECUTOR_UNREACHABLE.value, heard.problem)
    said = _by_name(heard.services)
    return tuple(said[name] for name in declared if name in said)


def _unknown(services: tuple[ServiceStatus, ...], reason: str, message: str = "") -> tuple[ServiceStatus, ...]:
    """The state of the services is not known. The count of restarts still holds."""
    changes = {"state": ServiceState.UNKNOWN, "reason": reason, "message": message[:MAX_MESSAGE], "ports": ()}
    return tuple(replace(one, **changes) for one in services)  # type: ignore[arg-type] # each of its kind


def _saying(status: SandboxStatus, services: tuple[ServiceStatus, ...]) -> SandboxStatus:
    well = sum(one.state in WELL for one in services)
    return replace(status, services=services, services_ready=f"{well}/{len(services)}" if services else "")


def _ready(status: SandboxStatus) -> tuple[bool, str]:
    """Whether the sandbox is Ready, and the reason."""
    one = condition(status, ConditionType.READY)
    return (one.status == "True", one.reason) if one else (False, "")


def _by_name(services: tuple[ServiceStatus, ...]) -> Mapping[str, ServiceStatus]:
    return {one.name: one for one in services}


@dataclass(frozen=True, slots=True)
class Note:
    """The reason and the message of an Event."""

    reason: str
    message: str


# Troubles that users have been told of: the service and what is wrong with it.
Told = frozenset[tuple[str, ServiceReason]]


def notes(told: Told, old: tuple[ServiceStatus, ...], new: tuple[ServiceStatus, ...]) -> tuple[tuple[Note, ...], Told]:
    """The Events to write now that the status says `new`, one for each reason; and what users have been told then.

    Troubles in the old status count as told: an earlier operator has written their Events.
    """
    told |= {(one.name, why) for one in old if (why := _trouble(one))}
    news: dict[ServiceReason, list[str]] = {}
    for one in new:
        why = _trouble(one)
        if why and (one.name, why) not in told:
            news.setdefault(why, []).append(_described(one))
        elif one.state in WELL and any(name == one.name for name, _ in told):
            news.setdefault(ServiceReason.SERVICE_READY, []).append(f"service {one.name} is ready again")
    troubled = {(one.name, why) for one in new if (why := _trouble(one))}
    over = {one.name for one in new if one.state in {*WELL, ServiceState.STOPPED}}
    found = tuple(Note(reason.value, "; ".join(said)[:MAX_NOTE]) for reason, said in news.items())
    return found, frozenset(pair for pair in told | troubled if pair[0] not in over)


def _trouble(one: ServiceStatus) -> ServiceReason | None:
    if one.state is ServiceState.FAILED:
        return ServiceReason.SERVICE_FAILED
    if one.state is ServiceState.BACK_OFF and one.restarts >= LOOP_RESTARTS:
        return ServiceReason.SERVICE_CRASH_LOOP
    return None


def _described(one: ServiceStatus) -> str:
    how = (
        "has failed and is not restarted"
        if one.state is ServiceState.FAILED
        else f"ended again, after {one.restarts} restarts"
    )
    why = ": ".join(part for part in (one.reason, one.message) if part)
    return f"service {one.name} {how}" + (f" ({why})" if why else "")
