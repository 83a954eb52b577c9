"""The scheduling cycle of one pool, which runs after each event that concerns the pool."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from heapq import merge
from itertools import islice

from sandfleet_operator.api.reasons import EndReason
from sandfleet_operator.api.values import Sandbox, State
from sandfleet_operator.plan.scheduler import lifecycle
from sandfleet_operator.plan.scheduler.actions import Action
from sandfleet_operator.plan.scheduler.capacity import Capacity
from sandfleet_operator.plan.scheduler.claim_queue import Waiting
from sandfleet_operator.plan.scheduler.inventory import Inventory
from sandfleet_operator.plan.scheduler.limits import FleetLimits
from sandfleet_operator.plan.scheduler.pool_queues import PoolQueues, PoolState
from sandfleet_operator.plan.scheduler.queues.declared import DeclaredSandboxes
from sandfleet_operator.plan.scheduler.queues.ledger import Demands
from sandfleet_operator.plan.scheduler.queues.places import DECLARED
from sandfleet_operator.plan.scheduler.queues.weights import arrival
from sandfleet_operator.plan.scheduler.refill import (
    Pool,
    Refill,
    Room,
    Supply,
    missing_starts,
    refill,
    refill_shared,
    surplus,
)
from sandfleet_operator.plan.scheduler.starts.health import SlowStart
from sandfleet_operator.plan.scheduler.transitions import Transitions

# Sandboxes that a cycle ends: there are cycles at each event and several times a second.
ENDED_AT_ONCE = 25


class SchedulingCycle:
    """Heads → snapshot → nominate → order → admit → requeue. `new_id` makes a name for something of the given pool."""

    def __init__(
        self,
        *,
        limits: FleetLimits,
        inventory: Inventory,
        queues: PoolQueues,
        capacity: Capacity,
        transitions: Transitions,
        declared: DeclaredSandboxes,
        new_id: Callable[[str], str],
    ) -> None:
        self._limits = limits
        self._inventory = inventory
        self._queues = queues
        self._capacity = capacity
        self._transitions = transitions
        self._declared = declared
        self._new_id = new_id

    def run(self, pool: str, now: float) -> list[Action]:
        """The cycles of the pool and of those whose claims may use quota that was freed since the last call."""
        pools = self._freed()
        return self._run_all(pools if pool in pools else [pool, *pools], now)

    def run_after(self, before: Sandbox, now: float, *, alone: bool) -> list[Action]:
        """The cycles that follow from a change of one sandbox, which was `before`; `alone`: nothing else has changed.

        A session that begins or is released takes the same place and the same quota until its process is gone: the
        pool's next cycle could decide nothing that the last one did not.
        """
        after = self._inventory.get(before.sandbox_id) if alone else None
        if before.state is State.CLAIMED and after is not None and after.state in {State.CLAIMED, State.ENDED}:
            return self.run_freed(now)
        return self.run(before.pool, now)

    def run_freed(self, now: float) -> list[Action]:
        """The cycles of the pools whose claims may use quota that was freed since the last call."""
        return self._run_all(self._freed(), now)

    def _run_all(self, pools: list[str], now: float) -> list[Action]:
        actions: list[Action] = []
        while pools:
            for one in pools:
                actions += self._run(one, now)
            pools = self._freed()
        return actions

    def _freed(self) -> list[str]:
        """The pools whose claims may use freed quota: those of the queue that borrows least first."""
        ledger, places = self._inventory.ledger, self._queues.places
        if not (freed := ledger.take_freed()):
            return []
        waiting = places.with_claims(freed)
        pools = places.of(waiting)
        return pools if len(pools) <= 1 else places.of(ledger.by_share(waiting))

    def _run(self, pool: str, now: float) -> list[Action]:
        if pool == DECLARED:
            return list(self._declared.admit(now))
        state = self._queues.get(pool)
        if state is None:
            return self._replace_crashed(now)
        actions: list[Action] = []
        # 1. Heads: of each queue with claims at this pool, the claim whose turn it is within the queue.
        heads = state.queue.turns(now, lambda: self._capacity.reach(state.pool))
        # 2. Snapshot: what the pool can hand out at this moment. What quotas leave is asked for each claim.
        hands_out = not (state.pool.closed or (state.trouble and state.trouble.stops_binding(now)))
        # 3. Nominate: the warm sandboxes, those of the present revision first, for heads that their quotas permit.
        for sandbox in self._nominable(state.pool) if hands_out else ():
            # 4. Order: the policy says which of the heads goes first; the next claim of its queue is a head then.
            waiting = next(heads, None)
            if waiting is None:
                break
            # 5. Admit: bind the claim to the sandbox; its quota is in use from now on.
            actions += self._admit(waiting, sandbox, now)
        if not hands_out or not self._inventory.count_of(pool, State.WARM):
            state.queue.stand_back()
        if state.pool.closed:
            state.queue.gangs.let_pass()
        # Then use the free slots: sessions that crashed go before new starts.
        actions += self._replace_crashed(now)
        actions += self._refill(state, now)
        # 6. Requeue: all other claims keep their places; why they wait follows from what is left.
        return actions

    def _nominable(self, pool: Pool) -> Iterator[Sandbox]:
        """The warm sandboxes. Each has to be admitted before the next is taken."""
        while (sandbox := self._inventory.first_of(pool.name, State.WARM, pool.revision)) is not None:
            yield sandbox

    def _admit(self, waiting: Waiting, sandbox: Sandbox, now: float) -> list[Action]:
        self._reserve(waiting, sandbox)
        return self._transitions.apply(sandbox, lifecycle.assigned(sandbox, waiting, now), now)

    def _reserve(self, waiting: Waiting, sandbox: Sandbox) -> None:
        self._queues.put(replace(waiting, sandbox_id=sandbox.sandbox_id))

    def _replace_crashed(self, now: float) -> list[Action]:
        if not self._inventory.count(State.RECOVERING):
            return []
        actions: list[Action] = []
        slots = self._capacity.free_slots()
        for sandbox in self._inventory.in_state(State.RECOVERING):
            if slots > 0 and not sandbox.running and sandbox.replace_at is not None and now >= sandbox.replace_at:
                slots -= 1
                step = lifecycle.replaced(sandbox, self._new_id(sandbox.pool), now)
                actions += self._transitions.apply(sandbox, step, now)
        return actions

    def _refill(self, state: PoolState, now: float) -> list[Action]:
        """Starts the missing sandboxes, and ends those that the pool does not need."""
        pool = state.pool
        if pool.closed or now < state.retry_at:
            self._capacity.rest(pool)
            return []
        supply, places = self._capacity.supply(pool), self._capacity.room(pool)
        demands = state.queue.demands(now, self._capacity.most_starts(pool, places))
        missing = missing_starts(supply, demands.shared, demands.claims - demands.shared)
        self._capacity.want(pool, min(missing, self._batch(state, missing)), places)
        room = self._capacity.room_to_start(pool, places)
        plan = self._plan(state, demands, supply, room) if demands.alone else refill_shared(missing, supply, room)
        actions: list[Action] = []
        for waiting in plan.dedicated:
            actions += self._start(pool, waiting, now)
        for _ in range(plan.shared):
            actions += self._start(pool, None, now)
        for sandbox in self._capacity.dispensable(
            pool, min(ENDED_AT_ONCE, plan.evict or surplus(supply, demands.lent))
        ):
            step = lifecycle.ended(sandbox, EndReason.NOT_NEEDED.value)
            actions += self._transitions.apply(sandbox, step, now)
        for sandbox in self._capacity.misplaced(
            pool, supply.warm + supply.starting - pool.target_warm - demands.claims
        ):
            actions += self._transitions.apply(sandbox, lifecycle.misplaced(sandbox), now)
        return actions

    def _batch(self, state: PoolState, missing: int) -> int:
        """How many of the missing starts may begin before the API server has taken those before."""
        if not self._limits.confirms_starts:
            return missing
        unmade = self._capacity.unmade(state.pool)
        if not unmade and not missing:
            state.batches = SlowStart()
        return max(0, state.batches.window - unmade)

    def _plan(self, state: PoolState, demands: Demands, supply: Supply, room: Room) -> Refill:
        """What to start, for claims in order of arrival: some need a start of their own."""
        if not room.slots:
            return refill((), supply, room)
        alone = state.queue.alone_in_order(demands)
        startable = (one for one in alone if self._may_start(one))
        shared = islice(state.queue.shared_in_order(), demands.shared)
        return refill(merge(shared, startable, key=arrival), supply, room)

    def _may_start(self, waiting: Waiting) -> bool:
        if waiting.resumes:
            session = self._inventory.get(waiting.resumes)
            return session is not None and session.state is State.SUSPENDED
        return self._capacity.has_room_on(waiting.claim.workspace_id)

    def _start(self, pool: Pool, waiting: Waiting | None, now: float) -> list[Action]:
        session = self._inventory.get(waiting.resumes) if waiting else None
        if waiting is not None and session is not None:
            self._reserve(waiting, session)
            return self.resume(session, now)
        claim = waiting.claim if waiting else None
        name = self._new_id(pool.name)
        sandbox = Sandbox(
            sandbox_id=name,
            sandbox_uid=self._new_id(pool.name) if self._limits.recovers else name,
            pool=pool.name,
            template=pool.template.name,
            workspace_id=(claim.workspace_id if claim else "") or self._new_id(pool.name),
            state=State.STARTING,
            created=now,
            started=now,
            contract=pool.template.contract,
            isolation=pool.template.isolation,
            revision=pool.revision,
            claim=claim,
            arrived=waiting.asked if waiting else None,
            unmade=self._limits.confirms_starts,
        )
        if waiting is not None:
            self._reserve(waiting, sandbox)
        self._inventory.kept_workspaces.discard(sandbox.workspace_id)
        return self._transitions.apply(sandbox, lifecycle.started(sandbox), now)

    def resume(self, session: Sandbox, now: float) -> list[Action]:
        """Starts a suspended session, whatever its pool says."""
        # On Kubernetes the operator names the next incarnation, and says so when it is there.
        uid = self._new_id(session.pool) if self._limits.recovers else session.sandbox_uid
        return self._transitions.apply(session, lifecycle.resuming(session, uid, now), now)
