"""The claims that wait at one pool: a line for each queue, turns between the lines, and quotas that stop a line."""

import heapq
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

from sandfleet_operator.api.values import Claim
from sandfleet_operator.plan.scheduler.claim_queue import StartTags, Waiting
from sandfleet_operator.plan.scheduler.queues.alone import AloneClaims
from sandfleet_operator.plan.scheduler.queues.gangs import PATIENCE, Gangs, expanded
from sandfleet_operator.plan.scheduler.queues.ledger import Demands, Ledger, Turn
from sandfleet_operator.plan.scheduler.queues.orders import Candidate, Order, fair
from sandfleet_operator.plan.scheduler.queues.preemption import Need
from sandfleet_operator.plan.scheduler.queues.quota import Verdict, plus
from sandfleet_operator.plan.scheduler.queues.turns.fairness import VirtualTime
from sandfleet_operator.plan.scheduler.queues.turns.line import NO_QUEUE, Line, Refusal
from sandfleet_operator.plan.scheduler.queues.weights import arrival, cost, weight_of


@dataclass(frozen=True, slots=True)
class Policy:
    """How a pool serves its claims: the order between queues, and whether classes and holders count within one."""

    order: Order = fair
    classes: bool = True
    holders: bool = True


# The key of a line's first claim, the queue, and the claim.
Entry = tuple[tuple[float, ...], str, Waiting]

FAIR = Policy()


class FairQueue:
    """A claim on an earlier workspace waits beside the lines: it needs a start of its own."""

    def __init__(self, pool: str, ledger: Ledger, policy: Policy = FAIR) -> None:
        self._pool = pool
        self._ledger = ledger
        self._policy = policy
        self._lines: dict[str, Line] = {}
        self._alone = AloneClaims()
        self.gangs = Gangs(pool, ledger)
        self._time: VirtualTime[str] = VirtualTime()
        self._len = 0

    def __len__(self) -> int:
        return self._len

    def __iter__(self) -> Iterator[Waiting]:
        """In any order."""
        for line in self._lines.values():
            yield from (one for one in line if one.claim.gang is None)
        yield from self._alone
        yield from self.gangs

    def add(self, waiting: Waiting) -> None:
        queue = waiting.claim.queue
        self._len += 1
        if waiting.claim.alone:
            self._alone.add(waiting)
            self._look_again(queue)
            return
        entry = self.gangs.add(waiting) if waiting.claim.gang else waiting
        if entry is not None:
            self._stand(entry)

    def _stand(self, waiting: Waiting) -> None:
        """The claim, or gang, stands in its queue's line."""
        queue = waiting.claim.queue
        if (line := self._lines.get(queue)) is None:
            line = self._lines[queue] = self._line(queue)
        line.add(waiting)
        if waiting.start is not None:
            # It had its turn: it does not wait for another one.
            line.takes_part = True
            self._time.begins(queue)
            self._time.restore(queue, waiting.start.of_queue)

    def discard(self, waiting: Waiting) -> bool:
        """Removes the claim; whether it was there."""
        queue = waiting.claim.queue
        if waiting.claim.alone:
            found = self._alone.discard(waiting)
            self._len -= found
            self._look_again(queue)
            return found
        found, entry = self.gangs.discard(waiting) if waiting.claim.gang else (False, waiting)
        if entry is not None:
            found = self._step_out(entry) or found
        self._len -= found
        return found

    def _step_out(self, waiting: Waiting) -> bool:
        """Whether it stood in its queue's line."""
        line = self._lines.get(waiting.claim.queue)
        if line is None or not line.discard(waiting):
            return False
        if not line:
            self._close(line)
        return True

    def rejoin(self, claim: Claim) -> None:
        """The caller of a gang's bound claim is back after a change of leader."""
        entry = self.gangs.rejoin(claim)
        if entry is not None:
            self._stand(entry)

    def reform(self, queue: str) -> None:
        """The queue's spec has changed, and with it the classes of its claims."""
        line = self._lines.get(queue)
        if line is not None:
            self._lines[queue] = again = self._line(queue)
            again.takes_part = line.takes_part
            for waiting in line:
                again.add(waiting)

    # Turns.

    def turns(self, now: float, reach: Callable[[], int] = lambda: sys.maxsize) -> Iterator[Waiting]:
        """The claims whose turn it is and whose quota permits it. Each has to be admitted before the next is taken.

        `reach` says how many sandboxes a gang could have. A gang that lacks some lets other queues pass for a while.
        """
        yield from self._owed()
        heap = [entry for line in self._lines.values() if (entry := self._entry(line, now)) is not None]
        heapq.heapify(heap)
        while heap:
            key, queue, _ = heapq.heappop(heap)
            line = self._lines[queue]
            # What was admitted meanwhile may have used the quota.
            entry = self._entry(line, now)
            if entry is not None and entry[0] > key and heap and entry[0] > heap[0][0]:
                heapq.heappush(heap, entry)
                continue
            if entry is None:
                continue
            waiting = entry[2]
            if waiting.many > reach():
                if now - waiting.asked >= PATIENCE:
                    return
                continue
            served = self._serve(line, waiting)
            if waiting.claim.gang is None:
                yield served
            else:
                self._step_out(waiting)
                self.gangs.admit(waiting)
                yield from self._owed()
            following = self._entry(line, now) if queue in self._lines else None
            if following is not None:
                heapq.heappush(heap, following)

    def _owed(self) -> Iterator[Waiting]:
        """The claims of admitted gangs: their quota is theirs."""
        while self.gangs.owed:
            yield self.gangs.owed[0]

    def stand_back(self) -> None:
        """No sandbox is warm for its claims: none of their queues waits for lent quota to come back here."""
        for line in self._lines.values():
            if line.claims_back:
                line.claims_back = False
                self._ledger.stand_back(line.queue, self._pool)

    def shared_in_order(self) -> Iterator[Waiting]:
        """Claims that any sandbox of the pool can serve and their quotas permit, in order of arrival."""
        lines = (line for line in self._lines.values() if self.verdict(next(iter(line))).admits)
        return chain(self.gangs.owed, expanded(heapq.merge(*(line.by_arrival() for line in lines), key=arrival)))

    def alone_in_order(self, demands: Demands) -> Iterator[Waiting]:
        """The claims that need a start of their own and that these demands count, in order of arrival."""
        return self._alone.in_order(demands)

    def demands(self, now: float, most: int = sys.maxsize) -> Demands:
        """How many claims could be admitted now if there were a sandbox for each; more than `most` are not counted."""
        found = self._ledger.demands(most)
        if not self._len:
            return found
        found.shared = len(self.gangs.owed)
        self._alone.count(found, lambda one: self.gangs.let_in(one, self.turn_of(one, now)), returning=True)
        for queue, line in self._lines.items():
            first = line.first(now)
            refusal = self._refusal(line, first)
            if refusal is None and first is not None and not self._judge(line, first, now).admits:
                refusal = line.refusal
            if refusal is not None and refusal.verdict is Verdict.LENT:
                found.add_lent(queue, weight_of(refusal.waiting), line.claims)
            elif refusal is None and first is not None and not found.are_enough:
                found.add(queue, weight_of(first if first.many == 1 else replace(first, many=1)), line.claims)
        self._alone.count(found, lambda one: self.gangs.let_in(one, self.turn_of(one, now)), returning=False)
        return found

    def verdict(self, waiting: Waiting) -> Verdict:
        """Whether the quota of its queue permits the claim."""
        return self._ledger.judge(waiting.claim.queue, weight_of(waiting))

    # Queries.

    def heads(self, now: float) -> Iterator[Need]:
        """Of each queue the claims that wait, each with the amount of the next one."""
        for queue, line in self._lines.items():
            if queue and (first := line.first(now)) is not None:
                yield Need(queue, weight_of(first), len(line) if first.many == 1 else 1)
        yield from self._alone.heads()

    def oldest_in(self, queue: str) -> float | None:
        """When the claim of the queue that waits longest has arrived; None where none waits."""
        line = self._lines.get(queue)
        found = [*([line.oldest()] if line else []), *self._alone.oldest_in(queue)]
        return min((one for one in found if one is not None), default=None)

    def position(self, waiting: Waiting) -> int:
        """Among the claims of its queue here, from 1; an estimate that is never too small where many holders wait."""
        queue = waiting.claim.queue
        if (owed := self.gangs.place_owed(waiting)) is not None:
            return owed
        line = self._lines.get(queue)
        if line is None:
            return 1 + self._alone.before(waiting)
        standing = self.gangs.entry_of(waiting) if waiting.claim.gang else waiting
        # A gang that is not complete comes after all that wait now.
        place = line.place(standing) if standing is not None else line.claims + 1
        return place + self._alone.before(waiting)

    def lead(self, waiting: Waiting) -> StartTags:
        """How far its queue and its holder are before virtual time."""
        line = self._lines.get(waiting.claim.queue)
        return line.lead(waiting, self._time.lead(line.queue)) if line else StartTags(0.0, 0.0)

    def rivals(self, queue: str) -> float:
        """How many claims of all queues have their turns while one of this queue has its."""
        line = self._lines.get(queue)
        total = sum(one.weight for one in self._lines.values())
        return max(1.0, total / line.weight) if line else 1.0

    def ahead(self, queue: str, position: int) -> dict[str, int]:
        """Queue → how many of its claims have their turns before the one at this position of `queue`, about."""
        mine = self._lines.get(queue)
        weight = mine.weight if mine else self._line(queue).weight
        found = {queue: position - 1}
        for name, line in self._lines.items():
            if name != queue:
                found[name] = min(len(line), math.ceil(position * line.weight / weight))
        return {name: many for name, many in found.items() if many}

    def positions(self, now: float) -> Iterator[tuple[Waiting, int]]:
        """The claims with their positions, in any order, each found as it is taken. Some may have left by then."""
        for line in list(self._lines.values()):
            place = 1
            for one in line.in_order(now):
                if one.claim.gang is None:
                    yield one, place + self._alone.before(one)
                place += cost(one)
        for one in chain(list(self._alone), list(self.gangs)):
            yield one, self.position(one)

    # Lines.

    def _close(self, line: Line) -> None:
        del self._lines[line.queue]
        if line.claims_back:
            self._ledger.stand_back(line.queue, self._pool)
        if line.takes_part:
            self._time.ends(line.queue)

    def _line(self, queue: str) -> Line:
        spec = self._ledger.spec(queue) or NO_QUEUE
        if not self._policy.classes:
            spec = replace(spec, priority_classes=())
        return Line(queue, spec, by_holder=self._policy.holders)

    def _entry(self, line: Line, now: float) -> Entry | None:
        """Of the line's first claim; None where its quota does not permit it."""
        waiting = line.first(now)
        refusal = self._refusal(line, waiting)
        if waiting is None or (refusal is not None and refusal.verdict is not Verdict.LENT):
            return None
        verdict = self._judge(line, waiting, now)
        if verdict is Verdict.LENT:
            self._ledger.claim_back(line.queue, self._pool)
        elif line.claims_back:
            self._ledger.stand_back(line.queue, self._pool)
        line.claims_back = verdict is Verdict.LENT
        if not verdict.admits:
            return None
        start, share = self._time.start(line.queue), self._ledger.share(line.queue)
        candidate = Candidate(waiting, line.rank(waiting, now), verdict, start, share)
        return self._policy.order(candidate), line.queue, waiting

    def _judge(self, line: Line, waiting: Waiting, now: float) -> Verdict:
        """Whether the quota permits the line's first claim."""
        amount = weight_of(waiting)
        if len(self._alone):
            amount = plus(amount, self._alone.left_to_return(line.queue, waiting))
        verdict = self._ledger.judge(line.queue, amount)
        verdict = self.gangs.judged(waiting, self.turn_of(waiting, now), verdict, now, before_gang=line.has_gangs)
        line.refusal = None if verdict.admits else Refusal(waiting, verdict, self._ledger.freed(line.queue))
        self._take_part(line, verdict is Verdict.WITHIN)
        return verdict

    def turn_of(self, waiting: Waiting, now: float) -> Turn:
        line = self._lines.get(waiting.claim.queue) or self._line(waiting.claim.queue)
        return line.rank(waiting, now), *arrival(waiting)

    def _look_again(self, queue: str) -> None:
        """What was refused for a claim that was before it may be admitted now."""
        if (line := self._lines.get(queue)) is not None:
            line.refusal = None

    def _refusal(self, line: Line, first: Waiting | None) -> Refusal | None:
        """That of the last look, where nothing was freed since, and the line's first claim is the same."""
        last = line.refusal
        holds = last is not None and last.waiting is first and last.freed == self._ledger.freed(line.queue)
        return last if holds else None

    def _take_part(self, line: Line, within: bool) -> None:
        """A line that could not be served, or that borrows, has no turns to catch up with."""
        if within and not line.takes_part:
            self._time.begins(line.queue, line.take_lead())
        elif line.takes_part and not within:
            self._time.ends(line.queue)
        line.takes_part = within

    def _serve(self, line: Line, waiting: Waiting) -> Waiting:
        """The claim with the start tags of its turn."""
        start = self._time.start(line.queue)
        if line.takes_part:
            self._time.serve(line.queue, cost(waiting) / line.weight)
        return replace(waiting, start=StartTags(start, line.serve(waiting)))
