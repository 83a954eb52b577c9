"""A suspended sandbox whose session is in a snapshot: when that is certain, and until when it is to be put back.

The fleet holds the session, saves it and names the snapshot in `status.snapshot`; while a session is held, nothing in
it can change. The operator ends the pod. Only a pod that was gone while the session was held proves that the snapshot
has all of it: then the status says `restoresFrom`, and the volume goes. Otherwise the session goes on with its volume.
"""

import re
from dataclasses import replace

from sandfleet_operator.api.conditions import Reason
from sandfleet_operator.api.kinds.sandbox import CodeSandbox, OperatingMode, SandboxStatus, SuspendTo
from sandfleet_operator.api.kinds.template import Retention
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.sandbox.actions import DeleteVolume, SandboxAction
from sandfleet_operator.plan.sandbox.binding import current_uid, settled_binding
from sandfleet_operator.plan.sandbox.observed import Observed, Pod, has_no_volume

# What the end of a pod may take: one that ends later than this before the end of the hold would prove nothing.
ENDING_SECONDS = 40.0
# The fleet gives a warm pod to a session in a snapshot, and then sets the mode: it has so many seconds.
GIVING_SECONDS = 10.0
_TIME = re.compile(r"[0-9]{1,12}")


def keeps_volume(seen: Observed) -> bool:
    """Whether the owner wants the volume to outlive the sandbox: then it outlives a suspension, too."""
    workspace = seen.sandbox.spec.workspace
    of_template = seen.made_of.workspace.retention if seen.made_of else None
    retention = workspace.retention or of_template or Retention.DELETE
    return bool(workspace.claim_name) or retention is Retention.RETAIN


def wants_snapshot(sandbox: CodeSandbox) -> bool:
    """Whether a snapshot is to keep its session while it sleeps."""
    spec = sandbox.spec
    return spec.operating_mode is OperatingMode.SUSPENDED and spec.suspend_to is SuspendTo.SNAPSHOT


def waits_for_snapshot(seen: Observed, pod: Pod | None, now: float) -> bool:
    """Whether the fleet has to save the session before this pod may end. The fleet only knows sessions of claims."""
    sandbox = seen.sandbox
    if not wants_snapshot(sandbox) or keeps_volume(seen) or settled_binding(sandbox) is None:
        return False
    if pod is None or pod.deleting or pod.ended is not None:
        return False
    return lacks_snapshot(sandbox.status, pod.uid, now)


def lacks_snapshot(status: SandboxStatus, pod_uid: str, now: float) -> bool:
    """Whether the session of this pod is in no snapshot that has all of it."""
    if is_in_snapshot(status):
        # A pod that was being filled has nothing that the snapshot has not.
        return False
    said = status.snapshot
    if said is None or said.automatic or said.filled:
        return True
    return said.pod_uid != pod_uid or now > said.held_until - ENDING_SECONDS


def is_saved(seen: Observed) -> bool:
    """Whether the fleet has saved the session of the pod that is there, to end it."""
    said, pod = seen.sandbox.status.snapshot, seen.pod
    is_last = said is not None and not (said.filled or said.automatic)
    return said is not None and is_last and pod is not None and said.pod_uid == pod.uid


def is_news(seen: Observed, status: SandboxStatus) -> bool:
    """Whether this has to be on record before the pod or the volume goes: without them nothing proves it."""
    return is_saved(seen) or status.restores_from != seen.sandbox.status.restores_from


def restores_from(seen: Observed, *, gone: bool, now: float) -> str:
    """The snapshot that is the session from now on; empty where its volume is. `gone`: it has no pod."""
    said, known = seen.sandbox.status.snapshot, seen.sandbox.status.restores_from
    if said is None or (said.filled and not said.automatic):
        return ""
    uid = current_uid(seen.sandbox, seen.binding)
    if known == said.id:
        return "" if said.filled and said.filled == uid else known
    if not gone or uid not in {said.pod_uid, said.filled}:
        return ""
    if said.automatic:
        # One that sleeps has its volume, which is younger.
        return said.id if seen.sandbox.spec.operating_mode is OperatingMode.RUNNING else ""
    # A directory of the pod is gone in any case.
    is_certain = now <= said.held_until or has_no_volume(seen)
    return said.id if is_certain and not keeps_volume(seen) else ""


def is_in_snapshot(status: SandboxStatus) -> bool:
    """Whether the session is in a snapshot, and in no pod and on no volume."""
    said = status.snapshot
    if said is None or not said.id or status.restores_from != said.id:
        return False
    return not said.filled or (said.automatic and said.filled != status.pod_uid)


def has_to_be_filled(sandbox: CodeSandbox) -> bool:
    """Whether the pod of a sandbox that runs again waits for its session."""
    return sandbox.spec.operating_mode is OperatingMode.RUNNING and is_in_snapshot(sandbox.status)


def given_left(seen: Observed, now: float) -> float:
    """Seconds for which a pod that the fleet has given to the sleeping session waits for it; 0: there is none."""
    pod, status = seen.pod, seen.sandbox.status
    if pod is None or pod.owner != seen.sandbox.meta.uid or pod.uid == status.pod_uid or not is_in_snapshot(status):
        return 0.0
    text = pod.annotations.get(names.GIVEN, "")
    left = float(text) + GIVING_SECONDS - now if _TIME.fullmatch(text) else 0.0
    return min(left, GIVING_SECONDS) if left > 0 else 0.0


def may_be_given(sandbox: CodeSandbox, pod: Pod, contract: str) -> bool:
    """Whether this warm pod can take the session on: as its own next pod would be, and nothing is left of the last."""
    status = sandbox.status
    is_alone = is_in_snapshot(status) and not (status.workspace_claim or status.pod or status.pod_uid)
    revision = pod.annotations.get(names.TEMPLATE_REVISION, "")
    is_alike = bool(revision) and revision == status.template_revision and pod.contract == contract
    # What its pool starts from would come back in it, and it has no other image than its pool's.
    is_alike = is_alike and not (sandbox.spec.image or names.IMAGE in pod.annotations)
    return is_alone and is_alike and not (pod.deleting or pod.ended or names.SNAPSHOT in pod.annotations)


def left_on_lost_node(seen: Observed) -> tuple[SandboxAction, ...]:
    """The volume that a session has left on a lost node, where no other node may have it: a new one is filled."""
    status, found = seen.sandbox.status, seen.volume
    last = status.restart_history[-1] if status.restart_history else None
    if last is None or last.reason != Reason.NODE_LOST.value or not is_in_snapshot(status):
        return ()
    if seen.pod is not None or found is None or found.created >= last.time or keeps_volume(seen):
        return ()
    return _dropped(seen)[1]


def has_old_volume_on_record(seen: Observed) -> bool:
    """Whether the status names a volume that has gone: the session is put back on a new one."""
    status = seen.sandbox.status
    return seen.volume is None and bool(status.workspace_claim) and is_in_snapshot(status)


def asleep(
    seen: Observed, status: SandboxStatus, kept: tuple[SandboxAction, ...], *, gone: bool, now: float
) -> tuple[SandboxStatus, tuple[SandboxAction, ...]]:
    """The volume of a session that is in a snapshot goes. `kept` are the actions that would keep it."""
    status = replace(status, restores_from=restores_from(seen, gone=gone, now=now))
    if not (status.restores_from and gone):
        return status, kept
    volume_claim, actions = _dropped(seen)
    return replace(status, workspace_claim=volume_claim), actions


def _dropped(seen: Observed) -> tuple[str, tuple[SandboxAction, ...]]:
    """The volume claim that stays on record, and the deletion of the one that is not needed any more."""
    found, meta = seen.volume, seen.sandbox.meta
    if found is None:
        return "", ()
    pod = seen.claimed_pod
    is_own = found.owner == meta.uid or (pod is not None and found.pod_owner == pod[1])
    if found.deleting or not is_own:
        return found.name if is_own else "", ()
    return found.name, (DeleteVolume(meta.namespace, found.name, found.uid),)
