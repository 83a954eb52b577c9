"""How much of its quota and of its cohort's a queue may still use: the arithmetic of Kueue. Values in, a verdict out.

    nominal      what the queue may use of its own
    lendable     the part of it that its cohort may use meanwhile: all of it, or as much as the lending limit says
    guaranteed   the rest: it is never lent
    capacity     of a cohort: all that its queues can lend
    drawn        what a queue uses above its guaranteed quota: it comes out of the cohort's capacity
    most         nominal quota and borrowing limit together

Each is a vector over sandboxes, CPU and memory. A resource without a nominal quota is not bounded for that queue, and
the queue neither lends nor borrows it. Guaranteed quota can always be used, also while an edit has left the cohort with
less capacity than is drawn.
"""

import math
import sys
from dataclasses import dataclass
from enum import Enum

from sandfleet_operator.api.kinds.queue import QueueSpec, Quota
from sandfleet_operator.api.values import Amount

# Sandboxes, CPU in millicores, memory in bytes.
Vector = tuple[float, float, float]
NOTHING: Vector = (0.0, 0.0, 0.0)
INFINITE: Vector = (math.inf, math.inf, math.inf)
# Of a weight that is not above 0.
LEAST_WEIGHT = 1e-6


class Verdict(Enum):
    """Whether a queue may use a further amount."""

    # Its stop policy admits nothing.
    HELD = "Held"
    # Within its nominal quota.
    WITHIN = "Within"
    # With quota that it borrows from its cohort.
    BORROWS = "Borrows"
    # It is within its nominal quota, which others have borrowed.
    LENT = "Lent"
    # It would have to borrow, and the cohort has nothing left to lend.
    EXHAUSTED = "Exhausted"
    # Its own quota and its borrowing limit are used up.
    REACHED = "Reached"

    @property
    def admits(self) -> bool:
        return self is Verdict.WITHIN or self is Verdict.BORROWS


@dataclass(frozen=True, slots=True)
class Terms:
    """A queue's quota as vectors."""

    nominal: Vector = INFINITE
    guaranteed: Vector = INFINITE
    lendable: Vector = NOTHING
    most: Vector = INFINITE
    weight: float = 1.0


# Of claims without a queue.
UNBOUNDED = Terms()


def vector(amount: Amount | Quota, missing: float = 0.0) -> Vector:
    sandboxes, cpu, memory = amount.sandboxes, amount.cpu, amount.memory
    return (
        missing if sandboxes is None else sandboxes,
        missing if cpu is None else cpu,
        missing if memory is None else memory,
    )


def amount_of(used: Vector) -> Amount:
    return Amount(sandboxes=round(used[0]), cpu=round(used[1]), memory=round(used[2]))


def terms_of(spec: QueueSpec) -> Terms:
    nominal = vector(spec.nominal, math.inf)
    weight = max(spec.weight, LEAST_WEIGHT)
    if not spec.cohort:
        return Terms(nominal, nominal, NOTHING, nominal, weight)
    lending, borrowing = vector(spec.lending, math.inf), vector(spec.borrowing, math.inf)
    lendable = _lendable(nominal[0], lending[0]), _lendable(nominal[1], lending[1]), _lendable(nominal[2], lending[2])
    return Terms(nominal, minus(nominal, lendable), lendable, plus(nominal, borrowing), weight)


def plus(one: Vector, other: Vector) -> Vector:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def minus(one: Vector, other: Vector) -> Vector:
    return one[0] - other[0], one[1] - other[1], one[2] - other[2]


def times(one: Vector, many: int) -> Vector:
    return one[0] * many, one[1] * many, one[2] * many


def above(one: Vector, other: Vector) -> Vector:
    """What `one` has more than `other`, in each resource."""
    sandboxes, cpu, memory = one[0] - other[0], one[1] - other[1], one[2] - other[2]
    return max(0.0, sandboxes), max(0.0, cpu), max(0.0, memory)


def lesser(one: Vector, other: Vector) -> Vector:
    """In each resource the one that is less."""
    return min(one[0], other[0]), min(one[1], other[1]), min(one[2], other[2])


def is_within(one: Vector, other: Vector) -> bool:
    return one[0] <= other[0] and one[1] <= other[1] and one[2] <= other[2]


def drawn(terms: Terms, usage: Vector) -> Vector:
    return above(usage, terms.guaranteed)


def judge(terms: Terms, usage: Vector, free: Vector, amount: Vector) -> Verdict:
    """Whether `amount` may come to `usage`. `free` is what is left of the cohort's capacity, below 0 after an edit."""
    within = covered = True
    each = zip(usage, amount, terms.most, terms.nominal, terms.guaranteed, free, strict=True)
    for used, more, most, nominal, guaranteed, left in each:
        after = used + more
        if more and after > most:
            return Verdict.REACHED
        if after > nominal:
            within = False
        # What it draws more of the cohort's capacity.
        if more and after > guaranteed and after - max(used, guaranteed) > left:
            covered = False
    if covered:
        return Verdict.WITHIN if within else Verdict.BORROWS
    return Verdict.LENT if within else Verdict.EXHAUSTED


def how_many(terms: Terms, usage: Vector, free: Vector, amount: Vector, *, borrowing: bool = True) -> int:
    """How many times `amount` may come to `usage`."""
    guaranteed, most = above(terms.guaranteed, usage), minus(terms.most if borrowing else terms.nominal, usage)
    least = math.inf
    for resource, one in enumerate(amount):
        if one > 0:
            cohort = guaranteed[resource] + max(0.0, free[resource])
            least = min(least, most[resource] / one, cohort / one)
    return sys.maxsize if math.isinf(least) else max(0, math.floor(least))


def dominant_share(terms: Terms, usage: Vector, capacity: Vector) -> float:
    """Of the cohort's capacity, what the queue borrows of the resource that it borrows most, divided by its weight.

    Dominant resource fairness (Ghodsi et al., NSDI 2011) over borrowed quota: borrowers are served by it, least first.
    """
    borrowed = above(usage, terms.nominal)
    shares = (part / whole if whole > 0 else math.inf for part, whole in zip(borrowed, capacity, strict=True) if part)
    return max(shares, default=0.0) / terms.weight


def _lendable(nominal: float, lending: float) -> float:
    return 0.0 if math.isinf(nominal) else min(nominal, lending)
