"""Claims of one priority class of one queue: fair turns between their holders, each holder's in order of arrival."""

import bisect
import heapq
import math
from collections.abc import Iterator

from sandfleet_operator.plan.scheduler.claim_queue import Waiting
from sandfleet_operator.plan.scheduler.queues.turns.fairness import VirtualTime
from sandfleet_operator.plan.scheduler.queues.weights import arrival, cost

# Entries of claims that are gone are removed once they outnumber the holders by this.
STALE = 64

# Start tag, arrival and holder of a claim.
Entry = tuple[float, tuple[float, int], str]


class HolderTurns:
    def __init__(self) -> None:
        self._claims: dict[str, list[Waiting]] = {}
        self._time: VirtualTime[str] = VirtualTime()
        # Of each holder's first claim, beside entries of claims that are gone.
        self._heap: list[Entry] = []
        self._len = 0

    def __len__(self) -> int:
        return self._len

    def __iter__(self) -> Iterator[Waiting]:
        """In any order."""
        for claims in self._claims.values():
            yield from claims

    def by_arrival(self) -> Iterator[Waiting]:
        return heapq.merge(*self._claims.values(), key=arrival)

    def add(self, holder: str, waiting: Waiting) -> None:
        claims = self._claims.get(holder)
        if claims is None:
            claims = self._claims[holder] = []
            self._time.begins(holder, waiting.lead.of_holder if waiting.lead else 0.0)
        bisect.insort(claims, waiting, key=arrival)
        self._len += 1
        if claims[0] is waiting:
            if waiting.start is not None:
                self._time.restore(holder, waiting.start.of_holder)
            self._push(holder)

    def discard(self, holder: str, waiting: Waiting) -> bool:
        """Whether it was there."""
        claims = self._claims.get(holder, [])
        place = bisect.bisect_left(claims, arrival(waiting), key=arrival)
        if place >= len(claims) or claims[place].number != waiting.number:
            return False
        del claims[place]
        self._len -= 1
        if not claims:
            del self._claims[holder]
            self._time.ends(holder)
        elif place == 0:
            self._push(holder)
        return True

    def first(self) -> Waiting | None:
        """Whose turn it is."""
        while self._heap:
            start, arrived, holder = self._heap[0]
            claims = self._claims.get(holder)
            if claims and arrival(claims[0]) == arrived and self._time.start(holder) == start:
                return claims[0]
            heapq.heappop(self._heap)
        return None

    def serve(self, holder: str, cost: float) -> float:
        """The holder's first claim is served; its start tag. It is discarded after that."""
        start = self._time.start(holder)
        self._time.serve(holder, cost)
        return start

    def lead(self, holder: str) -> float:
        """How far the holder is before virtual time."""
        return self._time.lead(holder)

    def place(self, holder: str, waiting: Waiting) -> int:
        """From 1. With many holders it is an estimate, which is never too small."""
        claims = self._claims.get(holder, [])
        own = bisect.bisect_left(claims, arrival(waiting), key=arrival)
        if len(self._claims) == 1:
            return own + 1
        if len(self._claims) > STALE:
            return min(self._len, (own + 1) * len(self._claims))
        mine = self._time.start(holder) + own, arrival(waiting)
        return 1 + own + sum(self._before(mine, other) for other in self._claims if other != holder)

    def in_order(self) -> Iterator[Waiting]:
        """The next one first, as if no further claim came. Each is found as it is taken: claims may go meanwhile."""
        heads = self._heap.copy()
        # Holder → the entry of its next claim. All its other entries are of claims that are gone.
        valid: dict[str, Entry | None] = {}
        while heads:
            entry = heads[0]
            holder = entry[2]
            if holder in valid and entry is not valid[holder]:
                heapq.heappop(heads)
                continue
            known = holder in valid or holder not in self._claims
            one, following = self._taken(entry) if known else (None, self._entry(holder))
            valid[holder] = following
            if following is None:
                heapq.heappop(heads)
            else:
                heapq.heapreplace(heads, following)
            if one is not None:
                yield one

    def _taken(self, entry: Entry) -> tuple[Waiting | None, Entry | None]:
        """The claim of the entry, None where it has gone, and the entry of the holder's claim after it."""
        tag, arrived, holder = entry
        claims = self._claims.get(holder, [])
        place, one = bisect.bisect_left(claims, arrived, key=arrival), None
        if place < len(claims) and arrival(claims[place]) == arrived:
            one = claims[place]
            tag, place = tag + cost(one), place + 1
        return one, (tag, arrival(claims[place]), holder) if place < len(claims) else None

    def _entry(self, holder: str) -> Entry:
        """Of its first claim."""
        return self._time.start(holder), arrival(self._claims[holder][0]), holder

    def _before(self, mine: tuple[float, tuple[float, int]], holder: str) -> int:
        """Claims of the holder that are served before the one with these tags: each has the tag of the last, plus 1."""
        claims, start = self._claims[holder], self._time.start(holder)
        tag, arrived = mine
        before = min(len(claims), max(0, math.ceil(tag - start)))
        # The difference is rounded, the sums are what counts.
        while before and start + before - 1 >= tag:
            before -= 1
        while before < len(claims) and (start + before, arrival(claims[before])) < (tag, arrived):
            before += 1
        return before

    def _push(self, holder: str) -> None:
        heapq.heappush(self._heap, self._entry(holder))
        if len(self._heap) > 2 * len(self._claims) + STALE:
            self._heap = [self._entry(one) for one in self._claims]
            heapq.heapify(self._heap)
