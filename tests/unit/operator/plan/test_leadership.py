"""Leadership: what one contender sees, and when → its decision."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_operator.plan.leadership import (
    HIGHEST_SEEN,
    Decision,
    Leading,
    Record,
    Terms,
    View,
    decide,
    holds,
    next_number,
    observe,
    pause,
)

TERMS = Terms(duration=15.0, renew_deadline=10.0)
NO_LEASE = None
FREE = Record("", 4, "t0", 15.0)
MINE = Record("me", 5, "t1", 15.0)
THEIRS = Record("them", 5, "t1", 15.0)


@pytest.mark.parametrize(
    ("record", "unchanged_for", "decision"),
    [
        (NO_LEASE, 0, Decision.ACQUIRE),
        (FREE, 0, Decision.ACQUIRE),
        (MINE, 0, Decision.ACQUIRE),
        (THEIRS, 0, Decision.WAIT),
        (THEIRS, 14.9, Decision.WAIT),
        (THEIRS, 15.0, Decision.ACQUIRE),
        # The duration in the record counts, not our own.
        (Record("them", 5, "t1", 60.0), 59.9, Decision.WAIT),
        (Record("them", 5, "t1", 60.0), 60.0, Decision.ACQUIRE),
        (Record("them", 5, "t1", 5.0), 5.0, Decision.ACQUIRE),
        (Record("them", 5, "t1", 0.0), 14.9, Decision.WAIT),
        (Record("them", 5, "t1", 0.0), 15.0, Decision.ACQUIRE),
    ],
)
def test_a_follower_takes_a_free_or_expired_lease(record, unchanged_for, decision):
    assert decide(View("me", record, seen=100.0), 100.0 + unchanged_for, TERMS) is decision


@pytest.mark.parametrize(
    ("record", "since_renewal", "decision"),
    [
        (MINE, 0, Decision.WAIT),
        (MINE, 2.9, Decision.WAIT),
        (MINE, 3.0, Decision.RENEW),
        (MINE, 9.9, Decision.RENEW),
        (MINE, 10.0, Decision.LOST),
        (MINE, 1000.0, Decision.LOST),
        (THEIRS, 0, Decision.LOST),
        (FREE, 0, Decision.LOST),
        (NO_LEASE, 0, Decision.LOST),
        # Its own name under another number: another contender led in between.
        (Record("me", 7, "t9", 15.0), 0, Decision.LOST),
    ],
)
def test_a_leader_renews_in_time_or_has_lost(record, since_renewal, decision):
    view = View("me", record, 100.0, Leading(fencing=5, since=100.0))
    assert decide(view, 100.0 + since_renewal, TERMS) is decision
    if decision is not Decision.LOST:
        assert holds(view, 100.0 + since_renewal, TERMS)


def test_only_a_changed_record_is_a_sign_of_life():
    first = observe(View("me"), THEIRS, 100.0)
    assert first.seen == 100.0
    assert observe(first, Record("them", 5, "t1", 15.0), 110.0).seen == 100.0
    assert observe(first, Record("them", 5, "t2", 15.0), 110.0).seen == 110.0
    assert observe(first, NO_LEASE, 110.0).record is None


def test_the_pause_ends_when_a_step_is_due():
    leading = View("me", MINE, 0.0, Leading(5, since=100.0))
    assert pause(leading, 101.0, TERMS) == 2.0
    assert pause(leading, 107.0, TERMS) == 0.0
    # After one that failed at once, and after one that took longer than the pause.
    assert pause(leading, 107.0, TERMS, tried=107.0) == TERMS.retry_every
    assert pause(leading, 109.0, TERMS, tried=107.0) == 0.0
    # The pause ends in time for the end of leadership.
    assert pause(leading, 109.5, TERMS, tried=109.5) == 0.5
    assert pause(View("me", THEIRS, 100.0), 100.0, TERMS) == TERMS.retry_every


@pytest.mark.parametrize(("duration", "deadline"), [(15, 15), (15, 20), (15, 3), (15, 0)])
def test_terms_that_allow_two_leaders_are_refused(duration, deadline):
    with pytest.raises(ValueError, match="cannot hold a lease"):
        Terms(duration, deadline)


@given(
    offset=st.floats(-1e6, 1e6),
    sent=st.floats(0, 1e6),
    delays=st.tuples(st.floats(0, 30), st.floats(0, 30)),
    moment=st.floats(0, 60),
)
def test_a_takeover_comes_after_the_earlier_leader_has_stopped(offset, sent, delays, moment):
    """However long a renewal takes to be done and to be seen, and whatever the other one's clock says."""
    done, seen = sent + delays[0], sent + delays[0] + delays[1]
    now = seen + moment
    leader = View("me", MINE, done, Leading(5, since=sent))
    follower = View("them", MINE, seen + offset)
    if decide(follower, now + offset, TERMS) is Decision.ACQUIRE:
        assert not holds(leader, now, TERMS)


@given(
    st.integers(0, HIGHEST_SEEN),
    st.lists(st.integers(0, HIGHEST_SEEN)),
    st.lists(st.integers(min_value=HIGHEST_SEEN + 1)),
)
def test_a_number_is_above_all_honest_ones_and_fits_the_lease(last, honest, forged):
    number = next_number(last, [*forged, *honest])
    assert number > max([last, *honest])
    assert number <= HIGHEST_SEEN + 1 < 1 << 31
