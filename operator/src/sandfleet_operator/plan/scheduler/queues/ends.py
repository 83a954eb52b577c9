"""When the waits of claims are over, the first of them first: what is not over yet is not looked at."""

import heapq
from collections.abc import Iterable, Iterator, Mapping

from sandfleet_operator.api.values import RequestKey
from sandfleet_operator.plan.scheduler.claim_queue import Waiting

# Entries of claims that do not wait any more are removed once they outnumber the others by this.
STALE = 64


class EndsOfWaits:
    """`longest`: queue → the longest that its claims may wait, in seconds, of those that bound it."""

    def __init__(self, waiting: Mapping[RequestKey, Waiting]) -> None:
        self._waiting = waiting
        self._longest: Mapping[str, float] = {}
        self._heap: list[tuple[float, int, RequestKey]] = []

    def __len__(self) -> int:
        """Entries, those of claims included that do not wait any more."""
        return len(self._heap)

    def add(self, waiting: Waiting) -> None:
        """The claim waits from now on, or its deadline is another."""
        heapq.heappush(self._heap, self._entry(waiting))
        if len(self._heap) > 2 * len(self._waiting) + STALE:
            self._rebuild(self._waiting.values())

    def over(self, now: float, longest: Mapping[str, float]) -> list[Waiting]:
        """The claims whose time is over, in order of arrival. They are told again until they wait no more."""
        if longest != self._longest:
            self._longest = longest
            self._rebuild(self._waiting.values())
        found = {one.number: one for one in self._pop(now)}
        for waiting in found.values():
            heapq.heappush(self._heap, self._entry(waiting))
        return [found[number] for number in sorted(found)]

    def _pop(self, now: float) -> Iterator[Waiting]:
        while self._heap and self._heap[0][0] <= now:
            _, number, key = heapq.heappop(self._heap)
            waiting = self._waiting.get(key)
            if waiting is None or waiting.number != number:
                continue
            if (entry := self._entry(waiting))[0] > now:
                heapq.heappush(self._heap, entry)
            else:
                yield waiting

    def _rebuild(self, waiting: Iterable[Waiting]) -> None:
        self._heap = [self._entry(one) for one in waiting]
        heapq.heapify(self._heap)

    def _entry(self, waiting: Waiting) -> tuple[float, int, RequestKey]:
        return self._end(waiting), waiting.number, waiting.claim.key

    def _end(self, waiting: Waiting) -> float:
        """Of its wait. A preempted session has been admitted before: no queue is too long for it."""
        if waiting.returns is not None:
            return waiting.deadline
        return min(waiting.deadline, waiting.asked + self._longest.get(waiting.claim.queue, waiting.deadline))
