"""Which sessions on borrowed quota go, so that it returns. One file a policy, each of the one type Policy.

A queue that lacks nothing but quota of its own, which others of its cohort have borrowed, has a need. A session may go
only while its queue borrows of a resource that is needed, and only where claims get in by it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sandfleet_operator.plan.scheduler.queues.quota import (
    NOTHING,
    UNBOUNDED,
    Terms,
    Vector,
    Verdict,
    above,
    drawn,
    judge,
    minus,
    plus,
)


@dataclass(frozen=True, slots=True)
class Need:
    """So many claims of this amount wait in the queue."""

    queue: str
    amount: Vector
    many: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """A session that does nothing, in a queue whose spec lets it be preempted. `idle` is in seconds."""

    sandbox_id: str
    queue: str
    amount: Vector
    idle: float
    # It can be suspended; else it would be released.
    kept: bool = True


class Levels:
    """What the queues of one cohort use, and what of the cohort's capacity is free."""

    def __init__(self, terms: Mapping[str, Terms], usage: Mapping[str, Vector], free: Vector) -> None:
        self._terms = terms
        self._usage = dict(usage)
        self._free = free

    def copy(self) -> "Levels":
        return Levels(self._terms, self._usage, self._free)

    def use(self, queue: str, amount: Vector) -> None:
        self._put(queue, plus(self._usage.get(queue, NOTHING), amount))

    def release(self, queue: str, amount: Vector) -> None:
        self._put(queue, minus(self._usage.get(queue, NOTHING), amount))

    def _put(self, queue: str, after: Vector) -> None:
        terms, before = self._terms.get(queue, UNBOUNDED), self._usage.get(queue, NOTHING)
        self._free = minus(self._free, minus(drawn(terms, after), drawn(terms, before)))
        self._usage[queue] = after

    def verdict(self, queue: str, amount: Vector) -> Verdict:
        return judge(self._terms.get(queue, UNBOUNDED), self._usage.get(queue, NOTHING), self._free, amount)

    def borrowed(self, queue: str) -> Vector:
        return above(self._usage.get(queue, NOTHING), self._terms.get(queue, UNBOUNDED).nominal)

    def lacks(self, queue: str, amount: Vector) -> Vector:
        """What the cohort has to get back before the queue may use this amount."""
        terms, before = self._terms.get(queue, UNBOUNDED), self._usage.get(queue, NOTHING)
        return above(minus(drawn(terms, plus(before, amount)), drawn(terms, before)), above(self._free, NOTHING))


# Needs, levels and candidates → victims, the first to go first.
Policy = Callable[[Sequence[Need], Levels, Sequence[Candidate]], list[Candidate]]
