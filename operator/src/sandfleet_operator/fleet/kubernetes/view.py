"""A CodeSandbox as callers of the fleet see it: pure."""

import re
from dataclasses import dataclass

from google.protobuf.timestamp_pb2 import Timestamp
from sandfleet_api.executor.v1 import session_pb2
from sandfleet_api.fleet.v1 import fleet_pb2

from sandfleet_operator.api.conditions import ConditionType, Reason
from sandfleet_operator.api.errors import Code, FleetError, Problem, invalid
from sandfleet_operator.api.resources import CodeSandbox, Condition, Contract
from sandfleet_operator.plan.reach import Known, ReachState

# NAMESPACE/NAME, each a DNS label as the schema wants them.
SANDBOX_ID = re.compile(r"([a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)/([a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)")
# The operator is at work on these, or another controller is: asking again later may help.
PASSING = frozenset(
    one.value
    for one in (
        Reason.WAITING_FOR_CLAIM,
        Reason.WORKSPACE_PENDING,
        Reason.WORKSPACE_IN_USE,
        Reason.SCHEDULED,
        Reason.POD_STARTING,
        Reason.EXECUTOR_UNREACHABLE,
        Reason.BACK_OFF,
        Reason.POLICY_MISSING,
        Reason.POLICY_IN_PLACE,
        Reason.ISOLATED,
        Reason.RUNNING,
        Reason.OUT_OF_MEMORY,
        Reason.EXECUTOR_CRASHED,
        Reason.EXECUTOR_IDENTITY_INVALID,
        Reason.EVICTED,
        Reason.POD_DELETED,
        Reason.NODE_LOST,
        Reason.DRIFTED,
    )
)
EGRESSES = {
    ReachState.DENIED: fleet_pb2.EGRESS_STATE_DENIED,
    ReachState.OPENING: fleet_pb2.EGRESS_STATE_OPENING,
    ReachState.OPEN: fleet_pb2.EGRESS_STATE_OPEN,
}
ISOLATIONS = {"gvisor": session_pb2.ISOLATION_GVISOR, "linux": session_pb2.ISOLATION_NAMESPACE}


@dataclass(frozen=True, slots=True)
class Door:
    """Where a ready sandbox is reached."""

    address: str
    pod_uid: str


def sandbox_id(sandbox: CodeSandbox) -> str:
    return f"{sandbox.meta.namespace}/{sandbox.meta.name}"


def parse_id(text: str, *, doing: str) -> tuple[str, str]:
    """Namespace and name. Raises FleetError."""
    found = SANDBOX_ID.fullmatch(text)
    if found is None:
        raise invalid("InvalidId", f"cannot {doing}: the sandbox id {text[:80]!r} is not NAMESPACE/NAME", text[:80])
    return found[1], found[2]


def door(sandbox: CodeSandbox) -> Door:
    """Raises FleetError where no code can be run in it now, with the reason of its Ready condition."""
    name, status = sandbox_id(sandbox), sandbox.status
    ready = _condition(sandbox, ConditionType.READY)
    if sandbox.meta.deleting or _is_true(_condition(sandbox, ConditionType.EXPIRED)):
        why = ready.reason if ready is not None else Reason.DELETING.value
        raise FleetError(Problem(Code.NOT_FOUND, why, f"cannot open sandbox {name}: it has ended ({why})", name))
    if ready is None:
        why = "the operator has not looked at it yet; if it lasts, see whether it runs"
        raise _closed(name, Reason.POD_STARTING.value, why)
    if ready.status != "True":
        raise _closed(name, ready.reason, ready.message or f"its Ready condition is {ready.status}")
    if sandbox.spec.contract not in {None, Contract.AUTONOMOUS}:
        raise _closed(name, "ContractNotSupported", "its contract does not let callers run code by themselves")
    if not (status.address and status.pod_uid):
        raise _closed(name, Reason.POD_STARTING.value, "its status names no address")
    return Door(status.address, status.pod_uid)


def _closed(name: str, reason: str, why: str) -> FleetError:
    message = f"cannot open sandbox {name}: {reason}: {why}"
    return FleetError(Problem(Code.FAILED_PRECONDITION, reason, message, name, passing=reason in PASSING))


def message(sandbox: CodeSandbox, egress: Known | None) -> fleet_pb2.Sandbox:
    status, created = sandbox.status, Timestamp()
    created.FromMicroseconds(round(sandbox.meta.created * 1e6))
    return fleet_pb2.Sandbox(
        sandbox_id=sandbox_id(sandbox),
        sandbox_uid=status.pod_uid,
        template=sandbox.spec.template,
        state=_state(sandbox),
        labels=sandbox.meta.labels,
        workspace_id=status.workspace_claim,
        created=created,
        isolation=ISOLATIONS.get(status.runtime, session_pb2.ISOLATION_UNSPECIFIED),
        restarts=status.restarts,
        last_restart_reason=status.restart_history[-1].reason if status.restart_history else "",
        egress=egress_message(egress) if egress else None,
    )


def egress_message(known: Known) -> fleet_pb2.EgressStatus:
    found = known.reach
    message = fleet_pb2.EgressStatus(state=EGRESSES[found.state], reason=found.reason, message=found.message)
    if known.since is not None:
        message.since.FromMicroseconds(round(known.since * 1e6))
    return message


def _state(sandbox: CodeSandbox) -> fleet_pb2.SandboxState:
    if sandbox.meta.deleting or _is_true(_condition(sandbox, ConditionType.EXPIRED)):
        return fleet_pb2.SANDBOX_STATE_ENDED
    if _is_true(_condition(sandbox, ConditionType.READY)):
        return fleet_pb2.SANDBOX_STATE_CLAIMED
    return fleet_pb2.SANDBOX_STATE_RECOVERING if sandbox.status.restarts else fleet_pb2.SANDBOX_STATE_STARTING


def _condition(sandbox: CodeSandbox, kind: ConditionType) -> Condition | None:
    return next((one for one in sandbox.status.conditions if one.type == kind.value), None)


def _is_true(condition: Condition | None) -> bool:
    return condition is not None and condition.status == "True"
