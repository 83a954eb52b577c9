"""What the passing of time does: claims that waited too long, starts that take too long, and leases that are over."""

from dataclasses import replace

from sandfleet_operator.api.reasons import AdmissionReason, ClaimReason, EndReason
from sandfleet_operator.api.values import ASLEEP, Hold, Sandbox, State
from sandfleet_operator.plan.scheduler import lifecycle
from sandfleet_operator.plan.scheduler.actions import Action, AskLease
from sandfleet_operator.plan.scheduler.capacity import Capacity
from sandfleet_operator.plan.scheduler.inventory import Inventory
from sandfleet_operator.plan.scheduler.limits import FleetLimits
from sandfleet_operator.plan.scheduler.patience import Patience
from sandfleet_operator.plan.scheduler.pool_queues import PoolQueues, PoolState
from sandfleet_operator.plan.scheduler.transitions import Transitions

# What has not come in time.
_OVERDUE = {
    Hold.NONE: "not ready",
    Hold.SCHEDULING_GATED: "its pod's scheduling gates were not removed",
    Hold.UNSCHEDULABLE: "no node had room for it",
    Hold.IMAGE_PULLING: "its node has not pulled its image",
}


class Deadlines:
    def __init__(
        self,
        limits: FleetLimits,
        inventory: Inventory,
        *,
        queues: PoolQueues,
        capacity: Capacity,
        transitions: Transitions,
        patience: Patience,
    ) -> None:
        self._limits = limits
        self._inventory = inventory
        self._queues = queues
        self._capacity = capacity
        self._transitions = transitions
        self._patience = patience

    def pass_to(self, now: float) -> list[Action]:
        """Everything whose time is over at `now`."""
        actions = [*self._patience.pass_to(now), *self._overdue_starts(now), *self._ended_sessions(now)]
        for state in self._queues.all():
            if state.trouble is not None and state.trouble.is_stale(now):
                state.trouble = None
            actions += self._abandoned_gangs(state, now)
        return actions

    def _overdue_starts(self, now: float) -> list[Action]:
        """Of the few sandboxes that are being started; an executor that is replaced is, where the fleet does that."""
        states = (State.STARTING, State.RESUMING, *((State.RECOVERING,) if self._limits.recovers else ()))
        actions: list[Action] = []
        for sandbox in [one for state in states for one in self._inventory.in_state(state)]:
            timeout = self._queues.start_timeout(sandbox.pool) or self._limits.start_timeout
            if self._capacity.start_is_overdue(sandbox, timeout, now):
                late = f"{_OVERDUE[sandbox.hold]} within {self._capacity.patience_with(sandbox.hold, timeout):g} s"
                problem = ClaimReason.START_TIMEOUT.problem(f"cannot start a sandbox: {late}")
                actions += self._transitions.apply(sandbox, lifecycle.unfit(sandbox, problem), now)
        return actions

    def _ended_sessions(self, now: float) -> list[Action]:
        actions: list[Action] = []
        for sandbox_id in self._inventory.ends.over(now):
            sandbox = self._inventory.get(sandbox_id)
            if sandbox is None:
                continue
            if self._capacity.lease_is_over(sandbox, now):
                actions += self._lease_over(sandbox, now)
            elif self._suspension_is_over(sandbox, now):
                step = lifecycle.ended(sandbox, EndReason.SUSPENSION_OVER.value)
                actions += self._transitions.apply(sandbox, step, now)
        return actions

    def _abandoned_gangs(self, state: PoolState, now: float) -> list[Action]:
        """Ends what an earlier leader has bound of gangs that are not completed in time."""
        actions: list[Action] = []
        for sandbox_ids, keys in state.queue.gangs.abandoned(now):
            why = AdmissionReason.GANG_BROKEN.problem("cannot claim: the next leader could not complete the gang")
            waiting = self._inventory.waiting.get(keys[0]) if keys else None
            if waiting is not None:
                actions += self._transitions.refuse(waiting, why, now)
            for name in sandbox_ids:
                sandbox = self._inventory.get(name)
                if sandbox is not None:
                    step = lifecycle.ended(sandbox, EndReason.GANG_INCOMPLETE.value)
                    actions += self._transitions.apply(sandbox, step, now)
        return actions

    def has_time(self, sandbox: Sandbox, now: float) -> bool:
        """Whether the session's lease is not over, as far as it is known, or it may still fall asleep."""
        expires, claim = sandbox.lease_expires, sandbox.claim
        settles = claim.settles if claim is not None else 0.0
        return expires is None or now < expires + settles or self._capacity.lease_is_doubtful(sandbox, now)

    def _suspension_is_over(self, sandbox: Sandbox, now: float) -> bool:
        """Not while a caller waits to resume it."""
        until = sandbox.suspended_until
        if sandbox.state not in ASLEEP or until is None or now < until:
            return False
        return sandbox.claim is None or sandbox.claim.key not in self._inventory.waiting

    def _lease_over(self, sandbox: Sandbox, now: float) -> list[Action]:
        """Ends the sandbox, unless an earlier leader may have renewed its lease: then its executor is asked first."""
        if not self._capacity.lease_is_doubtful(sandbox, now):
            return self._transitions.apply(sandbox, lifecycle.ended(sandbox, EndReason.LEASE_EXPIRED.value), now)
        if sandbox.lease_asked is not None:
            return []
        self._inventory.put(replace(sandbox, lease_asked=now))
        return [AskLease(sandbox)]
