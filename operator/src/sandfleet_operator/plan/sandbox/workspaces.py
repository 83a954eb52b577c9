"""Which sandboxes and pods use a workspace: two pods never share one.

A user of an earlier workspace first makes itself visible (a CodeSandbox exists already; the fleet creates its pod), and
then reads all other users past all caches. So of two users that want the same workspace at least one sees the other.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from sandfleet_operator.api.conditions import ConditionType
from sandfleet_operator.api.kinds.sandbox import CodeSandbox, readable
from sandfleet_operator.api.kinds.template import Retention
from sandfleet_operator.api.kube import Json
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.podspec import PodState
from sandfleet_operator.plan.sandbox.observed import Pod, Volume
from sandfleet_operator.plan.sandbox.status import holds
from sandfleet_operator.plan.sandbox.unreadable import named_workspaces


@dataclass(frozen=True, slots=True)
class User:
    """A sandbox or pod that uses a workspace. `leaving`: it will be gone soon, without further action."""

    name: str
    leaving: bool = False


def users(volume_claim: str, sandboxes: Iterable[CodeSandbox], pods: Iterable[Pod]) -> list[User]:
    """Users of the workspace on this volume claim, sandboxes first. The arguments are all objects of its namespace."""
    live = [one for one in sandboxes if not (one.meta.deleting or holds(one.status, ConditionType.EXPIRED))]
    known = {one.meta.uid for one in live}
    found = [User(f"CodeSandbox {one.meta.name}") for one in live if wants(one) == volume_claim]
    on_it = (one for one in pods if one.workspace_claim == volume_claim)
    return [*found, *(User(f"pod {one.name}", leaving=_is_leaving(one, known)) for one in on_it)]


def read_users(volume_claim: str, objects: Iterable[Json]) -> tuple[list[CodeSandbox], list[User]]:
    """The CodeSandboxes that can be read, and those that cannot and name the volume claim: they keep it."""
    found: list[CodeSandbox] = []
    unreadable: list[User] = []
    for obj in objects:
        sandbox = readable(obj)
        if sandbox is not None:
            found.append(sandbox)
        elif volume_claim in named_workspaces(obj):
            unreadable.append(User(f"CodeSandbox {obj['metadata']['name']}, which cannot be read"))
    return found, unreadable


def wants(sandbox: CodeSandbox) -> str:
    """The volume claim that the sandbox's next pod would use; empty if the sandbox waits for a pod of its pool."""
    if sandbox.status.workspace_claim:
        return sandbox.status.workspace_claim
    if sandbox.spec.workspace.claim_name:
        return sandbox.spec.workspace.claim_name
    return "" if sandbox.spec.pool else names.workspace_claim_name(sandbox.meta.name)


def _is_leaving(pod: Pod, sandboxes: set[str]) -> bool:
    # A warm pod that waits for its volume claim gets it, or the leading fleet deletes the pod.
    unclaimed = pod.labels.get(names.STATE) in {PodState.WARM.value, PodState.RETIRING.value}
    # The garbage collector deletes a pod whose owner is gone.
    return pod.deleting or pod.ended is not None or unclaimed or (bool(pod.owner) and pod.owner not in sandboxes)


def is_before(one: CodeSandbox, other: CodeSandbox) -> bool:
    """Whether `other` has to wait when both want the same workspace and neither has it."""
    recorded = bool(one.status.workspace_claim), bool(other.status.workspace_claim)
    if recorded[0] != recorded[1]:
        return recorded[0]
    # Creation times have a resolution of a second: names break the tie.
    return (one.meta.created, one.meta.name) < (other.meta.created, other.meta.name)


def is_kept(found: Volume) -> bool:
    """Whether an earlier sandbox has left this volume claim, so that another sandbox may name it."""
    of_ours = names.own_labels().items() <= found.labels.items() and bool(found.labels.get(names.SANDBOX))
    lost = found.deleting or found.phase == "Lost"
    return (
        of_ours and not lost and not found.owner and not found.pod_owner and found.retention == Retention.RETAIN.value
    )
