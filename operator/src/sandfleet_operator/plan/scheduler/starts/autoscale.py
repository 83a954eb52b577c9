"""How many warm sandboxes a pool needs, from the claims that arrive. Times are seconds.

Claims of independent callers are a Poisson process. Each claim that takes a warm sandbox starts its successor, which is
warm one start time later. With n sandboxes warm or starting, a claim finds none warm only if n or more claims came
within the start time before it. The smallest n with P(Poisson(rate times start time) < n) >= hit rate therefore serves
that share of the claims at once.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, count, takewhile
from operator import mul

# Over which the rate is measured: the long window for what is usual, the short one for what has just begun.
STABLE_SECONDS = 60
PANIC_SECONDS = 6
# So many times the usual rate is a rush: the short window then counts, and the target does not fall.
PANIC_RATIO = 2.0
# Fewer claims than this in the short window are chance, not a rush.
PANIC_CLAIMS = 5
# Of a start, before the first one was seen.
START_SECONDS = 3.0
# Above it the sum has too many terms, and the normal distribution differs by less than one in ten thousand.
MAX_EXACT = 1e5
NEGLIGIBLE = 1e-18


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a pool's spec says of its size."""

    least: int
    # None: no bound of its own.
    most: int | None = None
    # From 0.5 to below 1; None: the size is fixed.
    hit_rate: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Claims that have arrived, and what was concluded from them. Its size does not depend on how many they are."""

    # When the first claim or the first question came: the windows are shorter before they are full.
    since: float
    # Whole second → claims in it, oldest first, of the last STABLE_SECONDS.
    buckets: tuple[tuple[int, int], ...] = ()
    # The end of the rush; in the past where there is none.
    panic_until: float = -math.inf
    # Whole second → its highest target, of the last STABLE_SECONDS: the target may not fall below these yet.
    wanted: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """`warm` is how many to keep. `rate` is claims per second, as it was counted with."""

    warm: int
    rate: float
    panicking: bool = False
    # More would be needed than `most` allows.
    capped: bool = False


def arrived(demand: Demand, now: float, claims: int = 1) -> Demand:
    """`claims` came just now. A clock that goes back counts them to the last second that is known."""
    second, known = math.floor(now), demand.buckets
    if known and known[-1][0] >= second:
        last, number = known[-1]
        return replace(demand, buckets=(*known[:-1], (last, number + claims)))
    return replace(demand, buckets=(*_recent(known, now), (second, claims)))


def target(demand: Demand, now: float, bounds: Bounds, start_seconds: float | None) -> tuple[Demand, Target]:
    """What to keep warm, and the demand with that conclusion. `start_seconds` of a start; None: not known yet."""
    if bounds.hit_rate is None:
        return replace(demand, wanted=()), Target(warm=bounds.least, rate=rate(demand, now, STABLE_SECONDS))
    stable, short = rate(demand, now, STABLE_SECONDS), rate(demand, now, PANIC_SECONDS)
    until = now + STABLE_SECONDS if _is_rush(demand, now, stable, short) else demand.panic_until
    panicking = now < until
    counted = max(stable, short) if panicking else stable
    needed = stock(counted * (START_SECONDS if start_seconds is None else start_seconds), bounds.hit_rate)
    held = max((one for _, one in _recent(demand.wanted, now)), default=0)
    if panicking and demand.wanted:
        # Of the whole rush, however long it lasts.
        held = max(held, demand.wanted[-1][1])
    warm = max(needed, held)
    known = replace(demand, panic_until=until, wanted=_noted(demand.wanted, now, warm if panicking else needed))
    return known, _within(bounds, Target(warm=warm, rate=counted, panicking=panicking))


def rate(demand: Demand, now: float, window: float) -> float:
    """Claims per second over the last `window` seconds, or since the first claim, at least over the short window."""
    first = math.floor(now - window) + 1
    claims = sum(number for second, number in demand.buckets if second >= first)
    return claims / max(now - max(first, demand.since), PANIC_SECONDS - 1)


def stock(mean: float, hit_rate: float) -> int:
    """Sandboxes to keep warm if `mean` claims come during one start: one for the claim itself, the rest for others."""
    return quantile(mean, hit_rate) + 1 if mean > 0.0 else 0


def quantile(mean: float, share: float) -> int:
    """The smallest n with P(Poisson(mean) ≤ n) ≥ share. `share` is below 1."""
    if not 0.0 <= share < 1.0:
        raise ValueError(f"cannot size a pool: a hit rate of {share:g} is not from 0 to below 1")
    if mean <= 0.0:
        return 0
    return _exact(mean, share) if mean <= MAX_EXACT else math.ceil(_normal(mean, share))


def _within(bounds: Bounds, wanted: Target) -> Target:
    most = max(bounds.least, math.inf if bounds.most is None else bounds.most)
    warm = int(min(max(bounds.least, wanted.warm), most))
    return replace(wanted, warm=warm, capped=wanted.warm > most)


def _is_rush(demand: Demand, now: float, stable: float, short: float) -> bool:
    claims = sum(number for second, number in demand.buckets if second > now - PANIC_SECONDS)
    return claims >= PANIC_CLAIMS and short >= PANIC_RATIO * stable


def _recent(marks: tuple[tuple[int, int], ...], now: float) -> tuple[tuple[int, int], ...]:
    return tuple(mark for mark in marks if mark[0] > now - STABLE_SECONDS)


def _noted(marks: tuple[tuple[int, int], ...], now: float, wanted: int) -> tuple[tuple[int, int], ...]:
    second, kept = math.floor(now), _recent(marks, now)
    if kept and kept[-1][0] >= second:
        last, known = kept[-1]
        return (*kept[:-1], (last, max(known, wanted)))
    return (*kept, (second, wanted))


def _exact(mean: float, share: float) -> int:
    """Goes by the probabilities relative to the largest one, of which none underflows that counts."""
    mode = math.floor(mean)
    below = list(_falling((mode - k) / mean for k in range(mode)))
    above = list(_falling(mean / (mode + k) for k in count(1)))
    terms = [*reversed(below), 1.0, *above]
    needed = share * math.fsum(terms)
    first = mode - len(below)
    return next((n for n, total in enumerate(accumulate(terms), first) if total >= needed), mode + len(above))


def _falling(ratios: Iterable[float]) -> Iterator[float]:
    """The products of the ratios, until they count no more."""
    return takewhile(lambda term: term > NEGLIGIBLE, accumulate(ratios, mul))


def _normal(mean: float, share: float) -> float:
    """With Cornish and Fisher's correction for the skewness."""
    z = _standard_quantile(share)
    return mean + z * math.sqrt(mean) + (z * z - 1) / 6


def _standard_quantile(share: float) -> float:
    """Of the standard normal distribution, by halving: it is needed once in a while."""
    low, high = -40.0, 40.0
    for _ in range(80):
        middle = (low + high) / 2
        if 0.5 * math.erfc(-middle / math.sqrt(2)) < share:
            low = middle
        else:
            high = middle
    return high
