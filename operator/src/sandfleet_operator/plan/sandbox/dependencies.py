"""What a sandbox needs besides its pod: network policies, token keys, the volume of its workspace."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandfleet_operator.api.conditions import Reason
from sandfleet_operator.api.kinds.template import Retention
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.plan.pods import names, networkpolicy, openings
from sandfleet_operator.plan.pods.merge import Effective
from sandfleet_operator.plan.pods.podspec import PodState
from sandfleet_operator.plan.pods.volume import workspace_claim
from sandfleet_operator.plan.sandbox.actions import (
    AdjustVolume,
    CreateVolume,
    EnsureKeys,
    EnsurePolicy,
    EnsureRevision,
    Json,
    RemovePolicy,
    SandboxAction,
)
from sandfleet_operator.plan.sandbox.binding import claims_own, has_begun
from sandfleet_operator.plan.sandbox.observed import Contact, Observed, Pod, Volume, has_no_volume
from sandfleet_operator.plan.sandbox.parked import is_in_snapshot
from sandfleet_operator.plan.sandbox.status import Finding, is_proved
from sandfleet_operator.plan.sandbox.workspaces import is_kept

# Characters of a message that lists the users of a workspace.
MAX_USERS = 200


def is_own(pod: Pod, seen: Observed) -> bool:
    """Whether the pod belongs to this sandbox: by owner reference, by the status, or bound to it by the fleet."""
    return pod.owner == seen.sandbox.meta.uid or pod.uid == seen.sandbox.status.pod_uid or is_bound(pod, seen)


def is_bound(pod: Pod, seen: Observed) -> bool:
    """Whether the fleet has bound the pod to this sandbox, and no other sandbox owns the pod."""
    meta = seen.sandbox.meta
    claimed = (pod.labels.get(names.STATE), pod.labels.get(names.SANDBOX)) == (PodState.CLAIMED.value, meta.name)
    free = claimed and not pod.owner
    return seen.claimed_pod == (pod.name, pod.uid) and (free or pod.owner == meta.uid)


def policies(seen: Observed, wanted: Effective, settings: Settings) -> tuple[SandboxAction, ...]:
    """Actions that correct the policies; empty when all are in place."""
    meta = seen.sandbox.meta
    needed = [networkpolicy.default_deny(meta.namespace, settings)]
    own = networkpolicy.own_egress(seen.sandbox, wanted.egress, settings) if wanted.own_egress else None
    of_class = networkpolicy.template_egress(seen.template, settings) if seen.template else None
    if own is not None:
        needed.append(own)
    elif of_class is not None and not wanted.own_egress:
        needed.append(of_class)
    changes: list[SandboxAction] = [EnsurePolicy(one) for one in needed if not is_in_place(one, seen.policies)]
    return (*changes, *(close_own_egress(seen) if own is None else ()))


def is_in_place(manifest: Json, found: Mapping[str, Mapping[str, Any]]) -> bool:
    there = found.get(manifest["metadata"]["name"])
    return there is not None and _without_empty(there) == _without_empty(manifest["spec"])


def _without_empty(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The API server drops empty lists. The meaning stays: policyTypes already says that there are no rules."""
    return {key: value for key, value in spec.items() if value}


def close_own_egress(seen: Observed) -> tuple[SandboxAction, ...]:
    """Removes the sandbox's own egress policy, if there is one."""
    meta = seen.sandbox.meta
    name = names.own_policy(meta.name)
    return (RemovePolicy(meta.namespace, name),) if name in seen.policies else ()


def isolation(seen: Observed, proved: Contact | None, *, policies_complete: bool) -> Finding | None:
    """Why Isolated is not True. Once isolation is proved for a pod, it holds while the policies are in place."""
    status = seen.sandbox.status
    if not policies_complete:
        return Finding(Reason.POLICY_MISSING)
    if seen.pod is None:
        return Finding(Reason.POLICY_IN_PLACE)
    if proved is not None and proved.reason is None:
        return None
    if status.pod_uid == seen.pod.uid and is_proved(status):
        return None
    if proved is not None and proved.reason in {Reason.EXECUTOR_IDENTITY_INVALID, Reason.RUNTIME_MISMATCH}:
        return Finding(proved.reason, proved.message)
    return Finding(Reason.POLICY_IN_PLACE)


def opened_by_others(seen: Observed, labels: Mapping[str, str]) -> Finding | None:
    """Which policies that are not Sandfleet's open a pod with these labels; None if there are none."""
    meta = seen.sandbox.meta
    expected = [names.DEFAULT_DENY, names.own_policy(meta.name)]
    if seen.sandbox.spec.template:
        expected.append(names.class_policy(seen.sandbox.spec.template))
    found = openings.openers(seen.policies, labels, expected)
    if not found:
        return None
    what = "NetworkPolicy" if len(found) == 1 else "NetworkPolicies"
    return Finding(Reason.OPENED_BY_OTHERS, f"opened by {what} {openings.listed(found)}")


def keys(seen: Observed) -> tuple[SandboxAction, ...]:
    return () if seen.keys else (EnsureKeys(seen.sandbox.meta.namespace),)


def revision(seen: Observed) -> tuple[SandboxAction, ...]:
    """Keeps the template's spec, until the status names one that is kept."""
    if seen.revision is None or seen.revision_there or seen.sandbox.status.template_revision:
        return ()
    return (EnsureRevision(seen.revision),)


@dataclass(frozen=True, slots=True)
class VolumeRound:
    """What to do about the volume claim. `name` goes into the status; `blocked` says why no pod may use it."""

    name: str
    actions: tuple[SandboxAction, ...] = ()
    blocked: Finding | None = None
    degraded: Finding | None = None


def waits_for_claim(seen: Observed) -> bool:
    """Whether the sandbox waits for the fleet: for a pod of its pool, or for the pod of the claim that made it."""
    sandbox = seen.sandbox
    if has_begun(sandbox.status) or seen.claimed_pod is not None:
        return False
    # A warm pod has its own workspace. A sandbox that names an earlier workspace starts cold on that one.
    of_pool = bool(sandbox.spec.pool) and not sandbox.spec.workspace.claim_name
    return of_pool or claims_own(sandbox) is not None


def volume_claim_name(seen: Observed) -> str:
    """Name of the workspace's volume claim: recorded, the bound pod's, named by the spec, or the sandbox's own."""
    if seen.sandbox.status.workspace_claim:
        return seen.sandbox.status.workspace_claim
    if is_in_snapshot(seen.sandbox.status):
        # The volume of the bound pod has gone. One that the fleet has given has its own.
        if seen.pod and seen.pod.workspace_claim and seen.pod.owner == seen.sandbox.meta.uid:
            return seen.pod.workspace_claim
        return names.workspace_claim_name(seen.sandbox.meta.name)
    if seen.pod and seen.pod.workspace_claim and is_bound(seen.pod, seen):
        # The pod's own volume claim, or the one of an earlier session.
        return seen.pod.workspace_claim
    if seen.sandbox.spec.workspace.claim_name:
        return seen.sandbox.spec.workspace.claim_name
    return names.workspace_claim_name(seen.claimed_pod[0] if seen.claimed_pod else seen.sandbox.meta.name)


def comes_with_bound_pod(found: Volume, seen: Observed) -> bool:
    """Whether an unrecorded volume claim belongs to the bound pod, or to one that the fleet has given.

    The annotation alone gives no access to files, nor does an owner: the maker of a volume claim names any.
    """
    meta, pod, of = seen.sandbox.meta, seen.pod, found.labels.get(names.SANDBOX)
    if pod is not None and pod.owner == meta.uid and found.pod_owner == pod.uid:
        return pod.workspace_claim == found.name
    if pod is not None and is_bound(pod, seen):
        return pod.workspace_claim in {"", found.name}
    if of == meta.name:
        return True
    # The bound pod is gone, and the volume claim was made for it.
    bound = seen.claimed_pod
    is_gone = bound is not None and (pod is None or pod.uid != bound[1])
    return bound is not None and is_gone and (of, found.pod_owner) == bound


def volume(seen: Observed, wanted: Effective) -> VolumeRound:
    name, found = volume_claim_name(seen), seen.volume
    if has_no_volume(seen) or waits_for_claim(seen):
        # The workspace is a directory of the pod, or comes with the pod that the fleet will bind.
        return VolumeRound("")
    if found is None:
        return _without_volume(seen, wanted, name)
    if found.phase == "Lost":
        lost = Finding(Reason.WORKSPACE_LOST, f"volume claim {name} has lost its volume")
        return VolumeRound(name, (), lost, lost)
    known = seen.sandbox.status.workspace_claim
    if found.deleting:
        # Kubernetes deletes it when no pod uses it any more.
        going = Finding(Reason.WORKSPACE_IN_USE, f"volume claim {name} is being deleted")
        return VolumeRound(known, (), going)
    if not known and found.owner not in {"", seen.sandbox.meta.uid}:
        # The garbage collector deletes it: its files were to be deleted with their sandbox.
        older = Finding(
            Reason.WORKSPACE_IN_USE, f"volume claim {name} belongs to an earlier sandbox and is deleted with it"
        )
        return VolumeRound("", (), older)
    if not known and seen.claimed_pod and not comes_with_bound_pod(found, seen):
        other = Finding(
            Reason.WORKSPACE_IN_USE, f"volume claim {name} does not belong to a pod that is bound to this sandbox"
        )
        return VolumeRound("", (), other)
    if not known and not seen.claimed_pod and (taken := _of_another(seen, found)):
        return VolumeRound("", (), taken)
    if not known and (unavailable := _unavailable(seen, found)):
        return VolumeRound("", (), unavailable)
    return VolumeRound(name, _adjusted(seen, wanted.retention, found))


def _of_another(seen: Observed, found: Volume) -> Finding | None:
    """Why a volume claim of the right name is not this sandbox's; None if it may be."""
    meta, of = seen.sandbox.meta, found.labels.get(names.SANDBOX, "")
    if (found.owner == meta.uid and of == meta.name) or seen.sandbox.spec.workspace.claim_name:
        return None
    if found.pod_owner:
        why = f"volume claim {found.name} belongs to a pod that waits for a claim"
        return Finding(Reason.WORKSPACE_IN_USE, why)
    if of != meta.name and not is_kept(found):
        whose = f"the workspace of sandbox {of}" if of else "no workspace of a sandbox"
        return Finding(Reason.WORKSPACE_IN_USE, f"volume claim {found.name} has this sandbox's name, and is {whose}")
    return None


def _unavailable(seen: Observed, found: Volume) -> Finding | None:
    """Why the sandbox cannot have an existing workspace; None if it can, or has it already."""
    if found.owner == seen.sandbox.meta.uid or (seen.pod is not None and is_own(seen.pod, seen)):
        return None
    if seen.workspace_users:
        used = ", ".join(seen.workspace_users)[:MAX_USERS]
        return Finding(Reason.WORKSPACE_IN_USE, f"volume claim {found.name} is used by {used}")
    if seen.sandbox.spec.workspace.claim_name and not is_kept(found):
        return Finding(
            Reason.WORKSPACE_NOT_FOUND, f"volume claim {found.name} is not a workspace that an earlier sandbox has left"
        )
    return None


def _without_volume(seen: Observed, wanted: Effective, name: str) -> VolumeRound:
    meta = seen.sandbox.meta
    if (seen.sandbox.status.workspace_claim or seen.claimed_pod) and not is_in_snapshot(seen.sandbox.status):
        lost = Finding(Reason.WORKSPACE_LOST, f"volume claim {name} is gone, and its files with it")
        return VolumeRound(name, (), lost, lost)
    if seen.sandbox.spec.workspace.claim_name:
        return VolumeRound("", (), Finding(Reason.WORKSPACE_NOT_FOUND, f"there is no volume claim {name}"))
    if seen.storage_problem:
        return VolumeRound("", (), Finding(Reason.STORAGE_CLASS_NOT_FOUND, seen.storage_problem))
    manifest = workspace_claim(meta.namespace, meta.name, wanted, owner=meta)
    # Record the volume once it exists, so that a recorded volume that is missing means data loss.
    return VolumeRound("", (CreateVolume(annotated(manifest, wanted.retention)),))


def annotated(manifest: Json, retention: Retention) -> Json:
    """The manifest with the retention as an annotation, so that it is known even after the CodeSandbox is gone."""
    metadata = {**manifest["metadata"], "annotations": {names.RETENTION: retention.value}}
    return {**manifest, "metadata": metadata}


def workspace_kept(seen: Observed) -> tuple[str, tuple[SandboxAction, ...]]:
    """The volume claim to record when a pod goes, and actions that keep it from being deleted with its warm pod."""
    found, known = seen.volume, seen.sandbox.status.workspace_claim
    is_new = not is_in_snapshot(seen.sandbox.status) and found is not None and comes_with_bound_pod(found, seen)
    if found is None or not seen.claimed_pod or not (known == found.name or is_new):
        return known, ()
    if not found.pod_owner or found.deleting:
        return found.name, ()
    of_template = seen.made_of.workspace.retention if seen.made_of else None
    retention = seen.sandbox.spec.workspace.retention or of_template or Retention.DELETE
    return found.name, _adjusted(seen, retention, found)


def _adjusted(seen: Observed, retention: Retention, found: Volume) -> tuple[SandboxAction, ...]:
    """Actions that give the volume claim the owner and annotation of its retention, and the labels of the watch."""
    meta = seen.sandbox.meta
    owned = retention is Retention.DELETE
    labels = names.own_labels(**{names.SANDBOX: meta.name})
    is_right = found.owner == (meta.uid if owned else "") and found.retention == retention.value
    if is_right and labels.items() <= found.labels.items():
        return ()
    owners = (names.owned_by("CodeSandbox", meta),) if owned else ()
    kept = {names.RETENTION: retention.value}
    adjust = AdjustVolume(
        namespace=meta.namespace,
        name=found.name,
        uid=found.uid,
        owners=owners,
        before=found.owners,
        version=found.version,
        annotations=kept,
        labels=labels,
    )
    return (adjust,)
