"""Whether a claim may wait at all."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from sandfleet_operator.api.errors import CallReason, FleetError
from sandfleet_operator.api.reasons import AdmissionReason, ClaimReason
from sandfleet_operator.api.validate import check_claim, check_id
from sandfleet_operator.api.values import Amount, Claim, Gang, State
from sandfleet_operator.plan.scheduler.inventory import Inventory
from sandfleet_operator.plan.scheduler.limits import FleetLimits
from sandfleet_operator.plan.scheduler.queues.ledger import Ledger
from sandfleet_operator.plan.scheduler.queues.quota import is_within, times, vector
from sandfleet_operator.plan.scheduler.refill import Pool
from sandfleet_operator.plan.scheduler.starts.shares import namespace_of

# Characters of a name in a refusal.
MAX_NAME = 80


def weighed(claim: Claim, pool: Pool | None) -> Claim:
    """The claim with what it counts against the quota of its queue."""
    return claim if pool is None or not claim.queue else replace(claim, amount=pool.template.amount)


def no_pool(name: str, known: Sequence[str]) -> FleetError:
    """The refusal of a claim whose pool does not exist. Templates of one machine are named; pools may be others'."""
    # On Kubernetes a pool is called NAMESPACE/NAME, on one machine as its template.
    if "/" in name:
        return _refusal(ClaimReason.POOL_NOT_FOUND, f"there is no pool {name[:80]!r}", name[:80])
    there = ", ".join(sorted(each for each in known if "/" not in each)[:20]) or "none"
    return _refusal(
        ClaimReason.TEMPLATE_NOT_FOUND, f"there is no template {name[:80]!r}; there are: {there}", name[:80]
    )


def admit(
    claim: Claim,
    pool: Pool,
    inventory: Inventory,
    limits: FleetLimits,
    *,
    waiting_beside: int,
    come_back: Callable[[], float],
) -> None:
    """Raises FleetError for a claim that its pool cannot serve, whatever time it has.

    `waiting_beside` counts the claims that wait in the pool's namespace; `come_back` says in how many seconds one may
    come that finds too many of them.
    """
    template = pool.template
    check_claim(claim, template)
    if template.isolation < claim.min_isolation:
        has, wanted = template.isolation.name.lower(), claim.min_isolation.name.lower()
        why = f"template {template.name!r} has the isolation {has!r}, and the claim asks for {wanted!r} at least"
        raise _refusal(ClaimReason.ISOLATION_UNAVAILABLE, why)
    if claim.workspace_id:
        _check_workspace(claim.workspace_id, inventory, limits)
    if claim.keep_workspace and len(inventory.kept_workspaces) >= limits.max_kept_workspaces:
        why = f"{limits.max_kept_workspaces} workspaces are being kept"
        raise _refusal(ClaimReason.TOO_MANY_WORKSPACES, why)
    if claim.gang is not None:
        _check_gang(claim, claim.gang, pool, ledger=inventory.ledger, limits=limits)
    if claim.queue:
        _check_queue(claim, inventory.ledger)
    most = limits.max_waiting_per_namespace
    free = limits.max_waiting - len(inventory.waiting)
    # Never more than are free for others: so there is room for the first claims of any namespace.
    if most is not None and (waiting_beside >= most or 0 < free <= waiting_beside):
        namespace = namespace_of(claim.pool)
        why = f"{waiting_beside} claims are waiting in namespace {namespace}"
        raise _refusal(ClaimReason.NAMESPACE_QUEUE_FULL, why, namespace, come_back())
    if free <= 0:
        raise _refusal(ClaimReason.QUEUE_FULL, f"{limits.max_waiting} claims are waiting", "", come_back())


def _check_gang(claim: Claim, gang: Gang, pool: Pool, *, ledger: Ledger, limits: FleetLimits) -> None:
    check_id(gang.gang_id, "gang id", doing="claim")
    if gang.size < 1 or claim.alone:
        why = (
            "its claims take new workspaces, and their pool's image"
            if claim.alone
            else f"a gang of {gang.size} claims is none"
        )
        raise _refusal(AdmissionReason.INVALID_GANG, why, gang.gang_id)
    most = limits.max_sandboxes if pool.most is None else min(pool.most, limits.max_sandboxes)
    if gang.size > most:
        why = f"a gang of {gang.size} is more than the {most} sandboxes that pool {claim.pool} may have"
        raise _refusal(AdmissionReason.GANG_TOO_LARGE, why, gang.gang_id)
    needed = times(vector(claim.amount or Amount(sandboxes=1)), gang.size)
    if claim.queue and not is_within(needed, ledger.most_ever(claim.queue)):
        why = f"a gang of {gang.size} is more than queue {claim.queue} may ever use"
        raise _refusal(AdmissionReason.GANG_TOO_LARGE, why, gang.gang_id)


def _check_queue(claim: Claim, ledger: Ledger) -> None:
    spec, name = ledger.spec(claim.queue), claim.queue[:MAX_NAME]
    if spec is None:
        raise _refusal(AdmissionReason.QUEUE_NOT_FOUND, f"there is no queue {name!r}", name)
    if claim.priority and claim.priority not in {one.name for one in spec.priority_classes}:
        why = f"queue {name} has no priority class {claim.priority[:MAX_NAME]!r}"
        raise _refusal(AdmissionReason.PRIORITY_NOT_FOUND, why, claim.priority[:MAX_NAME])
    if not is_within(vector(claim.amount or Amount(sandboxes=1)), ledger.most_ever(claim.queue)):
        why = f"one sandbox of pool {claim.pool} is more than queue {name} may ever use"
        raise _refusal(AdmissionReason.QUOTA_TOO_SMALL, why, name)


def _check_workspace(workspace_id: str, inventory: Inventory, limits: FleetLimits) -> None:
    if limits.keeps_workspaces:
        check_id(workspace_id, "workspace id", doing="claim")
    holder = inventory.has_workspace(workspace_id)
    leaving = holder is not None and holder.state is State.ENDED and holder.keeps_workspace
    if limits.keeps_workspaces and holder is None and workspace_id not in inventory.kept_workspaces:
        raise _refusal(ClaimReason.WORKSPACE_NOT_FOUND, f"there is no workspace {workspace_id!r}", workspace_id)
    wanted = any(one.claim.workspace_id == workspace_id for one in inventory.waiting.values())
    if wanted or (holder is not None and not leaving):
        raise _refusal(ClaimReason.WORKSPACE_BUSY, f"workspace {workspace_id!r} is in use", workspace_id)


def _refusal(reason: CallReason, why: str, subject: str = "", retry_after: float | None = None) -> FleetError:
    return reason.error(f"cannot claim: {why}", subject, retry_after=retry_after)
