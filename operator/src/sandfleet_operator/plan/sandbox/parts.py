"""What a sandbox needs beside its pod: policies, keys, the volume of its workspace."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandfleet_operator.api.conditions import ConditionType, Reason
from sandfleet_operator.api.resources import Retention
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.plan import names, networkpolicy
from sandfleet_operator.plan.effective import Effective
from sandfleet_operator.plan.podspec import PodState
from sandfleet_operator.plan.sandbox.actions import (
    Action,
    AdjustVolume,
    CreateVolume,
    EnsureKeys,
    EnsurePolicy,
    Json,
    RemovePolicy,
)
from sandfleet_operator.plan.sandbox.observed import Contact, Observed, Pod, Volume, has_no_volume
from sandfleet_operator.plan.sandbox.status import Finding, holds
from sandfleet_operator.plan.sandbox.workspaces import is_kept
from sandfleet_operator.plan.volume import workspace_claim

# Characters of those who use a workspace, as they are told.
MAX_USERS = 200


def is_own(pod: Pod, seen: Observed) -> bool:
    """Whether the pod is this sandbox's: made for it, bound to it by the fleet, or on record, whatever became of its owner."""
    return pod.owner == seen.sandbox.meta.uid or pod.uid == seen.sandbox.status.pod_uid or is_bound(pod, seen)


def is_bound(pod: Pod, seen: Observed) -> bool:
    """Whether the fleet has bound it to this sandbox: both say so, and no other one has it.

    Owners of sandboxes can write annotations, and only the control plane writes labels of these pods.
    """
    meta = seen.sandbox.meta
    claimed = (pod.labels.get(names.STATE), pod.labels.get(names.SANDBOX)) == (PodState.CLAIMED.value, meta.name)
    free = claimed and not pod.owner
    return seen.claimed_pod == (pod.name, pod.uid) and (free or pod.owner == meta.uid)


def policies(seen: Observed, wanted: Effective, settings: Settings) -> tuple[Action, ...]:
    """What makes the policies what they have to be; nothing when they are."""
    meta = seen.sandbox.meta
    needed = [networkpolicy.default_deny(meta.namespace, settings)]
    own = networkpolicy.own_egress(seen.sandbox, wanted.egress, settings) if wanted.own_egress else None
    of_class = networkpolicy.template_egress(seen.template, settings) if seen.template else None
    if own is not None:
        needed.append(own)
    elif of_class is not None and not wanted.own_egress:
        needed.append(of_class)
    changes: list[Action] = [EnsurePolicy(one) for one in needed if not is_in_place(one, seen.policies)]
    return (*changes, *(close_own_egress(seen) if own is None else ()))


def is_in_place(manifest: Json, found: Mapping[str, Mapping[str, Any]]) -> bool:
    there = found.get(manifest["metadata"]["name"])
    return there is not None and _without_empty(there) == _without_empty(manifest["spec"])


def _without_empty(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The API server leaves empty lists out, which mean the same: policyTypes says that there are no rules."""
    return {key: value for key, value in spec.items() if value}


def close_own_egress(seen: Observed) -> tuple[Action, ...]:
    """Takes the sandbox's own egress away, where it has one."""
    meta = seen.sandbox.meta
    name = names.own_policy(meta.name)
    return (RemovePolicy(meta.namespace, name),) if name in seen.policies else ()


def isolation(seen: Observed, proved: Contact | None, *, policies_complete: bool) -> Finding | None:
    """Why Isolated is not True. Once proved for a pod it stays so while the policies are there."""
    status = seen.sandbox.status
    if not policies_complete:
        return Finding(Reason.POLICY_MISSING)
    if seen.pod is None:
        return Finding(Reason.POLICY_IN_PLACE)
    if proved is not None and proved.reason is None:
        return None
    if status.pod_uid == seen.pod.uid and holds(status, ConditionType.ISOLATED):
        return None
    if proved is not None and proved.reason in {Reason.EXECUTOR_IDENTITY_INVALID, Reason.RUNTIME_MISMATCH}:
        return Finding(proved.reason, proved.message)
    return Finding(Reason.POLICY_IN_PLACE)


def keys(seen: Observed) -> tuple[Action, ...]:
    return () if seen.keys else (EnsureKeys(seen.sandbox.meta.namespace),)


@dataclass(frozen=True, slots=True)
class VolumeRound:
    """`name` is recorded in the status; `blocked` says why no pod is made on it."""

    name: str
    actions: tuple[Action, ...] = ()
    blocked: Finding | None = None
    degraded: Finding | None = None


def waits_for_claim(seen: Observed) -> bool:
    """Whether it is to be taken from a pool, and nothing is bound to it."""
    spec, status = seen.sandbox.spec, seen.sandbox.status
    # A warm pod has its own workspace: who names an earlier one starts cold on it.
    has_one = bool(status.workspace_claim or spec.workspace.claim_name)
    return bool(spec.pool) and seen.claimed_pod is None and not has_one


def claim_name(seen: Observed) -> str:
    """Of the workspace: the one on record, that of the warm pod that was bound, the one that it names, or its own."""
    if seen.sandbox.status.workspace_claim:
        return seen.sandbox.status.workspace_claim
    if seen.pod and seen.pod.workspace_claim and is_bound(seen.pod, seen):
        # Its own, or that of an earlier session.
        return seen.pod.workspace_claim
    if seen.sandbox.spec.workspace.claim_name:
        return seen.sandbox.spec.workspace.claim_name
    return names.workspace_claim_name(seen.claimed_pod[0] if seen.claimed_pod else seen.sandbox.meta.name)


def comes_with_it(found: Volume, seen: Observed) -> bool:
    """Whether a claim that is not on record comes with the pod that was bound: an annotation alone gives nobody another's files."""
    meta, pod = seen.sandbox.meta, seen.pod
    if pod is not None and is_bound(pod, seen):
        return pod.workspace_claim in {"", found.name}
    if found.owner == meta.uid or found.labels.get(names.SANDBOX) == meta.name:
        return True
    # Of the pod that was bound, which is gone.
    bound = seen.claimed_pod
    return bound is not None and found.pod_owner == bound[1] and (pod is None or pod.uid != bound[1])


def volume(seen: Observed, wanted: Effective) -> VolumeRound:
    name, found = claim_name(seen), seen.volume
    if has_no_volume(seen) or waits_for_claim(seen):
        # It is the pod's own, or comes with the pod that it gets.
        return VolumeRound("")
    if found is None:
        return _without_volume(seen, wanted, name)
    if found.phase == "Lost":
        lost = Finding(Reason.WORKSPACE_LOST, f"the volume of claim {name} is gone")
        return VolumeRound(name, (), lost, lost)
    known = seen.sandbox.status.workspace_claim
    if found.deleting:
        # It goes when no pod uses it any more.
        going = Finding(Reason.WORKSPACE_IN_USE, f"claim {name} is being deleted")
        return VolumeRound(known, (), going)
    if not known and found.owner not in {"", seen.sandbox.meta.uid}:
        # The garbage collector takes it. Its files were to go with their sandbox.
        older = Finding(Reason.WORKSPACE_IN_USE, f"claim {name} belongs to an earlier sandbox, and goes with it")
        return VolumeRound("", (), older)
    if not known and seen.claimed_pod and not comes_with_it(found, seen):
        other = Finding(Reason.WORKSPACE_IN_USE, f"claim {name} does not belong to a pod that is bound to this sandbox")
        return VolumeRound("", (), other)
    if not known and (taken := _taken(seen, found)):
        return VolumeRound("", (), taken)
    return VolumeRound(name, _adjusted(seen, wanted.retention, found))


def _taken(seen: Observed, found: Volume) -> Finding | None:
    """Why a workspace that was there before cannot be had; None where it can, or is its own already."""
    if found.owner == seen.sandbox.meta.uid or (seen.pod is not None and is_own(seen.pod, seen)):
        return None
    if seen.workspace_users:
        used = ", ".join(seen.workspace_users)[:MAX_USERS]
        return Finding(Reason.WORKSPACE_IN_USE, f"claim {found.name} is used by {used}")
    if seen.sandbox.spec.workspace.claim_name and not is_kept(found):
        return Finding(Reason.WORKSPACE_NOT_FOUND, f"claim {found.name} is no workspace that a sandbox has left")
    return None


def _without_volume(seen: Observed, wanted: Effective, name: str) -> VolumeRound:
    meta = seen.sandbox.meta
    if seen.sandbox.status.workspace_claim or seen.claimed_pod:
        lost = Finding(Reason.WORKSPACE_LOST, f"claim {name} is gone, and its files with it")
        return VolumeRound(name, (), lost, lost)
    if seen.sandbox.spec.workspace.claim_name:
        return VolumeRound("", (), Finding(Reason.WORKSPACE_NOT_FOUND, f"there is no claim {name}"))
    if seen.storage_problem:
        return VolumeRound("", (), Finding(Reason.STORAGE_CLASS_NOT_FOUND, seen.storage_problem))
    manifest = workspace_claim(meta.namespace, meta.name, wanted, owner=meta)
    # It goes on record when it is there: one that is on record and is not there is lost.
    return VolumeRound("", (CreateVolume(annotated(manifest, wanted.retention)),))


def annotated(manifest: Json, retention: Retention) -> Json:
    """Whoever finds the claim without its CodeSandbox knows what was to become of it."""
    metadata = {**manifest["metadata"], "annotations": {names.RETENTION: retention.value}}
    return {**manifest, "metadata": metadata}


def workspace_kept(seen: Observed) -> tuple[str, tuple[Action, ...]]:
    """The claim of a pod that goes, for the record, and what keeps it from going with the pod that it was made for."""
    found, known = seen.volume, seen.sandbox.status.workspace_claim
    if found is None or not seen.claimed_pod or not (known == found.name or comes_with_it(found, seen)):
        return known, ()
    if not found.pod_owner or found.deleting:
        return found.name, ()
    of_template = seen.template.spec.workspace.retention if seen.template else None
    retention = seen.sandbox.spec.workspace.retention or of_template or Retention.DELETE
    return found.name, _adjusted(seen, retention, found)


def _adjusted(seen: Observed, retention: Retention, found: Volume) -> tuple[Action, ...]:
    """The claim's owner and annotation as the retention asks, and the labels by which it is watched."""
    meta = seen.sandbox.meta
    owned = retention is Retention.DELETE
    labels = names.own_labels(**{names.SANDBOX: meta.name})
    is_right = found.owner == (meta.uid if owned else "") and found.retention == retention.value
    if is_right and labels.items() <= found.labels.items():
        return ()
    owners = (names.owned_by("CodeSandbox", meta),) if owned else ()
    kept = {names.RETENTION: retention.value}
    return (AdjustVolume(meta.namespace, found.name, found.uid, owners, kept, labels),)
