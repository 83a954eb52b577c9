"""When the waits of claims are over: told by a heap as by a look at all of them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_operator.plan.scheduler.queues.ends import EndsOfWaits
from support.fleet.builders import NOW, a_claim, a_waiting


def a_wait(number, deadline, queue="", **changes):
    claim = a_claim(f"r{number}", queue=queue)
    return a_waiting(number, claim=claim, deadline=NOW + deadline, **changes)


def end(waiting, longest):
    bounded = waiting.asked + longest.get(waiting.claim.queue, float("inf"))
    return waiting.deadline if waiting.returns is not None else min(waiting.deadline, bounded)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 6), st.integers(0, 20), st.sampled_from(["", "a", "b"])),
        st.tuples(st.just("leave"), st.integers(1, 6), st.none(), st.none()),
        st.tuples(st.just("pass"), st.integers(0, 5), st.sampled_from([None, 3, 8]), st.none()),
    ),
    max_size=40,
)


@given(STEPS)
def test_the_same_claims_are_over_as_by_a_look_at_all(steps):
    waiting, ends, now = {}, None, NOW
    ends = EndsOfWaits(waiting)
    for what, number, value, queue in steps:
        key = a_claim(f"r{number}").key
        if what == "put":
            one = a_wait(number, value, queue)
            waiting[key] = replace(waiting[key], deadline=one.deadline) if key in waiting else one
            ends.add(waiting[key])
        elif what == "leave":
            waiting.pop(key, None)
        else:
            now += number
            longest = {} if value is None else {"a": float(value)}
            expected = sorted(one.number for one in waiting.values() if end(one, longest) <= now)
            assert [one.number for one in ends.over(now, longest)] == expected


def test_a_preempted_session_waits_however_long_its_queue_lets_wait():
    one = a_wait(1, 50, "a", returns=NOW + 50)
    waiting = {one.claim.key: one}
    ends = EndsOfWaits(waiting)
    ends.add(one)
    assert ends.over(NOW + 20, {"a": 10.0}) == []
    assert ends.over(NOW + 50, {"a": 10.0}) == [one]


@pytest.mark.parametrize("gone", [100, 1_000])
def test_claims_that_have_left_are_not_kept(gone):
    waiting = {}
    ends = EndsOfWaits(waiting)
    for number in range(gone):
        one = a_wait(number, 3600)
        waiting[one.claim.key] = one
        ends.add(one)
        del waiting[one.claim.key]
    assert len(ends) < 70
