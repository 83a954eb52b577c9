"""When a session is parked."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet.driver.parking import FixedParking, LearnedParking, NoParking, best_timeout

GAPS = st.lists(st.floats(0, 1000), min_size=1, max_size=40)


def cost(gaps, timeout, price):
    """What a timeout costs by its definition."""
    return sum(gap if gap <= timeout else timeout + price for gap in gaps)


@given(GAPS, st.floats(0.1, 100), st.floats(0, 1000))
def test_no_other_timeout_would_have_cost_less(gaps, price, other):
    least = cost(gaps, best_timeout(gaps, price), price)
    # A timeout of 0 parks each gap, also one of no length.
    assert least <= min(cost(gaps, other, price), price * len(gaps)) + 1e-6


@pytest.mark.parametrize(
    ("gaps", "price", "best"),
    [
        ([1.0, 1.0, 1.0], 5.0, inf),
        ([100.0, 100.0, 100.0], 5.0, 0.0),
        ([1.0, 1.0, 1.0, 500.0], 5.0, 1.0),
    ],
    ids=["short gaps are waited for", "long gaps are parked at once", "what outlasts the short ones is parked"],
)
def test_the_timeout_follows_the_gaps(gaps, price, best):
    assert best_timeout(gaps, price) == best


def test_before_it_has_learned_it_parks_at_the_break_even_point():
    assert LearnedParking(latency_weight=1.0, cost=2.0).timeout() == 4.0


def test_it_learns_from_gaps_and_from_what_parking_costs():
    parking = LearnedParking(latency_weight=1.0, cost=2.0)
    for _ in range(parking.ENOUGH):
        parking.saw_gap(10.0)
    assert parking.timeout() == 0.0
    for _ in range(50):
        parking.saw_parking(30.0)
    assert parking.timeout() == inf


def test_fixed_and_no_parking_learn_nothing():
    for policy, timeout in ((FixedParking(3.0), 3.0), (NoParking(), inf)):
        policy.saw_gap(100.0)
        policy.saw_parking(1.0)
        assert policy.timeout() == timeout
