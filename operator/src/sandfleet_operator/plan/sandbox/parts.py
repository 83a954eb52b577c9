"""What a sandbox needs beside its pod: policies, keys, the volume of its workspace."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandfleet_operator.api.conditions import ConditionType, Reason
from sandfleet_operator.api.resources import Retention
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.plan import names, networkpolicy
from sandfleet_operator.plan.effective import Effective
from sandfleet_operator.plan.sandbox.actions import (
    Action,
    AdjustVolume,
    CreateVolume,
    EnsureKeys,
    EnsurePolicy,
    Json,
    RemovePolicy,
)
from sandfleet_operator.plan.sandbox.observed import Contact, Observed, Pod, Volume
from sandfleet_operator.plan.sandbox.status import Finding, holds
from sandfleet_operator.plan.volume import workspace_claim


def is_own(pod: Pod, seen: Observed) -> bool:
    """Whether the pod is this sandbox's: made for it, or bound to it by the fleet."""
    return pod.owner == seen.sandbox.meta.uid or seen.claimed_pod == (pod.name, pod.uid)


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


def claim_name(seen: Observed) -> str:
    """Of the workspace: the one on record, that of the warm pod that was bound, or its own."""
    bound = seen.claimed_pod
    return seen.sandbox.status.workspace_claim or names.workspace_claim_name(
        bound[0] if bound else seen.sandbox.meta.name
    )


def volume(seen: Observed, wanted: Effective) -> VolumeRound:
    name, found = claim_name(seen), seen.volume
    if found is None:
        return _without_volume(seen, wanted, name)
    if found.phase == "Lost":
        lost = Finding(Reason.WORKSPACE_LOST, f"the volume of claim {name} is gone")
        return VolumeRound(name, (), lost, lost)
    if found.deleting:
        # The claim of an earlier sandbox of this name, or somebody deletes ours: it goes when no pod uses it any more.
        going = Finding(Reason.WORKSPACE_IN_USE, f"claim {name} is being deleted")
        return VolumeRound(name if seen.sandbox.status.workspace_claim else "", (), going)
    return VolumeRound(name, _adjusted(seen, wanted, found))


def _without_volume(seen: Observed, wanted: Effective, name: str) -> VolumeRound:
    meta = seen.sandbox.meta
    if seen.sandbox.status.workspace_claim:
        lost = Finding(Reason.WORKSPACE_LOST, f"claim {name} is gone, and its files with it")
        return VolumeRound(name, (), lost, lost)
    if seen.storage_problem:
        return VolumeRound("", (), Finding(Reason.STORAGE_CLASS_NOT_FOUND, seen.storage_problem))
    manifest = workspace_claim(meta.namespace, meta.name, wanted, owner=meta)
    return VolumeRound(name, (CreateVolume(annotated(manifest, wanted.retention)),))


def annotated(manifest: Json, retention: Retention) -> Json:
    """Whoever finds the claim without its CodeSandbox knows what was to become of it."""
    metadata = {**manifest["metadata"], "annotations": {names.RETENTION: retention.value}}
    return {**manifest, "metadata": metadata}


def _adjusted(seen: Observed, wanted: Effective, found: Volume) -> tuple[Action, ...]:
    """The claim's owner and annotation as the retention asks."""
    meta = seen.sandbox.meta
    owned = wanted.retention is Retention.DELETE
    if (found.owner == meta.uid) == owned and found.retention == wanted.retention.value and (owned or not found.owner):
        return ()
    owners = (names.owned_by("CodeSandbox", meta),) if owned else ()
    return (AdjustVolume(meta.namespace, found.name, found.uid, owners, {names.RETENTION: wanted.retention.value}),)
