"""Turns the findings of a round into the conditions of the status."""

from dataclasses import dataclass, replace

from sandfleet_operator.api.conditions import ConditionType, Reason
from sandfleet_operator.api.kinds.meta import Condition
from sandfleet_operator.api.kinds.sandbox import SandboxStatus

MAX_MESSAGE = 1024


@dataclass(frozen=True, slots=True)
class Finding:
    """The reason and the message of a condition; without a message, the reason's meaning is used."""

    reason: Reason
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """One finding for each condition.

    None means that all is well: Ready and Isolated hold; Suspended, Expired and Degraded do not.
    """

    # Why code cannot run.
    not_ready: Finding | None
    scheduled: bool = False
    isolated: Finding | None = None
    # The sandbox is suspended (True) or its pod is still ending (False); None: the sandbox is to run.
    suspended: bool | None = None
    # What is said of a suspended one, where its meaning does not say it.
    kept_in: str = ""
    expired: Finding | None = None
    degraded: Finding | None = None


def with_conditions(status: SandboxStatus, found: Findings, now: float, generation: int) -> SandboxStatus:
    """The status with the six conditions of each sandbox. An unchanged condition keeps its transition time."""
    known = {one.type: one for one in status.conditions}
    conditions = tuple(
        _kept(known.get(kind.value), _condition(kind, holds, finding), now, generation)
        for kind, (holds, finding) in _all(found).items()
    )
    return replace(status, conditions=conditions, observed_generation=generation)


def with_admission(
    status: SandboxStatus, admitted: bool, finding: Finding, before: SandboxStatus, now: float
) -> SandboxStatus:
    """The status with the condition Admitted in front, which `before` may have had."""
    known, kind = condition(before, ConditionType.ADMITTED), ConditionType.ADMITTED
    one = _kept(known, _condition(kind, admitted, finding), now, status.observed_generation)
    return replace(status, conditions=(one, *(other for other in status.conditions if other.type != kind.value)))


def with_saving(status: SandboxStatus, before: SandboxStatus, now: float) -> SandboxStatus:
    """The status of a sandbox that is to sleep and whose pod stays until its session is saved."""
    kind, finding = ConditionType.SUSPENDED, Finding(Reason.SAVING_SNAPSHOT)
    saving = _kept(condition(before, kind), _condition(kind, False, finding), now, status.observed_generation)
    return replace(status, conditions=tuple(saving if one.type == kind.value else one for one in status.conditions))


def _all(found: Findings) -> dict[ConditionType, tuple[bool, Finding]]:
    ready = found.not_ready or Finding(Reason.EXECUTOR_ANSWERS)
    suspended = {None: Reason.RUNNING, False: Reason.SUSPENDING, True: Reason.SUSPENDED}[found.suspended]
    return {
        ConditionType.READY: (found.not_ready is None, ready),
        ConditionType.POD_SCHEDULED: (found.scheduled, Finding(Reason.SCHEDULED) if found.scheduled else ready),
        ConditionType.ISOLATED: (found.isolated is None, found.isolated or Finding(Reason.ISOLATED)),
        ConditionType.SUSPENDED: (
            found.suspended is True,
            Finding(suspended, found.kept_in if found.suspended else ""),
        ),
        ConditionType.EXPIRED: (found.expired is not None, found.expired or Finding(Reason.ALIVE)),
        ConditionType.DEGRADED: (found.degraded is not None, found.degraded or Finding(Reason.HEALTHY)),
    }


def _condition(kind: ConditionType, holds: bool, finding: Finding) -> Condition:
    message = finding.message or finding.reason.meaning
    return Condition(
        type=kind.value,
        status="True" if holds else "False",
        reason=finding.reason.value,
        message=message[:MAX_MESSAGE],
    )


def _kept(old: Condition | None, new: Condition, now: float, generation: int) -> Condition:
    since = old.changed if old is not None and old.status == new.status else now
    return replace(new, changed=since, observed_generation=generation)


def condition(status: SandboxStatus, kind: ConditionType) -> Condition | None:
    return next((one for one in status.conditions if one.type == kind.value), None)


def holds(status: SandboxStatus, kind: ConditionType) -> bool:
    one = condition(status, kind)
    return one is not None and one.status == "True"


def is_proved(status: SandboxStatus) -> bool:
    """Whether the isolation of the recorded pod was proved: only then does Isolated speak of policies of others."""
    one = condition(status, ConditionType.ISOLATED)
    return one is not None and (one.status == "True" or one.reason == Reason.OPENED_BY_OTHERS.value)


def ready_change(old: SandboxStatus, new: SandboxStatus) -> Condition | None:
    """The condition Ready, if its reason has changed: users are told in an Event."""
    before, after = condition(old, ConditionType.READY), condition(new, ConditionType.READY)
    return None if before and after and before.reason == after.reason else after


def is_urgent(old: SandboxStatus, new: SandboxStatus) -> bool:
    """Whether a condition changed that users wait for. Other changes may be batched with the next important one."""
    quiet = {ConditionType.POD_SCHEDULED.value}

    def said(status: SandboxStatus) -> set[tuple[str, str, str]]:
        return {(one.type, one.status, one.reason) for one in status.conditions if one.type not in quiet}

    return said(old) != said(new) or old.observed_generation != new.observed_generation


def is_unchanged(old: SandboxStatus, new: SandboxStatus) -> bool:
    """Whether nothing but the fencing number would change."""
    return replace(old, fencing=0) == replace(new, fencing=0)
