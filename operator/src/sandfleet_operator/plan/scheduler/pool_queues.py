"""Each pool's queue of claims, and what else is known of the pool. It holds values and decides nothing."""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import inf

from sandfleet_operator.api.conditions import PoolReason
from sandfleet_operator.api.values import Claim, RequestKey, Sandbox, State
from sandfleet_operator.plan.scheduler.capacity import Capacity
from sandfleet_operator.plan.scheduler.claim_queue import Place, Waiting
from sandfleet_operator.plan.scheduler.inventory import Inventory
from sandfleet_operator.plan.scheduler.queues.ends import EndsOfWaits
from sandfleet_operator.plan.scheduler.queues.fair_queue import FairQueue, Policy
from sandfleet_operator.plan.scheduler.queues.places import DECLARED, Places
from sandfleet_operator.plan.scheduler.queues.standing.estimates import Estimates, Rate, Traffic
from sandfleet_operator.plan.scheduler.refill import Pool
from sandfleet_operator.plan.scheduler.starts.health import SlowStart, StartHealth, Trouble
from sandfleet_operator.plan.scheduler.starts.shares import namespace_of

HITS = 100


@dataclass(slots=True)
class PoolState:
    pool: Pool
    # The claims that have no sandbox yet.
    queue: FairQueue
    health: StartHealth = field(default_factory=StartHealth)
    # What the API server has against the pool's starts; None after one that was made.
    trouble: Trouble | None = None
    batches: SlowStart = field(default_factory=SlowStart)
    # Seconds that a start takes, as observed.
    start_seconds: float | None = None
    # Claims that have arrived since the pool was opened.
    arrivals: int = 0
    # Why the last start failed; empty after one that succeeded.
    start_error: str = ""
    # Whether each of the last claims found a warm sandbox.
    hits: deque[bool] = field(default_factory=lambda: deque(maxlen=HITS))
    estimates: Estimates = field(default_factory=Estimates)
    # Of sessions, each of which leaves room for a sandbox.
    releases: Rate = field(default_factory=Rate)

    @property
    def retry_at(self) -> float:
        """When the next start may begin."""
        return max(self.health.retry_at, self.trouble.retry_at if self.trouble else 0.0)

    @property
    def hit_rate(self) -> float | None:
        """0 to 1; None before the first claim."""
        return sum(self.hits) / len(self.hits) if self.hits else None


class PoolQueues:
    def __init__(self, inventory: Inventory, policy: Policy, pools: Iterable[Pool]) -> None:
        self._inventory = inventory
        self._policy = policy
        self._states: dict[str, PoolState] = {}
        # Namespace → claims that wait there.
        self._waiting: Counter[str] = Counter()
        # Claims that have ever come.
        self._arrivals = 0
        self.places = Places()
        self.ends = EndsOfWaits(inventory.waiting)
        self.traffic = Traffic()
        for pool in pools:
            self.open(pool)

    def get(self, pool: str) -> PoolState | None:
        return self._states.get(pool)

    def all(self) -> list[PoolState]:
        return list(self._states.values())

    def open(self, pool: Pool) -> None:
        self._states[pool.name] = PoolState(pool, FairQueue(pool.name, self._inventory.ledger, self._policy))

    def close(self, pool: str) -> None:
        queue = self._states.pop(pool).queue
        queue.stand_back()
        queue.gangs.let_pass()

    def put(self, waiting: Waiting) -> None:
        """Records the claim. It is in the queue only while no sandbox is on its way to it."""
        known = self._inventory.waiting.get(waiting.claim.key)
        if known is None:
            self._waiting[namespace_of(waiting.claim.pool)] += 1
        else:
            self._discard(waiting)
        if not waiting.sandbox_id:
            self._states[waiting.claim.pool].queue.add(waiting)
            self.places.arrive(waiting.claim.queue, waiting.claim.pool)
        self._inventory.waiting[waiting.claim.key] = waiting
        if known is None or known.deadline != waiting.deadline or known.returns != waiting.returns:
            self.ends.add(waiting)

    def arrive(self, claim: Claim, now: float, resumes: str = "", *, place: Place | None = None) -> None:
        """The claim is new. `resumes`: the session that it takes on. `place`: the one that it had at another leader."""
        self._arrivals += 1
        self._states[claim.pool].arrivals += not resumes
        deadline = now + claim.max_wait
        asked, lead = (place.asked, place.lead) if place else (now, None)
        self.put(
            Waiting(claim=claim, number=self._arrivals, asked=asked, deadline=deadline, resumes=resumes, lead=lead)
        )

    def wait_to_return(self, claim: Claim, session: Sandbox) -> None:
        """The preempted session waits to be resumed, in its old place."""
        self._arrivals += 1
        until = inf if session.suspended_until is None else session.suspended_until
        asked = session.created if session.arrived is None else session.arrived
        self.put(
            Waiting(
                claim=claim,
                number=self._arrivals,
                asked=asked,
                deadline=until,
                resumes=session.sandbox_id,
                returns=until,
            )
        )

    def caller_left(self, waiting: Waiting) -> bool:
        """Whether a preempted session waits on without its caller."""
        if waiting.returns is None:
            return False
        self.put(replace(waiting, deadline=waiting.returns))
        return True

    def served(self, key: RequestKey, pool: str, now: float, *, warm: bool) -> None:
        """The claim has its sandbox, of this pool."""
        waiting, state = self._inventory.waiting.get(key), self._states.get(pool)
        if state is not None:
            state.hits.append(warm)
            if waiting is not None:
                state.estimates.served(waiting.number, now)
        if waiting is not None:
            self.traffic.admitted(waiting.claim.queue, now)
        self.leave(key)

    def released(self, sandbox: Sandbox, now: float) -> None:
        """The session of the sandbox is over, or suspended."""
        state = self._states.get(sandbox.pool)
        if state is not None:
            state.releases.note(now)
        if sandbox.claim is not None:
            self.traffic.released(sandbox.claim.queue, now)

    def gone(self, sandbox: Sandbox) -> None:
        """Its process is gone, and its quota is free."""
        state = self._states.get(sandbox.pool)
        if state is not None:
            state.queue.gangs.gone(sandbox.sandbox_id)

    def requeue(self, key: RequestKey, *, failures: int) -> Waiting | None:
        """The claim's sandbox was lost: it waits again, with `failures` more. None if it does not wait."""
        waiting = self._inventory.waiting.get(key)
        if waiting is None:
            return None
        lost = self._inventory.get(waiting.sandbox_id)
        # Of a gang none goes on above the quota that the gang has.
        follows = waiting.sandbox_id if waiting.claim.gang and lost is not None and lost.state is State.ENDED else ""
        waiting = replace(waiting, sandbox_id="", follows=follows, failures=waiting.failures + failures)
        self.put(waiting)
        return waiting

    def leave(self, key: RequestKey) -> Waiting | None:
        """Removes the claim, and returns it if it waited."""
        waiting = self._inventory.waiting.pop(key, None)
        if waiting is not None:
            self._discard(waiting)
            state = self._states.get(waiting.claim.pool)
            if state is not None:
                state.estimates.forget(waiting.number)
                state.queue.gangs.leave(waiting.claim)
            self._waiting[namespace_of(waiting.claim.pool)] -= 1
        return waiting

    def rejoin(self, claim: Claim, sandbox_id: str, now: float) -> None:
        """The caller of a gang's bound claim is back after a change of leader."""
        self._arrivals += 1
        self.put(
            Waiting(
                claim=claim,
                number=self._arrivals,
                asked=now,
                deadline=now + claim.max_wait,
                sandbox_id=sandbox_id,
            )
        )
        self._states[claim.pool].queue.rejoin(claim)

    def members(self, claim: Claim) -> list[RequestKey]:
        """The claims of its gang; the claim alone where it has none."""
        state = self._states.get(claim.pool)
        return state.queue.gangs.members(claim) if state else [claim.key]

    def bind(self, sandbox: Sandbox) -> list[str]:
        """The sandbox is open for a claim of a gang. All sandboxes of the gang once they are."""
        state = self._states.get(sandbox.pool)
        return state.queue.gangs.bind(sandbox.claim, sandbox.sandbox_id) if state and sandbox.claim else []

    def _discard(self, waiting: Waiting) -> None:
        state = self._states.get(waiting.claim.pool)
        if state is not None and state.queue.discard(waiting):
            self.places.leave(waiting.claim.queue, waiting.claim.pool)

    def oldest_in(self, queue: str) -> float | None:
        """When the claim of the queue that waits longest for a sandbox has arrived; None where none waits."""
        states = (self._states[pool] for pool in self.places.of([queue]) if pool != DECLARED)
        return min((found for one in states if (found := one.queue.oldest_in(queue)) is not None), default=None)

    def longest_waits(self) -> dict[str, float]:
        """Queue → the longest that its claims may wait, in seconds, of those that bound it."""
        ledger = self._inventory.ledger
        specs = ((name, ledger.spec(name)) for name in ledger.names())
        return {name: spec.max_wait for name, spec in specs if spec is not None and spec.max_wait is not None}

    def start_timeout(self, pool: str) -> float | None:
        """Of the pool's own; None if it has none."""
        state = self._states.get(pool)
        return state.pool.start_timeout if state else None

    def waiting_beside(self, pool: str) -> int:
        """Claims that wait in the pool's namespace."""
        return self._waiting[namespace_of(pool)]

    def is_binding(self, waiting: Waiting) -> bool:
        sandbox = self._inventory.get(waiting.sandbox_id)
        return sandbox is not None and sandbox.state is State.CLAIMED


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSummary:
    """How full a pool is. `reason` (a PoolReason) says why it is below its target; empty if it is not."""

    warm: int
    stale: int
    starting: int
    claimed: int
    waiting: int
    hit_rate: float | None
    reason: str
    message: str = ""
    arrivals: int = 0
    start_seconds: float | None = None

    @property
    def is_idle(self) -> bool:
        """The pool has no sandbox, and no claim waits for one."""
        return not (self.warm or self.starting or self.claimed or self.waiting)


def summary(state: PoolState, inventory: Inventory, capacity: Capacity) -> PoolSummary:
    name, pool = state.pool.name, state.pool
    warm, starting = inventory.count_of(name, State.WARM), inventory.count_of(name, State.STARTING)
    return PoolSummary(
        warm=warm,
        starting=starting,
        claimed=inventory.count_of(name, State.CLAIMED, State.RECOVERING, State.SUSPENDING, State.RESUMING),
        waiting=len(state.queue),
        hit_rate=state.hit_rate,
        stale=warm - inventory.count_of_revision(name, State.WARM, pool.revision),
        reason="" if warm >= pool.target_warm and not len(state.queue) else _shortage(state, capacity),
        message=state.trouble.message if state.trouble else state.start_error,
        arrivals=state.arrivals,
        start_seconds=state.start_seconds,
    )


def _shortage(state: PoolState, capacity: Capacity) -> str:
    if state.pool.closed:
        return state.pool.closed
    if state.trouble:
        return state.trouble.reason
    if state.health.failures:
        return PoolReason.STARTS_FAIL.value
    if capacity.room(state.pool) <= 0:
        return PoolReason.SANDBOX_LIMIT.value
    return PoolReason.FILLING.value
