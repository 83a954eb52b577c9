"""When a claim may be served: base times, rates, and quantiles that learn."""

import random

import pytest
from sandfleet_operator.plan.scheduler.claim_queue import Eta, WhyNot, why_not
from sandfleet_operator.plan.scheduler.queues.standing.estimates import Base, Estimates, Rate
from sandfleet_operator.plan.scheduler.queues.standing.outlook import Outlook, QuotaWait, base
from support.fleet.builders import NOW, a_claim, a_waiting

BLOCKED = WhyNot("QuotaReached", "queue team uses 2 of 2 sandboxes of its quota")


def outlook(*ages, takes=2.0, full=False, releases=None, **changes):
    return Outlook(start_ages=ages, start_seconds=takes, max_starting=2, full=full, release_rate=releases, **changes)


@pytest.mark.parametrize(
    ("position", "outlook", "expected"),
    [
        pytest.param(1, outlook(takes=None), None, id="no start was observed yet"),
        pytest.param(1, outlook(0.5, 1.5), Base(0.5, "start"), id="the start that is over first"),
        pytest.param(2, outlook(0.5, 1.5), Base(1.5, "start"), id="the second start"),
        pytest.param(3, outlook(0.5, 1.5), Base(2.5, "start"), id="the first of the next wave"),
        pytest.param(5, outlook(0.5, 1.5), Base(4.5, "start"), id="the wave after that"),
        pytest.param(1, outlook(9.0), Base(2.25, "start"), id="a start that takes longer than others"),
        pytest.param(1, outlook(0.5, full=True), Base(1.5, "start"), id="a start of a full pool serves it"),
        pytest.param(2, outlook(0.5, full=True), None, id="a full pool of which no release was seen"),
        pytest.param(5, outlook(0.5, full=True, releases=2.0), Base(4.0, "release"), id="releases, then a start"),
        pytest.param(1, outlook(closed="PolicyMissing"), None, id="a closed pool"),
    ],
)
def test_the_base_time_follows_from_starts_and_releases(position, outlook, expected):
    why = why_not(position, a_waiting(1), outlook.snapshot)
    assert base(position, float(position), outlook, why, None) == expected


@pytest.mark.parametrize(("rate", "expected"), [(None, None), (0.5, Base(6.0, "quota"))])
def test_a_claim_without_quota_waits_for_as_many_releases_as_its_position(rate, expected):
    assert base(3, 3.0, outlook(), BLOCKED, QuotaWait(BLOCKED, rate)) == expected


def test_claims_of_other_queues_at_the_pool_count_as_before_it():
    why = why_not(1, a_waiting(1), outlook(0.5, 1.5).snapshot)
    assert base(1, 2.0, outlook(0.5, 1.5), why, None) == Base(1.5, "start")


def test_a_claim_on_an_earlier_workspace_waits_for_its_cold_start():
    starting = a_waiting(6, claim=a_claim("r6", workspace_id="w6"), sandbox_id="s6")
    assert why_not(1, starting, outlook(0.5).snapshot).reason == "ColdStart"


def test_a_rate_follows_what_happens_and_is_unknown_before_and_long_after():
    rate = Rate()
    assert rate.per_second(NOW) is None
    for tenth in range(600):
        rate.note(NOW + tenth / 10)
    assert rate.per_second(NOW + 60) == pytest.approx(10, rel=0.05)
    assert rate.per_second(NOW + 120) < 5
    assert rate.per_second(NOW + 3600) is None


def test_estimates_learn_by_which_factor_the_base_is_wrong():
    estimates, chance = Estimates(), random.Random(1)
    for number in range(200):
        estimates.predict(number, Base(10.0, "quota"), NOW)
        # Three times the base, more or less: exponential on top of a fixed part.
        estimates.served(number, NOW + 20 + chance.expovariate(1 / 10))
    eta = estimates.eta(Base(10.0, "quota"))
    assert eta.p50 == pytest.approx(27, rel=0.1)
    assert eta.p90 == pytest.approx(43, rel=0.15)
    # Another kind of wait has nothing to do with it.
    assert estimates.eta(Base(10.0, "start")) == Eta(10.0, 25.0)


def test_the_errors_are_those_of_what_was_told_at_the_arrival():
    estimates = Estimates()
    estimates.predict(1, Base(10.0, "start"), NOW)
    estimates.predict(2, Base(10.0, "start"), NOW)
    estimates.predict(3, Base(10.0, "start"), NOW)
    estimates.forget(3)
    estimates.served(1, NOW + 20)
    estimates.served(2, NOW + 40)
    estimates.served(3, NOW + 40)
    found = estimates.errors()
    assert (found.known, found.p90, found.within_p90) == (2, 0.75, 0.5)
