"""The scheduling cycle of one pool, which runs after each event that concerns the pool."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from sandfleet_operator.api.reasons import EndReason
from sandfleet_operator.api.values import Sandbox, State
from sandfleet_operator.plan.scheduler import lifecycle
from sandfleet_operator.plan.scheduler.actions import Action
from sandfleet_operator.plan.scheduler.capacity import Capacity
from sandfleet_operator.plan.scheduler.claim_queue import Nomination, SchedulingPolicy, Snapshot, Waiting, nominate
from sandfleet_operator.plan.scheduler.inventory import Inventory
from sandfleet_operator.plan.scheduler.limits import FleetLimits
from sandfleet_operator.plan.scheduler.pool_queues import PoolQueues, PoolState
from sandfleet_operator.plan.scheduler.refill import Pool, refill, surplus
from sandfleet_operator.plan.scheduler.starts.health import SlowStart
from sandfleet_operator.plan.scheduler.transitions import Transitions


class SchedulingCycle:
    """Heads → snapshot → nominate → order → admit → requeue. `new_id` makes a name for something of the given pool."""

    def __init__(
        self,
        policy: SchedulingPolicy,
        *,
        limits: FleetLimits,
        inventory: Inventory,
        queues: PoolQueues,
        capacity: Capacity,
        transitions: Transitions,
        new_id: Callable[[str], str],
    ) -> None:
        self._policy = policy
        self._limits = limits
        self._inventory = inventory
        self._queues = queues
        self._capacity = capacity
        self._transitions = transitions
        self._new_id = new_id

    def run(self, pool: str, now: float) -> list[Action]:
        state = self._queues.get(pool)
        if state is None:
            return self._replace_crashed(now)
        # 1. Heads: the claims that a warm sandbox can serve, the next one first.
        heads = self._policy.heads(state.queue)
        # 2. Snapshot: what the pool can hand out at this moment.
        snapshot = self._snapshot(state)
        # 3. Nominate: a warm sandbox for each head, of the present revision first, as far as they go.
        nominated = self._nominate(state, heads, snapshot, now)
        # 4. Order: the policy says whose nomination goes first.
        ordered = self._policy.order(nominated)
        # 5. Admit: bind the nominated claims, then use the free slots: sessions that crashed go before new starts.
        actions = [action for one in ordered for action in self._admit(one, now)]
        actions += self._replace_crashed(now)
        actions += self._refill(state, now)
        # 6. Requeue: all other claims keep their places; why they wait follows from what is left.
        state.left = self._snapshot(state)
        return actions

    def _snapshot(self, state: PoolState) -> Snapshot:
        name = state.pool.name
        return Snapshot(
            closed=state.pool.closed,
            warm=self._inventory.count_of(name, State.WARM),
            starting=self._inventory.count_of(name, State.STARTING),
            full=self._capacity.room(state.pool) <= 0,
            unmade=self._capacity.unmade(state.pool),
            trouble=state.trouble,
        )

    def _nominate(self, state: PoolState, heads: Iterator[Waiting], snapshot: Snapshot, now: float) -> list[Nomination]:
        if snapshot.closed or not snapshot.warm or (state.trouble and state.trouble.stops_binding(now)):
            return []
        warm = self._inventory.of_pool(state.pool.name, State.WARM, state.pool.revision)
        return nominate(heads, warm, snapshot.warm)

    def _admit(self, nomination: Nomination, now: float) -> list[Action]:
        waiting, sandbox = nomination.waiting, nomination.sandbox
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
        self._capacity.want(pool, state.queue, self._batch(state))
        supply, room = self._capacity.supply(pool), self._capacity.room_to_start(pool)
        plan = refill(self._startable(state) if room.slots > 0 else (), supply, room)
        actions: list[Action] = []
        for waiting in plan.dedicated:
            actions += self._start(pool, waiting, now)
        for _ in range(plan.shared):
            actions += self._start(pool, None, now)
        for sandbox in self._capacity.dispensable(pool, plan.evict or surplus(supply)):
            step = lifecycle.ended(sandbox, EndReason.NOT_NEEDED.value)
            actions += self._transitions.apply(sandbox, step, now)
        return actions

    def _batch(self, state: PoolState) -> int | None:
        """How many starts may begin before the API server has taken those before; None: any number."""
        if not self._limits.confirms_starts:
            return None
        unmade = self._capacity.unmade(state.pool)
        if not unmade and not self._capacity.missing(state.pool, state.queue):
            state.batches = SlowStart()
        return max(0, state.batches.window - unmade)

    def _startable(self, state: PoolState) -> Iterator[Waiting]:
        return (one for one in state.queue if self._may_start(one))

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
            workspace_id=claim.workspace_id if claim else self._new_id(pool.name),
            state=State.STARTING,
            created=now,
            started=now,
            isolation=pool.template.isolation,
            revision=pool.revision,
            claim=claim,
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
