"""Whether a claim may wait at all."""

from sandfleet_operator.api.errors import Code, FleetError, Problem
from sandfleet_operator.api.validate import check_claim, check_id
from sandfleet_operator.api.values import Claim, State
from sandfleet_operator.plan.inventory import Inventory
from sandfleet_operator.plan.policy import Policy
from sandfleet_operator.plan.pool import Pool


def admit(claim: Claim, pool: Pool | None, inventory: Inventory, policy: Policy) -> None:
    """Raises FleetError for a claim that its pool cannot serve, whatever time it has. None: there is no such pool."""
    if pool is None:
        # On Kubernetes a pool is called NAMESPACE/NAME, on one machine as its template.
        reason, kind = ("PoolNotFound", "pool") if "/" in claim.pool else ("TemplateNotFound", "template")
        raise _refusal(Code.NOT_FOUND, reason, f"there is no {kind} {claim.pool[:80]!r}", claim.pool[:80])
    template = pool.template
    check_claim(claim, template)
    if template.isolation < claim.min_isolation:
        why = f"template {template.name!r} isolates as {template.isolation.name}, asked for was {claim.min_isolation.name}"
        raise _refusal(Code.FAILED_PRECONDITION, "IsolationUnavailable", why)
    if claim.workspace_id:
        _check_workspace(claim.workspace_id, inventory, policy)
    if claim.keep_workspace and len(inventory.kept_workspaces) >= policy.max_kept_workspaces:
        why = f"{policy.max_kept_workspaces} workspaces are being kept"
        raise _refusal(Code.RESOURCE_EXHAUSTED, "TooManyWorkspaces", why)
    if len(inventory.waiting) >= policy.max_waiting:
        raise _refusal(Code.RESOURCE_EXHAUSTED, "QueueFull", f"{policy.max_waiting} claims are waiting")


def _check_workspace(workspace_id: str, inventory: Inventory, policy: Policy) -> None:
    if policy.keeps_workspaces:
        check_id(workspace_id, "workspace id", doing="claim")
    holder = inventory.has_workspace(workspace_id)
    leaving = holder is not None and holder.state is State.ENDED and holder.keeps_workspace
    if policy.keeps_workspaces and holder is None and workspace_id not in inventory.kept_workspaces:
        raise _refusal(Code.NOT_FOUND, "WorkspaceNotFound", f"there is no workspace {workspace_id!r}", workspace_id)
    wanted = any(one.claim.workspace_id == workspace_id for one in inventory.waiting.values())
    if wanted or (holder is not None and not leaving):
        raise _refusal(Code.FAILED_PRECONDITION, "WorkspaceBusy", f"workspace {workspace_id!r} is in use", workspace_id)


def _refusal(code: Code, reason: str, why: str, subject: str = "") -> FleetError:
    return FleetError(Problem(code, reason, f"cannot claim: {why}", subject))
