"""The suspension of a session as its CodeSandbox keeps it: `spec.operatingMode`, and the time when it is over.

The owner of the CodeSandbox may set the mode, too. Such a suspension has no time of its own: it begins when the
operator says that it is Suspended.
"""

import math
import re

from sandfleet_operator.api.conditions import ConditionType
from sandfleet_operator.api.kinds.sandbox import CodeSandbox, OperatingMode, SuspendTo
from sandfleet_operator.api.kube import Json
from sandfleet_operator.plan.claims.patches import annotation_path
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.sandbox.status import condition

# Seconds since the epoch.
_TEXT = re.compile(r"[0-9]{1,12}")
_PREEMPTED = re.compile(r"([0-9]{1,12})-([0-9]{1,12})")


def is_suspended(sandbox: CodeSandbox) -> bool:
    """Whether it is to have no pod."""
    return sandbox.spec.operating_mode is OperatingMode.SUSPENDED


def suspended_until(sandbox: CodeSandbox, longest: float = math.inf) -> float | None:
    """When the suspension is over, as far as the object says it: by its annotation, or `longest` after it began."""
    text = sandbox.meta.annotations.get(names.SUSPENDED_UNTIL, "")
    said = float(text) if _TEXT.fullmatch(text) else None
    since = condition(sandbox.status, ConditionType.SUSPENDED)
    latest = since.changed + longest if since is not None and since.status == "True" else None
    known = [one for one in (said, latest) if one is not None and math.isfinite(one)]
    return min(known) if known else None


def preempted(sandbox: CodeSandbox) -> tuple[float, float] | None:
    """Since when it is, and when its claim has arrived; None: it is not preempted."""
    found = _PREEMPTED.fullmatch(sandbox.meta.annotations.get(names.PREEMPTED, ""))
    return (float(found[1]), float(found[2])) if found and is_suspended(sandbox) else None


def suspend_patch(
    uid: str,
    until: float | None,
    since: tuple[float, float] | None = None,
    to: SuspendTo = SuspendTo.VOLUME,
) -> list[Json]:
    """`until` None: it has no end of its own. `since`: when it was preempted, and when its claim has arrived."""
    annotations = {
        names.SUSPENDED_UNTIL: "" if until is None else str(int(until)),
        names.PREEMPTED: "" if since is None else f"{int(since[0])}-{int(since[1])}",
    }
    how = {"op": "add", "path": "/spec/suspend", "value": {"to": to.value}}
    return [*_patch(uid, OperatingMode.SUSPENDED, annotations), how]


def resume_patch(uid: str) -> list[Json]:
    """The lease begins anew: its end before the suspension means nothing."""
    return _patch(uid, OperatingMode.RUNNING, {names.SUSPENDED_UNTIL: "", names.LEASE_EXPIRES: "", names.PREEMPTED: ""})


def _patch(uid: str, mode: OperatingMode, annotations: dict[str, str]) -> list[Json]:
    return [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "add", "path": "/spec/operatingMode", "value": mode.value},
        *({"op": "add", "path": annotation_path(key), "value": value} for key, value in annotations.items()),
    ]
