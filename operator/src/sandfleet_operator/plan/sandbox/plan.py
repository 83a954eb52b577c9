"""One round for one CodeSandbox: what was observed → what to do, and what the status says.

    expired ──► no pod, for good      suspended, or not admitted by its queue ──► no pod, the workspace stays
    to run: policies ─► keys ─► volume ─► pod ─► executor greeted ─► Ready
    a pod ended: record the end ─► delete the pod ─► create the next pod on the same workspace

No pod is created before the default-deny and egress policies are in place, nor while an earlier pod may still exist.
"""

from dataclasses import replace

from sandfleet_operator.api.conditions import ConditionType, Reason, reason
from sandfleet_operator.api.kinds.sandbox import OperatingMode, SandboxSpec, SandboxStatus
from sandfleet_operator.api.kinds.template import NetworkClosure
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.merge import Effective, Refusal, effective
from sandfleet_operator.plan.pods.podspec import spec_hash
from sandfleet_operator.plan.pods.revision import named_revision
from sandfleet_operator.plan.sandbox import dependencies, parked, restarts
from sandfleet_operator.plan.sandbox.actions import DeletePod, Plan, SandboxAction
from sandfleet_operator.plan.sandbox.admission import admission_of, ended_by_queue, held_by_queue
from sandfleet_operator.plan.sandbox.binding import has_begun
from sandfleet_operator.plan.sandbox.observed import Observed, Pod, has_no_volume
from sandfleet_operator.plan.sandbox.pod import PodRound, RoundInput, correction, labels_of_pod, pod_round, refused_left
from sandfleet_operator.plan.sandbox.services.status import with_services
from sandfleet_operator.plan.sandbox.status import (
    Finding,
    Findings,
    condition,
    holds,
    is_proved,
    with_admission,
    with_conditions,
    with_saving,
)


def plan(seen: Observed, now: float, settings: Settings) -> Plan:
    """`now` is seconds since the epoch."""
    if seen.sandbox.meta.deleting:
        return Plan(status=seen.sandbox.status)
    made = _plan_round(seen, now, settings)
    status = _with_admitted(seen, _with_binding(seen, made.status), now)
    return with_services(seen, replace(made, status=status))


def _with_admitted(seen: Observed, status: SandboxStatus, now: float) -> SandboxStatus:
    said, found = seen.sandbox.status.admission, admission_of(seen)
    status = replace(status, observed_admission=said.time if said else None)
    if found is None:
        return status
    return with_admission(status, found.admitted, found.finding, seen.sandbox.status, now)


def _with_binding(seen: Observed, status: SandboxStatus) -> SandboxStatus:
    """The status with the binding, once the operator has recorded a pod: it outlives the pod that proves it."""
    proved = seen.binding
    if status.binding is not None or proved is None or not has_begun(status):
        return status
    return replace(status, binding=proved.status)


def _plan_round(seen: Observed, now: float, settings: Settings) -> Plan:
    status = seen.sandbox.status
    end = restarts.end_of(seen)
    if (left := restarts.undone_left(seen, end, now)) > 0:
        return Plan(status=status, requeue_after=left)
    expired = _expired(seen, end, now, settings)
    if expired is not None:
        return _plan_without_pod(seen, status, now, expired=expired)
    if parked.waits_for_snapshot(seen, _own_pod(seen), now):
        return _plan_while_saved(seen, now, settings)
    if seen.sandbox.spec.operating_mode is OperatingMode.SUSPENDED:
        return _plan_without_pod(seen, status, now, suspended=True)
    if (ended := ended_by_queue(seen)) is not None:
        return _plan_without_pod(seen, status, now, held=ended)
    if end is not None:
        return _record_end(seen, end, now, settings)
    if status.crashes > settings.recovery.max_crashes:
        return _plan_without_pod(seen, status, now, broken=_too_many_crashes(status))
    if parked.has_old_volume_on_record(seen):
        # Its name is the one that would be looked for.
        return Plan(status=replace(status, workspace_claim=""), status_first=True)
    if lost := parked.left_on_lost_node(seen):
        return Plan(status=status, actions=lost)
    return _plan_to_run(seen, now, settings)


def _own_pod(seen: Observed) -> Pod | None:
    return seen.pod if seen.pod is not None and dependencies.is_own(seen.pod, seen) else None


def _plan_while_saved(seen: Observed, now: float, settings: Settings) -> Plan:
    """The pod stays until the fleet has saved the session."""
    made = _plan_to_run(seen, now, settings)
    return replace(made, status=with_saving(made.status, seen.sandbox.status, now))


def _expired(seen: Observed, end: restarts.End | None, now: float, settings: Settings) -> Finding | None:
    """Why the sandbox has expired and may have no pod any more; None if it has not."""
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
    """Seconds until the sandbox expires; None if it has no lifetime limit."""
    given = seen.lifetime
    if given is None and seen.sandbox.spec.inline and settings.inline:
        given = settings.inline.max_lifetime
    return None if given is None else seen.sandbox.meta.created + given - now


def _too_many_crashes(status: SandboxStatus) -> Finding:
    last = status.restart_history[-1] if status.restart_history else None
    why = f"; the last time: {last.reason}, {last.message}" if last else ""
    return Finding(Reason.TOO_MANY_RESTARTS, f"the sandbox ended {status.crashes} times without a stable stretch{why}")


def _plan_without_pod(
    seen: Observed,
    status: SandboxStatus,
    now: float,
    *,
    suspended: bool = False,
    held: Finding | None = None,
    expired: Finding | None = None,
    broken: Finding | None = None,
) -> Plan:
    """Delete the pod and keep the workspace."""
    if (left := parked.given_left(seen, now) if expired is None else 0.0) > 0:
        # The fleet is about to set the mode.
        seen = replace(seen, pod=None)
    pod, meta = seen.pod, seen.sandbox.meta
    gone = pod is None or not dependencies.is_own(pod, seen)
    status = _naming(None if gone else pod, status, counts=held is not None or parked.is_saved(seen))
    kept: tuple[SandboxAction, ...] = ()
    if expired is None or expired.reason is not Reason.CLAIM_OVER:
        # Record the warm pod's workspace, so that a sandbox that never ran under its own name keeps it.
        volume_claim, kept = dependencies.workspace_kept(seen)
        status = replace(status, workspace_claim=volume_claim)
    # After a resume, earlier crashes no longer keep the sandbox down.
    status = replace(status, crashes=0 if suspended else status.crashes)
    status, kept = parked.asleep(seen, status, kept, gone=gone, now=now)
    not_ready = expired or broken or held or Finding(Reason.SUSPENDED if gone else Reason.SUSPENDING)
    found = Findings(
        not_ready=not_ready,
        isolated=not_ready,
        suspended=gone if suspended else None,
        kept_in=_kept_in(status),
        expired=expired,
        degraded=broken,
    )
    return Plan(
        status=with_conditions(status, found, now, meta.generation),
        actions=(*kept, *_delete(pod, seen)),
        status_first=_is_evidence(seen, status, expired),
        requeue_after=left or None,
    )


def _is_evidence(seen: Observed, status: SandboxStatus, expired: Finding | None) -> bool:
    """Whether the status has to be written before the pod goes.

    An expiry is, whose evidence is the pod's exit code. So is a bound pod: one that vanished unrecorded would look like
    a suspended sandbox.
    """
    is_bound = seen.claimed_pod is not None and not has_begun(seen.sandbox.status)
    return expired is not None or parked.is_news(seen, status) or is_bound


def _kept_in(status: SandboxStatus) -> str:
    return f"The pod is gone. The session is in snapshot {status.restores_from}." if status.restores_from else ""


def _naming(pod: Pod | None, status: SandboxStatus, *, counts: bool) -> SandboxStatus:
    if pod is None:
        return restarts.forget_pod(status)
    # The quota of a held sandbox is free when its status names no pod. One that has ended uses none: named now, its end
    # would be read as the end of the sandbox. That a saved one is gone has to be known of this very pod.
    return replace(status, pod=pod.name, pod_uid=pod.uid) if counts and pod.ended is None else status


def _delete(pod: Pod | None, seen: Observed) -> tuple[SandboxAction, ...]:
    if pod is None or pod.deleting or not dependencies.is_own(pod, seen):
        return ()
    return (DeletePod(seen.sandbox.meta.namespace, pod.name, pod.uid),)


def _record_end(seen: Observed, end: restarts.End, now: float, settings: Settings) -> Plan:
    """Record the end in the status before deleting the pod, so that a crash is counted exactly once."""
    status = restarts.after(seen.sandbox.status, end, now, settings.recovery)
    # A session that was held had been saved, whatever its pod died of.
    gone = seen.pod is None or seen.pod.ended is not None
    status = replace(status, restores_from=parked.restores_from(seen, gone=gone, now=now))
    finding = Finding(end.reason, end.message)
    found = Findings(not_ready=finding, isolated=finding)
    return Plan(
        status=with_conditions(status, found, now, seen.sandbox.meta.generation),
        actions=_delete(seen.pod, seen),
        status_first=True,
        requeue_after=0.0 if seen.pod is None else None,
    )


def _plan_to_run(seen: Observed, now: float, settings: Settings) -> Plan:
    filling = Finding(Reason.RESTORING_SNAPSHOT) if parked.has_to_be_filled(seen.sandbox) else None
    wanted = _wanted(seen, settings)
    if isinstance(wanted, Refusal):
        return _plan_refused(seen, wanted, now, settings)
    if (held := held_by_queue(seen, wanted)) is not None:
        return _plan_without_pod(seen, seen.sandbox.status, now, held=held)
    policies = dependencies.policies(seen, wanted, settings)
    volume = dependencies.volume(seen, wanted)
    lifetime = lifetime_left(seen, now, settings)
    given = RoundInput(seen=seen, wanted=wanted, now=now, settings=settings, lifetime=lifetime, held=volume.blocked)
    if (corrected := correction(given)) is not None:
        return _record_end(seen, corrected, now, settings)
    opened = dependencies.opened_by_others(seen, labels_of_pod(given))
    given = replace(given, opened=opened if wanted.network_closure is NetworkClosure.REQUIRED else None)
    round_ = pod_round(given)
    unproved = dependencies.isolation(seen, round_.proved, policies_complete=not policies)
    found = Findings(
        not_ready=round_.not_ready or unproved or given.opened or filling,
        scheduled=bool(seen.pod and seen.pod.node),
        isolated=unproved or opened,
        degraded=volume.degraded or _not_preloaded(seen.sandbox.status, round_),
    )
    status = replace(
        round_.status,
        workspace_claim=volume.name or round_.status.workspace_claim,
        restores_from=parked.restores_from(seen, gone=False, now=now),
        template_revision=_revision(seen, wanted, settings) if unproved is None else round_.status.template_revision,
    )
    # After a refusal, wait before trying the refused action and all actions after it again.
    pause = refused_left(seen, now)
    before = () if pause else (*policies, *dependencies.keys(seen), *dependencies.revision(seen), *volume.actions)
    return Plan(
        status=with_conditions(status, found, now, seen.sandbox.meta.generation),
        actions=(*before, *round_.actions),
        requeue_after=_earliest(round_.requeue_after, lifetime, pause or None),
    )


def _not_preloaded(before: SandboxStatus, now: PodRound) -> Finding | None:
    """What the executor said at the first contact. Later operators find it in the status."""
    if now.proved is not None and now.proved.reason is None:
        said = now.proved.not_preloaded
    else:
        known = condition(before, ConditionType.DEGRADED)
        same = known is not None and known.reason == Reason.MODULES_NOT_PRELOADED.value
        said = known.message if known and same and now.status.pod_uid == before.pod_uid else ""
    return Finding(Reason.MODULES_NOT_PRELOADED, said) if said else None


def _wanted(seen: Observed, settings: Settings) -> Effective | Refusal:
    spec, made_of = seen.sandbox.spec, seen.made_of
    if seen.template_problem and made_of is None:
        return Refusal(Reason.TEMPLATE_INVALID, seen.template_problem)
    if spec.template and made_of is None:
        namespace = seen.sandbox.meta.namespace
        why = f"there is no SandboxTemplate {spec.template!r} in namespace {namespace}"
        return Refusal(Reason.TEMPLATE_NOT_FOUND, f"cannot make a sandbox: {why}")
    if seen.template is None and seen.kept is not None:
        # Egress ends with the template, and so do lists that lie within it.
        spec = replace(spec, egress=None)
    wanted = effective(made_of, spec, settings)
    if isinstance(wanted, Effective) and wanted.workspace.ephemeral != has_no_volume(seen):
        return replace(wanted, workspace=replace(wanted.workspace, ephemeral=has_no_volume(seen)))
    return wanted


def _revision(seen: Observed, wanted: Effective, settings: Settings) -> str:
    """The revision that an isolated pod was made from: user code may run in it, and the sandbox keeps this spec."""
    status, pod = seen.sandbox.status, seen.pod
    known = pod is None or (status.pod_uid == pod.uid and holds(status, ConditionType.ISOLATED))
    if pod is None or (known and status.template_revision):
        return status.template_revision
    if seen.kept is None and seen.template is not None and seen.revision is not None:
        # An edit that changes no pod leaves warm pods as they are: their sandbox begins with the template of now.
        plain = effective(seen.template.spec, SandboxSpec(template=seen.sandbox.spec.template), settings)
        of_now = {spec_hash(one, settings) for one in (plain, wanted) if isinstance(one, Effective)}
        if pod.annotations.get(names.SPEC_HASH) in of_now:
            return str(seen.revision["metadata"]["name"])
    return named_revision(pod.annotations.get(names.TEMPLATE_REVISION)) or status.template_revision


def _plan_refused(seen: Observed, refusal: Refusal, now: float, settings: Settings) -> Plan:
    """Start nothing new. A running pod goes on, and reaches only what the remaining policies allow."""
    finding = Finding(refusal.reason, refusal.message)
    status, pod = seen.sandbox.status, seen.pod
    alive = pod is not None and pod.uid == status.pod_uid and pod.ended is None and not pod.deleting
    ready = alive and holds(status, ConditionType.READY)
    found = Findings(
        not_ready=None if ready else finding,
        scheduled=bool(pod and pod.node),
        isolated=_isolated_still(seen) if alive and is_proved(status) else finding,
        degraded=finding if alive else None,
    )
    return Plan(
        status=with_conditions(status, found, now, seen.sandbox.meta.generation),
        actions=dependencies.close_own_egress(seen),
        requeue_after=lifetime_left(seen, now, settings),
    )


def _isolated_still(seen: Observed) -> Finding | None:
    return dependencies.opened_by_others(seen, seen.pod.labels) if seen.pod else None


def _earliest(*moments: float | None) -> float | None:
    given = [moment for moment in moments if moment is not None]
    return max(0.0, min(given)) if given else None
