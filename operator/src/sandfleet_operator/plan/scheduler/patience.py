"""How long claims may wait: which are refused at once, which later, and when it is worth coming back."""

from dataclasses import replace

from sandfleet_operator.api.errors import Problem
from sandfleet_operator.api.reasons import AdmissionReason, ClaimReason
from sandfleet_operator.api.values import Claim, RequestKey
from sandfleet_operator.plan.scheduler.actions import Action, Answer
from sandfleet_operator.plan.scheduler.capacity import Capacity
from sandfleet_operator.plan.scheduler.claim_queue import Waiting, overdue_problem
from sandfleet_operator.plan.scheduler.inventory import Inventory
from sandfleet_operator.plan.scheduler.pool_queues import PoolQueues
from sandfleet_operator.plan.scheduler.queues.standing.explain import seconds
from sandfleet_operator.plan.scheduler.queues.standing.standings import Standings
from sandfleet_operator.plan.scheduler.transitions import Transitions

# Seconds after which a refused caller may come back: where the estimates know nothing, and the bounds of what they say.
UNKNOWN_PAUSE = 5.0
LEAST_PAUSE, LONGEST_PAUSE = 1.0, 3600.0


class Patience:
    def __init__(
        self,
        inventory: Inventory,
        queues: PoolQueues,
        capacity: Capacity,
        transitions: Transitions,
        standings: Standings,
    ) -> None:
        self._inventory = inventory
        self._queues = queues
        self._capacity = capacity
        self._transitions = transitions
        self._standings = standings

    def arrived(self, key: RequestKey, now: float) -> list[Action]:
        """The claim waits from now on, unless its queue is full or cannot serve it in time."""
        waiting, surely = self._inventory.waiting.get(key), self._standings.arrived(key, now)
        # One that had its place at an earlier leader keeps it.
        if waiting is None or waiting.sandbox_id or waiting.lead is not None:
            return []
        problem = self._refusal(waiting.claim, self._queues.places.waiting(waiting.claim.queue) - 1, surely, now)
        return [] if problem is None else self._transitions.refuse(waiting, problem, now)

    def refusal(self, claim: Claim, now: float) -> Problem | None:
        """Why the claim, which is not made, would be refused instead of waiting; None if it would wait."""
        surely = self._standings.surely(claim, now)
        return self._refusal(claim, self._queues.places.waiting(claim.queue), surely, now)

    def come_back(self, claim: Claim, now: float) -> float:
        """Seconds after which a place in its queue is free, and the claim could be served in its time."""
        first, last = self._standings.first_and_last(claim, now)
        if first is None:
            return UNKNOWN_PAUSE
        waits = last.p50 - self._longest(claim) if last else 0.0
        return min(max(LEAST_PAUSE, first.p50, waits), LONGEST_PAUSE)

    def pass_to(self, now: float) -> list[Action]:
        """Refuses the claims whose time is over at `now`."""
        over = self._queues.ends.over(now, self._queues.longest_waits())
        late = [one for one in over if not self._queues.is_binding(one)]
        actions: list[Action] = []
        for waiting in late:
            # Those of a gang are refused together.
            if waiting.claim.key in self._inventory.waiting:
                actions += self._over(waiting, now)
        return actions

    def _over(self, waiting: Waiting, now: float) -> list[Action]:
        """A preempted session waits on where only its caller's time is over."""
        problem = self._overdue(waiting, now)
        if waiting.returns is not None and now < waiting.returns and self._queues.caller_left(waiting):
            return [Answer(waiting.claim.key, problem)]
        return self._transitions.refuse(waiting, problem, now)

    def _longest(self, claim: Claim) -> float:
        """Seconds that the claim may wait: as it says itself, and at most as long as its queue allows."""
        return min(claim.max_wait, self._queues.longest_waits().get(claim.queue, claim.max_wait))

    def _refusal(self, claim: Claim, before: int, surely: float | None, now: float) -> Problem | None:
        """`before` claims wait in its queue, and it would wait for `surely` seconds at least (None: not known)."""
        spec, queue = self._inventory.ledger.spec(claim.queue), claim.queue
        if spec is None:
            return None
        if spec.max_length is not None and before >= spec.max_length:
            why = f"cannot claim: {before} claims wait in queue {queue}, which lets no more wait"
            return ClaimReason.QUEUE_FULL.problem(why, queue, retry_after=self.come_back(claim, now))
        if surely is None or surely <= (longest := self._longest(claim)):
            return None
        why = f"cannot claim: claims of queue {queue} wait about {seconds(surely)}, this one at most {seconds(longest)}"
        return AdmissionReason.WAIT_TOO_LONG.problem(why, queue, retry_after=self.come_back(claim, now))

    def _overdue(self, waiting: Waiting, now: float) -> Problem:
        state, claim = self._queues.get(waiting.claim.pool), waiting.claim
        assert state is not None, "a claim waits at a pool"
        why, trouble = self._standings.why_not(claim.key), state.trouble
        problem = overdue_problem(
            waiting,
            full=self._capacity.room(state.pool) <= 0,
            closed=state.pool.closed,
            trouble=trouble if trouble and why and why.reason == trouble.reason else None,
            within=self._longest(claim),
        )
        return replace(problem, retry_after=self.come_back(claim, now))
