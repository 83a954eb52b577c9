"""Suspending sessions and resuming them: the events of their callers, of other writers, and of time."""

import math
from dataclasses import replace

from sandfleet_operator.api.reasons import ClaimReason, EndReason, SuspendReason
from sandfleet_operator.api.values import ASLEEP, Claim, Sandbox, State
from sandfleet_operator.plan.scheduler import lifecycle
from sandfleet_operator.plan.scheduler.actions import Action, Answer
from sandfleet_operator.plan.scheduler.cycle import SchedulingCycle
from sandfleet_operator.plan.scheduler.inventory import Inventory
from sandfleet_operator.plan.scheduler.lifecycle import Step
from sandfleet_operator.plan.scheduler.limits import FleetLimits
from sandfleet_operator.plan.scheduler.pool_queues import PoolQueues
from sandfleet_operator.plan.scheduler.queues.quota import Verdict, vector
from sandfleet_operator.plan.scheduler.queues.weights import ONE_SANDBOX
from sandfleet_operator.plan.scheduler.transitions import Transitions


class Suspensions:
    """Each event is a method that returns what to do about it, as the scheduler's own."""

    def __init__(
        self,
        inventory: Inventory,
        queues: PoolQueues,
        cycle: SchedulingCycle,
        transitions: Transitions,
        limits: FleetLimits,
    ) -> None:
        self._inventory = inventory
        self._queues = queues
        self._cycle = cycle
        self._transitions = transitions
        self._limits = limits

    def check_room(self, sandbox_id: str) -> None:
        """Raises FleetError where no further session may be suspended."""
        if sum(self._inventory.count(state) for state in ASLEEP) >= self._limits.max_suspended:
            why = f"cannot suspend the sandbox: {self._limits.max_suspended} sessions are suspended"
            raise SuspendReason.TOO_MANY_SUSPENDED.error(why, sandbox_id)

    def suspend(self, sandbox_id: str, seconds: float | None, now: float, *, parked: bool = False) -> list[Action]:
        """The executor keeps the session, which is to end: for `seconds` at most; None means the longest.

        `parked`: a snapshot keeps it, which has no longest time.
        """
        sandbox = self._inventory.get(sandbox_id)
        if sandbox is None or sandbox.state is not State.CLAIMED:
            return []
        end = self._end(replace(sandbox, parked=parked), seconds, now)
        return self._apply(sandbox, lifecycle.suspending(sandbox, end, parked=parked), now)

    def preempt(self, sandbox_id: str, now: float, *, parked: bool = False) -> list[Action]:
        """The executor keeps the session, which is to end for the owner of its quota: it waits to be resumed.

        `parked`: a snapshot keeps it.
        """
        sandbox = self._inventory.get(sandbox_id)
        if sandbox is None or sandbox.state is not State.CLAIMED:
            return []
        end = self._end(replace(sandbox, parked=parked), None, now)
        step = lifecycle.suspending(sandbox, end, preempted=now, parked=parked)
        actions = self._transitions.apply(sandbox, step, now)
        self._wait_to_return(sandbox_id)
        return [*actions, *self._cycle.run(sandbox.pool, now)]

    def release(self, sandbox_id: str, now: float) -> list[Action]:
        """It ends for the owner of its quota, since it cannot be suspended."""
        sandbox = self._inventory.get(sandbox_id)
        if sandbox is None or sandbox.state is not State.CLAIMED:
            return []
        return self._apply(sandbox, lifecycle.ended(sandbox, EndReason.PREEMPTED.value), now)

    def is_preempted(self, sandbox: Sandbox) -> bool:
        """Whether it waits to be resumed, by itself."""
        waiting = self._inventory.waiting.get(sandbox.claim.key) if sandbox.claim else None
        waits = waiting is not None and waiting.returns is not None
        return sandbox.state in ASLEEP and waits and sandbox.preempted is not None

    def suspended(self, sandbox: Sandbox, until: float | None, now: float, *, running: bool) -> list[Action]:
        """Another writer has suspended the session, or an earlier leader has. `until` as it stands there.

        A session that an earlier leader has preempted says since when, and when its claim has arrived. `running`: it
        has a process, or uses its quota until another writer says that it does not.
        """
        if sandbox.state is State.SUSPENDING and not running:
            return self._apply(sandbox, lifecycle.fell_asleep(sandbox), now)
        if not sandbox.bound or sandbox.state in {*ASLEEP, State.ENDED}:
            return []
        longest = self._end(sandbox, None, now)
        bounded = longest if longest is None or until is None else min(until, longest)
        end = until if sandbox.parked else bounded
        actions = self._transitions.apply(sandbox, lifecycle.suspended(sandbox, end, running=running), now)
        if sandbox.preempted is not None:
            self._wait_to_return(sandbox.sandbox_id)
        return [*actions, *self._cycle.run(sandbox.pool, now)]

    def take_in(self, sandbox: Sandbox, now: float) -> None:
        """A session that no fleet had in its memory sleeps here, and may be resumed. Raises FleetError without room."""
        self.check_room(sandbox.sandbox_id)
        self._inventory.put(replace(sandbox, suspended_until=self._end(sandbox, None, now)))

    def filling(self, sandbox_uid: str, now: float) -> None:
        """A sandbox is being filled, which takes its time: its start is not overdue yet."""
        sandbox = self._inventory.of_incarnation(sandbox_uid)
        if sandbox is not None and sandbox.state in {State.STARTING, State.RESUMING, State.RECOVERING}:
            self._inventory.put(replace(sandbox, started=now))

    def resumed(self, sandbox_id: str, now: float) -> list[Action]:
        """Another writer has resumed the session: its next incarnation is on its way."""
        sandbox = self._inventory.get(sandbox_id)
        if sandbox is None or sandbox.state not in ASLEEP:
            return []
        return self._apply(sandbox, lifecycle.resuming(sandbox, sandbox.sandbox_uid, now, asked=False), now)

    def returns(self, sandbox_id: str, asked: float, now: float) -> list[Action]:
        """Another writer wants the sleeping session to go on: it waits for quota, in the place of who came at `asked`.

        To be called again while it sleeps, as its pool or its queue may have gone.
        """
        sandbox = self._inventory.get(sandbox_id)
        if sandbox is None or sandbox.claim is None or sandbox.state not in ASLEEP:
            return []
        claim, state = sandbox.claim, self._queues.get(sandbox.claim.pool)
        if state is None or state.pool.closed:
            rests = sandbox.state is State.SUSPENDED and self._quota(claim).admits
            return self._cycle.resume(sandbox, now) if rests else []
        waiting = self._inventory.waiting.get(claim.key)
        if waiting is None:
            lasting = replace(sandbox, arrived=min(asked, now), suspended_until=None)
            self._queues.wait_to_return(_wanted(sandbox, claim), lasting)
        elif waiting.returns is None:
            self._queues.put(replace(waiting, returns=math.inf))
        return self._cycle.run(claim.pool, now)

    def resume(self, sandbox: Sandbox, max_wait: float, now: float) -> list[Action]:
        """A caller takes the session on, perhaps again. It waits in its pool's queue for a place."""
        claim = sandbox.claim
        assert claim is not None
        if sandbox.state not in {*ASLEEP, State.RESUMING}:
            return [Answer(claim.key, sandbox)]
        if (waiting := self._inventory.waiting.get(claim.key)) is not None and waiting.returns is not None:
            # It waits already, in its old place, and goes on to wait when this caller leaves.
            self._queues.put(replace(waiting, deadline=min(waiting.returns, now + max_wait)))
        if sandbox.state is State.RESUMING or waiting is not None:
            return []
        state, quota = self._queues.get(claim.pool), self._quota(claim)
        if sandbox.state is State.SUSPENDED and quota.admits and (state is None or state.pool.closed):
            # A session keeps what it was made of, also without its pool.
            return self._cycle.resume(sandbox, now)
        if state is None:
            why = "cannot resume the sandbox: its pool is gone, and it is still ending or its queue has no quota for it"
            raise ClaimReason.SANDBOX_LIMIT.error(why, sandbox.sandbox_id)
        wanted = replace(_wanted(sandbox, claim), max_wait=max_wait)
        self._queues.arrive(wanted, now, resumes=sandbox.sandbox_id)
        return self._cycle.run(claim.pool, now)

    def _wait_to_return(self, sandbox_id: str) -> None:
        """Not without its pool: then a caller has to resume it."""
        sandbox = self._inventory.get(sandbox_id)
        if sandbox is not None and sandbox.claim is not None and self._queues.get(sandbox.claim.pool) is not None:
            self._queues.wait_to_return(_wanted(sandbox, sandbox.claim), sandbox)

    def _quota(self, claim: Claim) -> Verdict:
        amount = vector(claim.amount) if claim.amount is not None else ONE_SANDBOX
        return self._inventory.ledger.judge(claim.queue, amount)

    def _end(self, sandbox: Sandbox, seconds: float | None, now: float) -> float | None:
        """When a suspension that begins now is over. What ends with its object has no lease that could rest."""
        assert sandbox.claim is not None
        if math.isinf(sandbox.claim.lease) or (sandbox.parked and seconds is None):
            return None
        longest = self._limits.longest_suspension
        if sandbox.parked and seconds is not None:
            return now + seconds
        return now + (longest if seconds is None else min(seconds, longest))

    def _apply(self, sandbox: Sandbox, step: Step, now: float) -> list[Action]:
        return [*self._transitions.apply(sandbox, step, now), *self._cycle.run(sandbox.pool, now)]


def _wanted(sandbox: Sandbox, claim: Claim) -> Claim:
    """A gang is bound as one; its sandboxes are suspended and resumed one by one."""
    return replace(claim, workspace_id=sandbox.workspace_id, gang=None)
