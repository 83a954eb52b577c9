"""What the status of a CodeSandbox says that the operator cannot read: a newer version, or a person, wrote it."""

from collections.abc import Mapping
from typing import Any

from sandfleet_operator.api.conditions import ConditionType, Reason
from sandfleet_operator.api.times import time_text
from sandfleet_operator.plan.sandbox.status import MAX_MESSAGE

Json = dict[str, Any]
# Ready is Unknown rather than False: a pod that runs goes on, and the operator does not follow it any more.
SAID = {ConditionType.READY.value: "Unknown", ConditionType.DEGRADED.value: "True"}


def unreadable_conditions(obj: Mapping[str, Any], why: str, now: float) -> list[Json] | None:
    """The conditions with Ready and Degraded replaced; None if they say this already.

    Other conditions stay as they are. `now` is seconds since the epoch.
    """
    generation = obj["metadata"].get("generation", 0)
    known = {str(one.get("type")): one for one in _objects(_objects_of(obj.get("status")).get("conditions"))}
    wanted = {kind: _condition(kind, holds, why, generation) for kind, holds in SAID.items()}
    if all(_says(known.get(kind), one) for kind, one in wanted.items()):
        return None
    for kind, one in wanted.items():
        before = known.get(kind, {})
        same = before.get("status") == one["status"] and "lastTransitionTime" in before
        one["lastTransitionTime"] = before["lastTransitionTime"] if same else time_text(now)
    return list({**known, **wanted}.values())


def _condition(kind: str, holds: str, why: str, generation: object) -> Json:
    said = {"type": kind, "status": holds, "reason": Reason.UNREADABLE.value, "message": why[:MAX_MESSAGE]}
    return {**said, "observedGeneration": generation}


def _says(before: Mapping[str, Any] | None, wanted: Json) -> bool:
    return before is not None and {**before, **wanted} == before


def _objects_of(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> list[Json]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def named_workspaces(obj: Mapping[str, Any]) -> set[object]:
    """Names of the volume claims that an unreadable CodeSandbox may use, so that no other sandbox takes them."""
    status, spec = _objects_of(obj.get("status")), _objects_of(obj.get("spec"))
    found = (status.get("workspaceClaimName"), _objects_of(spec.get("workspace")).get("claimName"))
    return {one for one in found if isinstance(one, str) and one}
