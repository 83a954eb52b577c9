"""The claims of one pool that need a start of their own: those on earlier workspaces, in order of arrival."""

import bisect
import heapq
from collections.abc import Callable, Iterator
from itertools import chain, islice

from sandfleet_operator.plan.scheduler.claim_queue import Waiting
from sandfleet_operator.plan.scheduler.queues.ledger import Demands
from sandfleet_operator.plan.scheduler.queues.preemption import Need
from sandfleet_operator.plan.scheduler.queues.quota import NOTHING, Vector
from sandfleet_operator.plan.scheduler.queues.weights import arrival, weight_of


class AloneClaims:
    def __init__(self) -> None:
        self._of: dict[str, list[Waiting]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def __iter__(self) -> Iterator[Waiting]:
        """In any order."""
        return chain.from_iterable(self._of.values())

    def add(self, waiting: Waiting) -> None:
        bisect.insort(self._of.setdefault(waiting.claim.queue, []), waiting, key=arrival)

    def discard(self, waiting: Waiting) -> bool:
        """Removes the claim; whether it was there."""
        queue = waiting.claim.queue
        claims = self._of.get(queue, [])
        place = bisect.bisect_left(claims, arrival(waiting), key=arrival)
        if place >= len(claims) or claims[place].number != waiting.number:
            return False
        del claims[place]
        if not claims:
            del self._of[queue]
        return True

    def in_order(self, demands: Demands) -> Iterator[Waiting]:
        """Those that these demands count, in order of arrival."""
        counted = (islice(self._of[queue], many) for queue, many in demands.alone.items())
        return heapq.merge(*counted, key=arrival)

    def count(self, found: Demands, has_turn: Callable[[Waiting], bool], *, returning: bool) -> None:
        """Adds the claims of the queues with (or without) a preempted session as the first."""
        for queue, claims in self._of.items():
            returns = claims[0].returns is not None
            if returns is returning and not found.are_enough and has_turn(claims[0]):
                found.add(queue, weight_of(claims[0]), len(claims), alone=True)

    def heads(self) -> Iterator[Need]:
        """Of each queue the claims that wait, with the amount of the next one."""
        return (Need(queue, weight_of(claims[0]), len(claims)) for queue, claims in self._of.items() if queue)

    def oldest_in(self, queue: str) -> list[float]:
        """When the one that waits longest has arrived; empty where none waits."""
        return [one.asked for one in self._of.get(queue, ())[:1]]

    def before(self, waiting: Waiting) -> int:
        """How many of its queue have arrived before this claim."""
        claims = self._of.get(waiting.claim.queue)
        return bisect.bisect_left(claims, arrival(waiting), key=arrival) if claims else 0

    def left_to_return(self, queue: str, waiting: Waiting) -> Vector:
        """What a claim leaves to a preempted session that came before it, which returns in its old place."""
        for first in self._of.get(queue, ())[:1]:
            if first.returns is not None and arrival(first) < arrival(waiting):
                return weight_of(first)
        return NOTHING
