"""Where each waiting claim stands: its position, why it waits, and when its turn may come."""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain, islice

from sandfleet_operator.api.errors import Problem
from sandfleet_operator.api.reasons import QueueReason
from sandfleet_operator.api.values import Amount, Claim, Gang, RequestKey, State
from sandfleet_operator.plan.scheduler.capacity import Capacity
from sandfleet_operator.plan.scheduler.claim_queue import Eta, Place, Queued, Snapshot, Waiting, WhyNot, why_not
from sandfleet_operator.plan.scheduler.inventory import Inventory
from sandfleet_operator.plan.scheduler.pool_queues import PoolQueues, PoolState
from sandfleet_operator.plan.scheduler.queues.quota import NOTHING, Verdict, amount_of
from sandfleet_operator.plan.scheduler.queues.standing.estimates import Base, EtaErrors
from sandfleet_operator.plan.scheduler.queues.standing.explain import missing, sentence, why_kept, why_quota
from sandfleet_operator.plan.scheduler.queues.standing.outlook import Outlook, QuotaWait, base
from sandfleet_operator.plan.scheduler.queues.weights import weight_of


@dataclass(frozen=True, slots=True)
class View:
    """What all claims of one queue at one pool have in common at one moment."""

    outlook: Outlook
    quota: QuotaWait | None
    # Claims of the pool that are served while one of the queue is, this one too.
    rivals: float


class Fate(Enum):
    """What becomes of a claim that is asked about, in a word of the API."""

    WAITING = "Waiting"
    ADMITTED = "Admitted"
    # Of a claim that is not made.
    WOULD_BE_ADMITTED = "WouldBeAdmitted"
    WOULD_WAIT = "WouldWait"
    WOULD_BE_REFUSED = "WouldBeRefused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """`ahead`: queue → claims that are served before it. `missing`: what quota lacks so that it could be admitted."""

    fate: Fate
    queued: Queued | None = None
    reason: str = ""
    message: str = ""
    ahead: Mapping[str, int] = field(default_factory=dict)
    missing: Amount | None = None


def would_be_refused(problem: Problem) -> Explanation:
    return Explanation(fate=Fate.WOULD_BE_REFUSED, reason=problem.reason, message=problem.message)


class Standings:
    def __init__(self, inventory: Inventory, queues: PoolQueues, capacity: Capacity) -> None:
        self._inventory = inventory
        self._queues = queues
        self._capacity = capacity

    def why_not(self, key: RequestKey) -> WhyNot | None:
        """Why the last cycle of its pool did not admit the claim; None if it does not wait."""
        waiting = self._waiting(key)
        if waiting is None:
            return None
        state = self._state(waiting)
        return why_not(state.queue.position(waiting), waiting, self._snapshot(state), self._why_quota(waiting, state))

    def of(self, key: RequestKey, now: float) -> Queued | None:
        """None if the claim does not wait."""
        waiting = self._waiting(key)
        if waiting is None:
            return None
        state = self._state(waiting)
        view = self._view(waiting, state, self._outlook(state, now), now)
        return self._standing(waiting, state.queue.position(waiting), state, view)

    def place(self, key: RequestKey) -> Place | None:
        """What gives the claim its place at another leader; None if it does not wait."""
        waiting = self._inventory.waiting.get(key)
        if waiting is None:
            return None
        return Place(waiting.claim.queue, waiting.asked, self._state(waiting).queue.lead(waiting))

    def all(self, now: float) -> dict[RequestKey, Queued]:
        """Of every claim that waits."""
        return {key: queued for part in self.parts(sys.maxsize, lambda: now) for key, queued in part.items()}

    def parts(self, most: int, clock: Callable[[], float]) -> Iterator[dict[RequestKey, Queued]]:
        """Of every claim that waits, `most` at a time: what lies between may change them.

        Claims that have left since their positions were counted are left out.
        """
        for state in self._queues.all():
            placed = chain(state.queue.positions(clock()), self._starting(state))
            while part := list(islice(placed, most)):
                yield self._part(state, part, clock())

    def _part(self, state: PoolState, placed: list[tuple[Waiting, int]], now: float) -> dict[RequestKey, Queued]:
        found: dict[RequestKey, Queued] = {}
        outlook, views = self._outlook(state, now), dict[tuple[str, Gang | None], View]()
        for waiting, position in placed:
            if self._inventory.waiting.get(waiting.claim.key) is waiting:
                shared = waiting.claim.queue, waiting.claim.gang
                view = views.get(shared) or self._view(waiting, state, outlook, now)
                views[shared] = view
                found[waiting.claim.key] = self._standing(waiting, position, state, view)
        return found

    def explain(self, key: RequestKey, now: float) -> Explanation | None:
        """Of a claim that waits, or whose sandbox is being bound; None of another one."""
        waiting = self._waiting(key)
        if waiting is not None:
            return self._explain(waiting, now, Fate.WAITING)
        if key not in self._inventory.waiting and self._inventory.of_session(key) is None:
            return None
        return Explanation(fate=Fate.ADMITTED, message="the claim has its sandbox, or one is being bound to it")

    def expect(self, claim: Claim, now: float) -> Explanation:
        """Of a claim that is not made and that its pool could serve."""
        waiting = _newcomer(claim, now)
        state = self._state(waiting)
        permitted = self._inventory.ledger.judge(claim.queue, weight_of(waiting)).admits
        warm = self._inventory.count_of(claim.pool, State.WARM)
        if permitted and warm and not claim.alone and not state.pool.closed:
            return Explanation(
                fate=Fate.WOULD_BE_ADMITTED, message=f"its quota permits it, and {warm} sandboxes are warm"
            )
        return self._explain(waiting, now, Fate.WOULD_WAIT)

    def _explain(self, waiting: Waiting, now: float, fate: Fate) -> Explanation:
        state, queue = self._state(waiting), waiting.claim.queue
        position = state.queue.position(waiting)
        queued = self._standing(waiting, position, state, self._view(waiting, state, self._outlook(state, now), now))
        lacks, _ = missing(self._inventory.ledger, queue, weight_of(waiting), position)
        return Explanation(
            fate=fate,
            queued=queued,
            reason=queued.reason,
            message=queued.message,
            ahead=state.queue.ahead(queue, position),
            missing=amount_of(lacks) if lacks != NOTHING else None,
        )

    def eta_errors(self, pool: str) -> EtaErrors:
        """How the last estimates of waits at the pool turned out."""
        state = self._queues.get(pool)
        assert state is not None, "the pool was asked for by its name"
        return state.estimates.errors()

    def arrived(self, key: RequestKey, now: float) -> float | None:
        """The claim waits from now on: what it is told is remembered, to learn from how it turns out.

        Returns the seconds that it waits at the least, as far as experience says; None where that is not known.
        """
        waiting = self._waiting(key)
        if waiting is None:
            return None
        state, found = self._state(waiting), self._base(waiting, now)
        state.estimates.predict(waiting.number, found, now)
        return state.estimates.surely(found)

    def surely(self, claim: Claim, now: float) -> float | None:
        """The same of a claim that is not made."""
        waiting = _newcomer(claim, now)
        return self._state(waiting).estimates.surely(self._base(waiting, now))

    def first_and_last(self, claim: Claim, now: float) -> tuple[Eta | None, Eta | None]:
        """When the first claim of its queue may be served, and when this one that is not made; None: not known."""
        waiting = _newcomer(claim, now)
        state = self._state(waiting)
        view = self._view(waiting, state, self._outlook(state, now), now)
        bases = (self._why_and_base(waiting, place, view)[1] for place in (1, state.queue.position(waiting)))
        first, last = map(state.estimates.eta, bases)
        return first, last

    def _starting(self, state: PoolState) -> Iterator[tuple[Waiting, int]]:
        """The claims for which sandboxes of their own are being started, with their positions."""
        for one in list(self._inventory.of_pool(state.pool.name, State.STARTING)):
            waiting = self._waiting(one.claim.key) if one.claim is not None else None
            if waiting is not None:
                yield waiting, state.queue.position(waiting)

    def _waiting(self, key: RequestKey) -> Waiting | None:
        waiting = self._inventory.waiting.get(key)
        return None if waiting is None or self._queues.is_binding(waiting) else waiting

    def _state(self, waiting: Waiting) -> PoolState:
        state = self._queues.get(waiting.claim.pool)
        assert state is not None, "a claim waits at a pool"
        return state

    def _standing(self, waiting: Waiting, position: int, state: PoolState, view: View) -> Queued:
        why, found = self._why_and_base(waiting, position, view)
        eta: Eta | None = state.estimates.eta(found)
        lacks = None
        if view.quota is not None and why is view.quota.why and why.reason != QueueReason.GANG_INCOMPLETE.value:
            entry = state.queue.gangs.entry_of(waiting) or waiting
            lacks = missing(self._inventory.ledger, waiting.claim.queue, weight_of(entry), position)
        return Queued(position, eta, why.reason, sentence(why, lacks, eta), waiting.claim.queue)

    def _why_and_base(self, waiting: Waiting, position: int, view: View) -> tuple[WhyNot, Base | None]:
        why = why_not(position, waiting, view.outlook.snapshot, view.quota.why if view.quota else None)
        return why, base(position, position * view.rivals, view.outlook, why, view.quota)

    def _base(self, waiting: Waiting, now: float) -> Base | None:
        state = self._state(waiting)
        view = self._view(waiting, state, self._outlook(state, now), now)
        return self._why_and_base(waiting, state.queue.position(waiting), view)[1]

    def _why_quota(self, waiting: Waiting, state: PoolState) -> WhyNot | None:
        """Why neither the claim nor its gang has quota; None where it has."""
        if waiting.claim.gang is None:
            queue = waiting.claim.queue
            found = why_quota(self._inventory.ledger, queue, weight_of(waiting))
            turn = state.queue.turn_of(waiting, waiting.asked)
            return found or why_kept(queue, state.queue.gangs.kept_at(waiting, turn))
        if (incomplete := state.queue.gangs.why_not(waiting)) is not None:
            return incomplete
        entry = state.queue.gangs.entry_of(waiting)
        return why_quota(self._inventory.ledger, entry.claim.queue, weight_of(entry)) if entry else None

    def _view(self, waiting: Waiting, state: PoolState, outlook: Outlook, now: float) -> View:
        queue = waiting.claim.queue
        return View(outlook, self._quota_wait(waiting, state, now), state.queue.rivals(queue))

    def _quota_wait(self, waiting: Waiting, state: PoolState, now: float) -> QuotaWait | None:
        why = self._why_quota(waiting, state)
        if why is None:
            return None
        if why.reason == QueueReason.GANG_INCOMPLETE.value:
            return QuotaWait(why, None)
        ledger, queue = self._inventory.ledger, waiting.claim.queue
        amount = weight_of(state.queue.gangs.entry_of(waiting) or waiting)
        verdict, traffic = ledger.judge(queue, amount), self._queues.traffic
        if verdict is Verdict.HELD:
            return QuotaWait(why, None)
        if verdict is Verdict.REACHED:
            return QuotaWait(why, traffic.release_rate([queue], now))
        members = ledger.cohort(queue).members
        competing = sum(1 for one in members if self._queues.places.waiting(one))
        rate = traffic.release_rate(members, now)
        return QuotaWait(why, None if rate is None else rate / max(1, competing))

    def _snapshot(self, state: PoolState) -> Snapshot:
        return Snapshot(
            closed=state.pool.closed,
            full=self._capacity.room(state.pool) <= 0,
            starting=self._inventory.count_of(state.pool.name, State.STARTING),
            unmade=self._capacity.unmade(state.pool),
            trouble=state.trouble,
        )

    def _outlook(self, state: PoolState, now: float) -> Outlook:
        starting = self._inventory.of_pool(state.pool.name, State.STARTING)
        return Outlook(
            start_ages=tuple(now - one.started for one in starting),
            start_seconds=state.start_seconds,
            max_starting=max(1, self._capacity.share(state.pool)),
            full=self._capacity.room(state.pool) <= 0,
            release_rate=state.releases.per_second(now),
            closed=state.pool.closed,
            unmade=self._capacity.unmade(state.pool),
            trouble=state.trouble,
        )


def _newcomer(claim: Claim, now: float) -> Waiting:
    """A claim that is not made, behind all that wait."""
    return Waiting(claim=claim, number=sys.maxsize, asked=now, deadline=now + claim.max_wait)
