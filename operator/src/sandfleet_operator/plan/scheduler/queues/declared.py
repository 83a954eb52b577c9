"""Sandboxes that the operator makes: they wait for quota like claims, and no pool serves them."""

from collections.abc import Iterator
from dataclasses import replace

from sandfleet_operator.api.values import Amount, Claim, RequestKey
from sandfleet_operator.plan.scheduler.actions import Admit
from sandfleet_operator.plan.scheduler.claim_queue import Waiting
from sandfleet_operator.plan.scheduler.queues.fair_queue import FairQueue, Policy
from sandfleet_operator.plan.scheduler.queues.ledger import Ledger
from sandfleet_operator.plan.scheduler.queues.places import DECLARED, Places
from sandfleet_operator.plan.scheduler.queues.preemption import Need
from sandfleet_operator.plan.scheduler.queues.quota import vector

# Of the keys that they wait under.
HOLDER = "sandfleet:declared"


class DeclaredSandboxes:
    """Keys are the caller's. One whose queue is not there waits until it is."""

    def __init__(self, ledger: Ledger, places: Places, policy: Policy) -> None:
        self._ledger = ledger
        self._places = places
        self._arrivals = 0
        self._queue = FairQueue(DECLARED, ledger, policy)
        self._waiting: dict[str, Waiting] = {}
        self._admitted: dict[str, Claim] = {}

    def add(self, key: str, queue: str, amount: Amount, priority: str, asked: float, *, admitted: bool) -> None:
        """`admitted`: an earlier leader has admitted it already."""
        claim = Claim(
            key=RequestKey(HOLDER, key, DECLARED), pool=DECLARED, queue=queue, priority=priority, amount=amount
        )
        before = self._waiting.get(key)
        if claim == (before.claim if before else self._admitted.get(key)):
            return
        admitted = admitted or key in self._admitted
        self.withdraw(key)
        if admitted:
            self._admitted[key] = claim
            self._ledger.charge(queue, vector(amount))
            return
        self._arrivals += 1
        self._wait(Waiting(claim=claim, number=self._arrivals, asked=asked, deadline=float("inf")))

    def rename(self, key: str, new: str) -> bool:
        """What was admitted counts under the new key from now on; False if it was not admitted."""
        claim = self._admitted.pop(key, None)
        if claim is None:
            return False
        self._admitted[new] = replace(claim, key=replace(claim.key, request_id=new))
        return True

    def withdraw(self, key: str) -> None:
        """It is no more, or needs no quota any more."""
        claim, waiting = self._admitted.pop(key, None), self._waiting.pop(key, None)
        if claim is not None and claim.amount is not None:
            self._ledger.discharge(claim.queue, vector(claim.amount))
        if waiting is not None and self._queue.discard(waiting):
            self._places.leave(waiting.claim.queue, DECLARED)

    def admit(self, now: float) -> Iterator[Admit]:
        """Those whose turn it is and whose quota permits it."""
        for waiting in self._queue.turns(now):
            claim = waiting.claim
            self._queue.discard(waiting)
            self._places.leave(claim.queue, DECLARED)
            del self._waiting[claim.key.request_id]
            self._admitted[claim.key.request_id] = claim
            if claim.amount is not None:
                self._ledger.charge(claim.queue, vector(claim.amount))
            yield Admit(claim.key.request_id)

    def queue_changed(self, queue: str) -> None:
        """It is there, has another spec, or was removed."""
        self._queue.reform(queue)
        for waiting in [one for one in self._waiting.values() if one.claim.queue == queue]:
            if self._queue.discard(waiting):
                self._places.leave(queue, DECLARED)
            self._wait(waiting)

    def heads(self, now: float) -> Iterator[Need]:
        """Of each queue those that wait, with the amount of the next one."""
        return self._queue.heads(now)

    def waiting(self, key: str) -> Waiting | None:
        return self._waiting.get(key)

    def first_in(self, queue: str) -> Waiting | None:
        """One that waits in the queue."""
        return next((one for one in self._waiting.values() if one.claim.queue == queue), None)

    def kept_at(self, waiting: Waiting) -> str | None:
        """The pool where a gang of its queue waits for the quota that it would use; None: nowhere."""
        return self._queue.gangs.kept_at(waiting, self._queue.turn_of(waiting, waiting.asked))

    def oldest_in(self, queue: str) -> float | None:
        """When the one of the queue that waits longest was asked for; None where none waits."""
        return self._queue.oldest_in(queue)

    def _wait(self, waiting: Waiting) -> None:
        self._waiting[waiting.claim.key.request_id] = waiting
        if self._ledger.spec(waiting.claim.queue) is not None:
            self._queue.add(waiting)
            self._places.arrive(waiting.claim.queue, DECLARED)
