"""The claims of one queue at one pool: priority classes with ageing, and fair turns between holders in each class."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from sandfleet_operator.api.kinds.queue import QueueSpec
from sandfleet_operator.plan.scheduler.claim_queue import StartTags, Waiting
from sandfleet_operator.plan.scheduler.queues.quota import Verdict
from sandfleet_operator.plan.scheduler.queues.turns.holders import HolderTurns
from sandfleet_operator.plan.scheduler.queues.weights import arrival, cost

NO_QUEUE = QueueSpec()


@dataclass(frozen=True, slots=True)
class Refusal:
    waiting: Waiting
    verdict: Verdict
    freed: int


class Line:
    """`spec` is that of the queue. Claims without a queue are one class of one holder: first come, first served."""

    def __init__(self, queue: str, spec: QueueSpec, *, by_holder: bool = True) -> None:
        self.queue = queue
        self._spec = spec
        self._by_holder = by_holder and bool(queue)
        self._ranks = {one.name: rank for rank, one in enumerate(spec.priority_classes)}
        # Rank of a priority class, 0 is served first → its claims.
        self._classes: dict[int, HolderTurns] = {}
        self._len = 0
        self._claims = 0
        self._gangs = 0
        # Whether its claims were within the nominal quota at the last look: only then it takes part in fair turns.
        self.takes_part = False
        # Whether a warm sandbox waits for its lent quota to come back.
        self.claims_back = False
        # How far it was before virtual time at an earlier leader, until it takes part here.
        self._lead = 0.0
        # Why its first claim was refused at the last look, which holds while the ledger has freed nothing since.
        self.refusal: Refusal | None = None

    def __len__(self) -> int:
        return self._len

    @property
    def claims(self) -> int:
        """Those that it stands for: gangs are in it as one."""
        return self._claims

    @property
    def has_gangs(self) -> bool:
        """Whether a gang is in it, first or behind others."""
        return self._gangs > 0

    def __iter__(self) -> Iterator[Waiting]:
        """In any order."""
        for turns in self._classes.values():
            yield from turns

    @property
    def weight(self) -> float:
        return self._spec.weight

    def add(self, waiting: Waiting) -> None:
        self.refusal = None
        if waiting.lead is not None and not self.takes_part:
            self._lead = max(self._lead, waiting.lead.of_queue)
        self._len += 1
        self._claims += waiting.many
        self._gangs += waiting.claim.gang is not None
        self._classes.setdefault(self._rank(waiting), HolderTurns()).add(self._holder(waiting), waiting)

    def discard(self, waiting: Waiting) -> bool:
        """Whether it was there."""
        self.refusal = None
        turns = self._classes.get(self._rank(waiting))
        found = turns is not None and turns.discard(self._holder(waiting), waiting)
        if found:
            self._len -= 1
            self._claims -= waiting.many
            self._gangs -= waiting.claim.gang is not None
        return found

    def first(self, now: float) -> Waiting | None:
        """Of the first claims of the classes, the one of the highest class with its age; of these the oldest."""
        if len(self._classes) == 1:
            return next(iter(self._classes.values())).first()
        firsts = [one for turns in self._classes.values() if (one := turns.first()) is not None]
        if len(firsts) == 1:
            return firsts[0]
        return min(firsts, key=lambda one: (self.rank(one, now), arrival(one)), default=None)

    def rank(self, waiting: Waiting, now: float) -> int:
        """Of its class, 0 is served first: one higher for each stretch of waiting that the queue counts as one."""
        ageing, rank = self._spec.ageing, self._rank(waiting)
        return max(0, rank - int((now - waiting.asked) // ageing)) if ageing > 0 else rank

    def serve(self, waiting: Waiting) -> float:
        """The line's first claim is served; the start tag that it had. It is discarded after that."""
        return self._classes[self._rank(waiting)].serve(self._holder(waiting), cost(waiting))

    def lead(self, waiting: Waiting, mine: float) -> StartTags:
        """How far line and holder are before virtual time; `mine`: the line, as far as it takes part."""
        turns = self._classes.get(self._rank(waiting))
        return StartTags(max(self._lead, mine), turns.lead(self._holder(waiting)) if turns else 0.0)

    def take_lead(self) -> float:
        """The line takes part from now on: how far before virtual time it begins."""
        lead, self._lead = self._lead, 0.0
        return lead

    def place(self, waiting: Waiting) -> int:
        """From 1; where many holders wait, an estimate that is never too small."""
        rank = self._rank(waiting)
        before = sum(len(turns) for other, turns in self._classes.items() if other < rank)
        turns = self._classes.get(rank)
        return before + (turns.place(self._holder(waiting), waiting) if turns else 1)

    def in_order(self, now: float) -> Iterator[Waiting]:
        """The claims that are there when the first is taken, the next one first."""
        rest = {rank: turns.in_order() for rank, turns in self._classes.items() if len(turns)}
        heads = {rank: next(order) for rank, order in rest.items()}
        while heads:
            rank = min(heads, key=lambda one: (self.rank(heads[one], now), arrival(heads[one])))
            yield heads.pop(rank)
            if (following := next(rest[rank], None)) is not None:
                heads[rank] = following

    def by_arrival(self) -> Iterator[Waiting]:
        return heapq.merge(*(turns.by_arrival() for turns in self._classes.values()), key=arrival)

    def oldest(self) -> float | None:
        """When the claim that waits longest has arrived."""
        return min((one.asked for one in self), default=None)

    def _rank(self, waiting: Waiting) -> int:
        """A claim that names no class of the queue is of the last one."""
        return self._ranks.get(waiting.claim.priority, max(0, len(self._ranks) - 1))

    def _holder(self, waiting: Waiting) -> str:
        return waiting.claim.key.holder if self._by_holder else ""
