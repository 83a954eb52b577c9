"""One round for one CodeSandbox: what was seen → what to do, and what its status says.

    expired ──► no pod, for good                     suspended ──► no pod, the workspace stays
    to run: policies ─► keys ─► volume ─► pod ─► executor greeted ─► Ready
    a pod that ended: the books first, then its deletion, then another one on the same workspace

Nothing is started before default deny and the egress policy are there, and never a second pod while the first may exist.
"""

from dataclasses import replace

from sandfleet_operator.api.conditions import ConditionType, Reason, reason
from sandfleet_operator.api.resources import OperatingMode, SandboxStatus
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.plan.effective import Effective, Refusal, effective
from sandfleet_operator.plan.sandbox import ends, parts, running
from sandfleet_operator.plan.sandbox.actions import Action, DeletePod, Plan
from sandfleet_operator.plan.sandbox.observed import Observed, Pod, has_no_volume, is_unrecorded
from sandfleet_operator.plan.sandbox.services import with_services
from sandfleet_operator.plan.sandbox.status import Finding, Findings, condition, holds, with_conditions


def plan(seen: Observed, now: float, settings: Settings) -> Plan:
    """`now` is seconds since the epoch."""
    if seen.sandbox.meta.deleting:
        return Plan(status=seen.sandbox.status)
    return with_services(seen, _of_what_is_seen(seen, now, settings))


def _of_what_is_seen(seen: Observed, now: float, settings: Settings) -> Plan:
    status = seen.sandbox.status
    end = ends.end_of(seen)
    expired = _expired(seen, end, now, settings)
    if expired is not None:
        return _without_pod(seen, status, now, expired=expired)
    if seen.sandbox.spec.operating_mode is OperatingMode.SUSPENDED:
        return _without_pod(seen, status, now, suspended=True)
    if end is not None:
        return _book(seen, end, now, settings)
    if status.crashes > settings.recovery.max_crashes:
        return _without_pod(seen, status, now, broken=_too_many(status))
    return _run(seen, now, settings)


def _expired(seen: Observed, end: ends.End | None, now: float, settings: Settings) -> Finding | None:
    """Why there is to be no pod any more."""
    status = seen.sandbox.status
    over = condition(status, ConditionType.EXPIRED)
    if over and over.status == "True":
        return Finding(reason(over.reason), over.message)
    if end is not None and end.final:
        return Finding(end.reason, end.message)
    left = lifetime_left(seen, now, settings)
    if left is not None and left <= 0:
        return Finding(Reason.LIFETIME_OVER)
    return None


def lifetime_left(seen: Observed, now: float, settings: Settings) -> float | None:
    """Seconds; None for a sandbox that has no end."""
    given = seen.lifetime
    if given is None and seen.sandbox.spec.inline and settings.inline:
        given = settings.inline.max_lifetime
    return None if given is None else seen.sandbox.meta.created + given - now


def _too_many(status: SandboxStatus) -> Finding:
    last = status.restart_history[-1] if status.restart_history else None
    why = f"; the last end: {last.reason}, {last.message}" if last else ""
    return Finding(Reason.TOO_MANY_RESTARTS, f"it ended {status.crashes} times without a stable stretch{why}")


def _without_pod(
    seen: Observed,
    status: SandboxStatus,
    now: float,
    *,
    suspended: bool = False,
    expired: Finding | None = None,
    broken: Finding | None = None,
) -> Plan:
    """The pod goes, the workspace stays."""
    pod, meta = seen.pod, seen.sandbox.meta
    gone = pod is None or not parts.is_own(pod, seen)
    if gone:
        status = ends.forget_pod(status)
    kept: tuple[Action, ...] = ()
    if expired is None or expired.reason is not Reason.CLAIM_OVER:
        # The warm pod's workspace is the sandbox's, also when it never ran under its own name.
        claim, kept = parts.workspace_kept(seen)
        status = replace(status, workspace_claim=claim)
    if suspended:
        # Whoever suspends a sandbox that ended too often, and resumes it, has seen to the cause.
        status = replace(status, crashes=0)
    going = Finding(Reason.SUSPENDED if gone else Reason.SUSPENDING)
    not_ready = expired or broken or going
    found = Findings(
        not_ready=not_ready,
        isolated=not_ready,
        suspended=gone if suspended else None,
        expired=expired,
        degraded=broken,
    )
    return Plan(
        status=with_conditions(status, found, now, meta.generation),
        actions=(*kept, *_delete(pod, seen)),
        # That it is over has to be written before the evidence, its exit code, goes. And that a pod was this sandbox's before
        # we delete it: one that is gone, of which nothing was written, is no suspended one.
        status_first=expired is not None or (seen.claimed_pod is not None and is_unrecorded(seen.sandbox)),
    )


def _delete(pod: Pod | None, seen: Observed) -> tuple[Action, ...]:
    if pod is None or pod.deleting or not parts.is_own(pod, seen):
        return ()
    return (DeletePod(seen.sandbox.meta.namespace, pod.name, pod.uid),)


def _book(seen: Observed, end: ends.End, now: float, settings: Settings) -> Plan:
    """The pod is over: that it counts is written before it is deleted, and forgets it, so that it counts once."""
    status = ends.after(seen.sandbox.status, end, now, settings.recovery)
    finding = Finding(end.reason, end.message)
    found = Findings(not_ready=finding, isolated=finding)
    return Plan(
        status=with_conditions(status, found, now, seen.sandbox.meta.generation),
        actions=_delete(seen.pod, seen),
        status_first=True,
        again=0.0 if seen.pod is None else None,
    )


def _run(seen: Observed, now: float, settings: Settings) -> Plan:
    wanted = _wanted(seen, settings)
    if isinstance(wanted, Refusal):
        return _refused(seen, wanted, now, settings)
    policies = parts.policies(seen, wanted, settings)
    volume = parts.volume(seen, wanted)
    lifetime = lifetime_left(seen, now, settings)
    here = running.Moment(seen=seen, wanted=wanted, now=now, settings=settings, lifetime=lifetime, held=volume.blocked)
    if (corrected := running.correction(here)) is not None:
        return _book(seen, corrected, now, settings)
    round_ = running.pod_round(here)
    isolated = parts.isolation(seen, round_.proved, policies_complete=not policies)
    found = Findings(
        not_ready=round_.not_ready or isolated,
        scheduled=bool(seen.pod and seen.pod.node),
        isolated=isolated,
        degraded=volume.degraded,
    )
    status = replace(round_.status, workspace_claim=volume.name or round_.status.workspace_claim)
    # What was refused is asked for again after a pause, and what comes after it as well.
    pause = running.refused_left(seen, now)
    before = () if pause else (*policies, *parts.keys(seen), *volume.actions)
    return Plan(
        status=with_conditions(status, found, now, seen.sandbox.meta.generation),
        actions=(*before, *round_.actions),
        again=_sooner(round_.again, lifetime, pause or None),
    )


def _wanted(seen: Observed, settings: Settings) -> Effective | Refusal:
    spec = seen.sandbox.spec
    if seen.template_problem:
        return Refusal(Reason.TEMPLATE_INVALID, seen.template_problem)
    if spec.template and seen.template is None:
        namespace = seen.sandbox.meta.namespace
        why = f"there is no SandboxTemplate {spec.template!r} in namespace {namespace}"
        return Refusal(Reason.TEMPLATE_NOT_FOUND, f"cannot make a sandbox: {why}")
    wanted = effective(seen.template.spec if seen.template else None, spec, settings)
    if isinstance(wanted, Effective):
        return replace(wanted, ephemeral=has_no_volume(seen))
    return wanted


def _refused(seen: Observed, refusal: Refusal, now: float, settings: Settings) -> Plan:
    """Nothing new is started. A pod that runs goes on, with nothing to reach beyond what policies that are left allow."""
    finding = Finding(refusal.reason, refusal.message)
    status, pod = seen.sandbox.status, seen.pod
    alive = pod is not None and pod.uid == status.pod_uid and pod.ended is None and not pod.deleting
    ready = alive and holds(status, ConditionType.READY)
    found = Findings(
        not_ready=None if ready else finding,
        scheduled=bool(pod and pod.node),
        isolated=None if alive and holds(status, ConditionType.ISOLATED) else finding,
        degraded=finding if alive else None,
    )
    return Plan(
        status=with_conditions(status, found, now, seen.sandbox.meta.generation),
        actions=parts.close_own_egress(seen),
        again=lifetime_left(seen, now, settings),
    )


def _sooner(*moments: float | None) -> float | None:
    given = [moment for moment in moments if moment is not None]
    return max(0.0, min(given)) if given else None
