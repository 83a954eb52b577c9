"""What the passing of time does: claims that waited too long, starts that take too long, and leases that are over."""

from dataclasses import replace

from sandfleet_operator.api.errors import Problem
from sandfleet_operator.api.reasons import ClaimReason, EndReason
from sandfleet_operator.api.values import ASLEEP, Sandbox
from sandfleet_operator.plan.scheduler import lifecycle
from sandfleet_operator.plan.scheduler.actions import Action, Answer, AskLease
from sandfleet_operator.plan.scheduler.capacity import Capacity
from sandfleet_operator.plan.scheduler.claim_queue import Waiting, overdue_problem
from sandfleet_operator.plan.scheduler.inventory import Inventory
from sandfleet_operator.plan.scheduler.limits import FleetLimits
from sandfleet_operator.plan.scheduler.pool_queues import PoolQueues
from sandfleet_operator.plan.scheduler.queues.standings import Standings
from sandfleet_operator.plan.scheduler.transitions import Transitions


class Deadlines:
    def __init__(
        self,
        limits: FleetLimits,
        inventory: Inventory,
        *,
        queues: PoolQueues,
        capacity: Capacity,
        transitions: Transitions,
        standings: Standings,
    ) -> None:
        self._limits = limits
        self._inventory = inventory
        self._queues = queues
        self._capacity = capacity
        self._transitions = transitions
        self._standings = standings

    def pass_to(self, now: float) -> list[Action]:
        """Everything whose time is over at `now`."""
        actions: list[Action] = []
        for waiting in list(self._inventory.waiting.values()):
            if now >= waiting.deadline and not self._queues.is_binding(waiting):
                actions += self._wait_over(waiting, now)
        for sandbox in self._inventory.all():
            timeout = self._queues.start_timeout(sandbox.pool) or self._limits.start_timeout
            if self._capacity.start_is_overdue(sandbox, timeout, now):
                why = f"cannot start a sandbox: not ready within {timeout:g} s"
                actions += self._transitions.apply(
                    sandbox, lifecycle.unfit(sandbox, ClaimReason.START_TIMEOUT.problem(why)), now
                )
            elif self._capacity.lease_is_over(sandbox, now):
                actions += self._lease_over(sandbox, now)
            elif self._suspension_is_over(sandbox, now):
                step = lifecycle.ended(sandbox, EndReason.SUSPENSION_OVER.value)
                actions += self._transitions.apply(sandbox, step, now)
        for state in self._queues.all():
            if state.trouble is not None and state.trouble.is_stale(now):
                state.trouble = None
        return actions

    def has_time(self, sandbox: Sandbox, now: float) -> bool:
        """Whether the session's lease is not over, as far as it is known."""
        expires = sandbox.lease_expires
        return expires is None or now < expires or self._capacity.lease_is_doubtful(sandbox, now)

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

    def _wait_over(self, waiting: Waiting, now: float) -> list[Action]:
        """A preempted session waits on where only its caller's time is over."""
        problem = self._overdue(waiting)
        if waiting.returns is not None and now < waiting.returns and self._queues.caller_left(waiting):
            return [Answer(waiting.claim.key, problem)]
        return self._transitions.refuse(waiting, problem, now)

    def _overdue(self, waiting: Waiting) -> Problem:
        state = self._queues.get(waiting.claim.pool)
        assert state is not None, "a claim waits at a pool"
        why, trouble = self._standings.why_not(waiting.claim.key), state.trouble
        return overdue_problem(
            waiting,
            full=self._capacity.room(state.pool) <= 0,
            closed=state.pool.closed,
            trouble=trouble if trouble and why and why.reason == trouble.reason else None,
        )
