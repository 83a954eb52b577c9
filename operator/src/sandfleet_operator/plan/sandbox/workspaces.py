"""Who uses a workspace: two pods never share one.

Whoever wants an earlier workspace first makes itself seen (the operator's CodeSandbox is there, the fleet makes its pod) and then
looks, past all caches: of two that want the same one at least one sees the other.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from sandfleet_operator.api.conditions import ConditionType
from sandfleet_operator.api.resources import CodeSandbox, Retention
from sandfleet_operator.plan import names
from sandfleet_operator.plan.podspec import PodState
from sandfleet_operator.plan.sandbox.observed import Pod, Volume
from sandfleet_operator.plan.sandbox.status import holds


@dataclass(frozen=True, slots=True)
class User:
    """`leaving`: it goes by itself, and soon."""

    name: str
    leaving: bool = False


def users(claim: str, sandboxes: Iterable[CodeSandbox], pods: Iterable[Pod]) -> list[User]:
    """Of the workspace on this volume claim: sandboxes first. All of its namespace are given."""
    live = [one for one in sandboxes if not (one.meta.deleting or holds(one.status, ConditionType.EXPIRED))]
    known = {one.meta.uid for one in live}
    found = [User(f"CodeSandbox {one.meta.name}") for one in live if wants(one) == claim]
    on_it = (one for one in pods if one.workspace_claim == claim)
    return [*found, *(User(f"pod {one.name}", leaving=_is_leaving(one, known)) for one in on_it)]


def wants(sandbox: CodeSandbox) -> str:
    """The volume claim that a sandbox without a pod would start on; empty: that of a pod that it waits for."""
    if sandbox.status.workspace_claim:
        return sandbox.status.workspace_claim
    if sandbox.spec.workspace.claim_name:
        return sandbox.spec.workspace.claim_name
    return "" if sandbox.spec.pool else names.workspace_claim_name(sandbox.meta.name)


def _is_leaving(pod: Pod, sandboxes: set[str]) -> bool:
    # One that still waits for its claim is removed by the fleet that leads, or gets its claim.
    unclaimed = pod.labels.get(names.STATE) in {PodState.WARM.value, PodState.RETIRING.value}
    # The garbage collector takes what has lost its owner.
    return pod.deleting or pod.ended is not None or unclaimed or (bool(pod.owner) and pod.owner not in sandboxes)


def is_before(one: CodeSandbox, other: CodeSandbox) -> bool:
    """Whether the other one has to wait where both want the same workspace and neither has it."""
    recorded = bool(one.status.workspace_claim), bool(other.status.workspace_claim)
    if recorded[0] != recorded[1]:
        return recorded[0]
    # Made within one second, they go by their names.
    return (one.meta.created, one.meta.name) < (other.meta.created, other.meta.name)


def is_kept(found: Volume) -> bool:
    """Whether an earlier sandbox has left this volume claim to whoever names it."""
    of_ours = names.own_labels().items() <= found.labels.items() and bool(found.labels.get(names.SANDBOX))
    lost = found.deleting or found.phase == "Lost"
    return (
        of_ours and not lost and not found.owner and not found.pod_owner and found.retention == Retention.RETAIN.value
    )
