"""From arrivals to the number of warm sandboxes: a table, what holds for all, and an hour of arrivals by chance."""

import heapq
import math
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sandfleet_operator.plan.scheduler.starts.autoscale import (
    PANIC_SECONDS,
    STABLE_SECONDS,
    Bounds,
    Demand,
    arrived,
    quantile,
    rate,
    stock,
    target,
)
from support.examples import examples

START = 1_700_000_000.0
WIDE = Bounds(least=0, hit_rate=0.95)


@dataclass
class Pool:
    """One pool as its owner sees it, at a time of its own."""

    bounds: Bounds = WIDE
    start_seconds: float | None = 3.0
    now: float = START
    demand: Demand = field(default_factory=lambda: Demand(since=START))
    targets: list[int] = field(default_factory=list)
    panics: list[bool] = field(default_factory=list)

    def claims(self, per_second: int, seconds: int) -> "Pool":
        for _ in range(seconds):
            if per_second:
                self.demand = arrived(self.demand, self.now, per_second)
            self.now += 1.0
            self.demand, made = target(self.demand, self.now, self.bounds, self.start_seconds)
            self.targets.append(made.warm)
            self.panics.append(made.panicking)
        return self

    @property
    def warm(self) -> int:
        return self.targets[-1]


# The quantile.


@pytest.mark.parametrize(
    ("mean", "share", "least"),
    [
        # From published tables of the distribution.
        (0.0, 0.99, 0),
        (0.1, 0.9, 0),
        (0.5, 0.9, 1),
        (1.0, 0.5, 1),
        (1.0, 0.95, 3),
        (2.0, 0.95, 5),
        (5.0, 0.95, 9),
        (10.0, 0.5, 10),
        (10.0, 0.95, 15),
        (10.0, 0.99, 18),
        (20.0, 0.99, 31),
    ],
)
def test_the_quantile_agrees_with_the_published_tables(mean, share, least):
    assert quantile(mean, share) == least


@given(st.floats(0.001, 60), st.floats(0.5, 0.99999))
def test_the_quantile_is_the_smallest_that_reaches_the_share(mean, share):
    n = quantile(mean, share)
    terms = [math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(n + 1)]
    assert math.fsum(terms) >= share - 1e-12
    assert math.fsum(terms[:-1]) < share + 1e-12


@pytest.mark.parametrize("mean", [1e-300, 1e-9, 700.0, 800.0, 1e4, 99_999.0, 1e5, 100_001.0, 1e7])
@pytest.mark.parametrize("share", [0.5, 0.9, 0.99, 0.9999, 1 - 1e-12])
def test_the_quantile_of_a_large_mean_does_not_underflow(mean, share):
    """Beside the normal distribution, which is close to it where the mean is large."""
    n = quantile(mean, share)
    off = (n - mean) / math.sqrt(mean) if mean > 1 else 0.0
    assert 0 <= n < mean + 9 * math.sqrt(mean) + 30
    assert mean < 1 or -0.1 <= off <= 8
    if mean > 1e4:
        reached = 0.5 * math.erfc(-(n - mean) / math.sqrt(2 * mean))
        assert reached == pytest.approx(share, abs=0.01)


def test_the_approximation_continues_the_exact_sum():
    for share in (0.5, 0.9, 0.99, 0.9999):
        assert abs(quantile(1e5, share) - quantile(1e5 + 1e-6, share)) <= 1


@pytest.mark.parametrize("share", [-0.1, 1.0, 2.0, math.nan])
def test_a_share_outside_0_to_1_is_refused(share):
    with pytest.raises(ValueError, match="cannot size a pool"):
        quantile(1.0, share)


# What is kept warm.


@pytest.mark.parametrize(
    ("per_second", "seconds", "bounds", "start_seconds", "warm"),
    [
        pytest.param(0, 300, WIDE, 3.0, 0, id="no claims"),
        pytest.param(0, 300, Bounds(least=4, hit_rate=0.95), 3.0, 4, id="no claims: the least"),
        pytest.param(1, 300, WIDE, 3.0, 7, id="one a second for 3 s: quantile 6 and one for the claim"),
        pytest.param(10, 300, WIDE, 3.0, 40, id="ten a second for 3 s: quantile 39 and one"),
        pytest.param(10, 300, WIDE, None, 40, id="a start time that is not known yet is 3 s"),
        pytest.param(10, 300, WIDE, 0.1, 4, id="fast starts need few"),
        pytest.param(10, 300, Bounds(least=0, most=25, hit_rate=0.95), 3.0, 25, id="no more than the most"),
        pytest.param(10, 300, Bounds(least=90, hit_rate=0.95), 3.0, 90, id="no less than the least"),
        pytest.param(10, 300, Bounds(least=7, most=7), 3.0, 7, id="without a hit rate the size is fixed"),
    ],
)
def test_a_steady_rate_gives_its_target(per_second, seconds, bounds, start_seconds, warm):
    assert Pool(bounds=bounds, start_seconds=start_seconds).claims(per_second, seconds).warm == warm


def test_a_target_above_the_bound_is_reported_as_capped():
    pool = Pool(bounds=Bounds(least=0, most=25, hit_rate=0.95)).claims(10, 60)
    assert target(pool.demand, pool.now, pool.bounds, 3.0)[1].capped
    assert not target(pool.demand, pool.now, WIDE, 3.0)[1].capped


def test_a_rush_counts_by_the_short_window():
    pool = Pool().claims(1, 120)
    calm = pool.warm
    pool.claims(20, PANIC_SECONDS)
    assert pool.panics[-1]
    # The mean of the long window would be three a second: 15.
    assert pool.warm >= stock(20 * 0.9 * 3.0, 0.95)
    assert pool.warm > 3 * calm


def test_a_few_claims_after_a_pause_are_no_rush():
    pool = Pool().claims(0, 120)
    pool.claims(2, 2)
    assert not any(pool.panics)


def test_the_target_never_falls_during_a_rush_which_ends_a_window_after_its_last_sign():
    pool = Pool().claims(1, 120).claims(30, 10)
    highest = pool.warm
    signs = len(pool.panics)
    pool.claims(1, 200)
    after = pool.panics[signs:]
    lasted = after.index(False)
    # The signs go on until the short window is quiet, or the long one has caught up.
    assert STABLE_SECONDS - PANIC_SECONDS <= lasted <= STABLE_SECONDS + PANIC_SECONDS
    assert min(pool.targets[signs : signs + lasted]) >= highest
    assert pool.warm < highest / 3


def test_the_target_falls_a_window_after_the_demand_at_the_earliest():
    pool = Pool().claims(10, 300)
    high = pool.warm
    before = len(pool.targets)
    pool.claims(0, 180)
    assert set(pool.targets[before : before + STABLE_SECONDS]) == {high}
    assert pool.warm == 0


def test_the_first_claims_count_before_the_windows_are_full():
    pool = Pool().claims(10, 6)
    assert rate(pool.demand, pool.now, STABLE_SECONDS) == pytest.approx(10, rel=0.2)
    assert pool.warm >= 35


def test_a_clock_that_goes_back_loses_no_claim():
    demand = arrived(arrived(Demand(since=START), START + 10, 3), START + 7, 2)
    assert rate(demand, START + 10, STABLE_SECONDS) * 10 == pytest.approx(5)


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.tuples(st.floats(0, 30), st.integers(1, 10_000)), max_size=80))
def test_its_memory_is_bounded_by_the_window(steps):
    demand, now = Demand(since=START), START
    for pause, claims in steps:
        now += pause
        demand = arrived(demand, now, claims)
        demand, _ = target(demand, now, WIDE, 3.0)
        assert len(demand.buckets) <= STABLE_SECONDS + 1
        assert len(demand.wanted) <= STABLE_SECONDS + 1


# What holds for all.

MEANS, SHARES = st.floats(0, 2e5), st.floats(0.5, 0.9999)


@settings(deadline=None)
@given(MEANS, MEANS, SHARES)
def test_more_demand_never_needs_fewer(one, other, share):
    low, high = sorted((one, other))
    assert stock(low, share) <= stock(high, share)


@settings(deadline=None)
@given(MEANS, SHARES, SHARES)
def test_a_higher_hit_rate_never_needs_fewer(mean, one, other):
    low, high = sorted((one, other))
    assert stock(mean, low) <= stock(mean, high)


STORIES = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 25)), min_size=1, max_size=4)


def told(story, bounds: Bounds, start_seconds: float) -> list[int]:
    pool = Pool(bounds=bounds, start_seconds=start_seconds)
    for per_second, seconds in story:
        pool.claims(per_second, seconds)
    return pool.targets


@settings(max_examples=examples(25), deadline=None)
@given(STORIES, st.floats(0.1, 20), st.floats(0.1, 20), st.sampled_from([0.5, 0.9, 0.99]))
def test_slower_starts_never_need_fewer(story, one, other, share):
    low, high = sorted((one, other))
    bounds = Bounds(least=0, hit_rate=share)
    assert all(a <= b for a, b in zip(told(story, bounds, low), told(story, bounds, high), strict=True))


@settings(max_examples=examples(25), deadline=None)
@given(STORIES, st.integers(0, 30), st.none() | st.integers(30, 60), st.sampled_from([None, 0.5, 0.99]))
def test_the_target_stays_within_its_bounds(story, least, most, share):
    for warm in told(story, Bounds(least=least, most=most, hit_rate=share), 3.0):
        assert least <= warm <= (math.inf if most is None else most)


@settings(max_examples=examples(25), deadline=None)
@given(STORIES)
def test_a_target_is_kept_for_a_window(story):
    """Never down within a window of the last time that so many were needed."""
    targets = told(story, WIDE, 3.0)
    for number, warm in enumerate(targets):
        earlier = targets[max(0, number - STABLE_SECONDS + 1) : number]
        if earlier and warm < max(earlier):
            # It fell: what it fell from was held for a window before, so that nothing newer asked for as many.
            first = targets.index(max(earlier))
            assert number - first >= STABLE_SECONDS - 1


# An hour.


def hit_rate_of_an_hour(per_second: float, start_seconds: float, bounds: Bounds, seed: int) -> float:
    """The share of claims that find a warm sandbox, with random arrivals and random start times."""
    chance = random.Random(seed)
    demand, now, until = Demand(since=0.0), 0.0, 3600.0
    warm, waiting, wanted, hits, claims = 0, 0, 0, 0, 0
    starts: list[float] = []
    next_look = 0.0
    arrival = chance.expovariate(per_second)
    while now < until:
        now = min(arrival, next_look, starts[0] if starts else math.inf)
        if starts and now == starts[0]:
            heapq.heappop(starts)
            if waiting:
                waiting -= 1
            else:
                warm += 1
        elif now == arrival:
            demand = arrived(demand, now)
            arrival += chance.expovariate(per_second)
            counted = now > 2 * STABLE_SECONDS
            claims += counted
            if warm:
                warm -= 1
                hits += counted
            else:
                waiting += 1
        else:
            demand, made = target(demand, now, bounds, start_seconds)
            wanted = made.warm
            next_look += 1.0
            warm = min(warm, wanted)
        while warm + len(starts) - waiting < wanted:
            heapq.heappush(starts, now + start_seconds * chance.uniform(0.8, 1.2))
    return hits / claims


@pytest.mark.parametrize(("per_second", "start_seconds"), [(0.5, 2.0), (4.0, 3.0)])
@pytest.mark.parametrize("wanted", [0.8, 0.95, 0.99])
def test_an_hour_of_random_claims_reaches_the_hit_rate(per_second, start_seconds, wanted):
    achieved = hit_rate_of_an_hour(per_second, start_seconds, Bounds(least=0, hit_rate=wanted), seed=1)
    assert achieved >= wanted


def test_half_of_the_needed_sandboxes_miss_the_hit_rate():
    """The negative control: the simulation can miss."""
    few = stock(4.0 * 3.0, 0.95) // 2
    assert hit_rate_of_an_hour(4.0, 3.0, Bounds(least=few, most=few), seed=1) < 0.8
