"""Fair turns: the bound of start-time fair queueing, between queues and between holders, and positions that hold."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_operator.api.kinds.queue import PriorityClass, QueueSpec
from sandfleet_operator.api.values import RequestKey
from sandfleet_operator.plan.scheduler.queues.fair_queue import FairQueue
from sandfleet_operator.plan.scheduler.queues.ledger import Ledger
from support.fleet.builders import NOW, a_claim, a_waiting

QUEUES = ("a", "b", "c")


def a_queue(weights=(), **spec):
    """A pool's queue with the queues a, b, c, …"""
    ledger = Ledger()
    for name, weight in zip(QUEUES, weights or (1.0,) * len(QUEUES), strict=False):
        ledger.put(name, QueueSpec(weight=weight, **spec))
    return FairQueue("python", ledger)


def claims(queue, many, first=1, holder="alice", asked=NOW, **changes):
    for number in range(first, first + many):
        claim = replace(a_claim(queue=queue, **changes), key=RequestKey(holder, f"r{number}", "python"))
        yield a_waiting(number, claim=claim, asked=asked)


def served(queue, many, now=NOW):
    """The next claims, each with its start tags."""
    found = []
    for waiting in itertools.islice(queue.turns(now), many):
        queue.discard(waiting)
        found.append(waiting)
    return found


STEPS = st.lists(
    st.tuples(st.sampled_from(["arrive", "serve"]), st.sampled_from(QUEUES), st.integers(1, 12)),
    min_size=4,
    max_size=40,
)


@given(weights=st.tuples(*[st.sampled_from([1.0, 2.0, 3.0, 10.0])] * 3), steps=STEPS)
def test_two_queues_that_both_wait_are_served_by_their_weights_up_to_one_claim_of_each(weights, steps):
    queue, weight_of, numbers = a_queue(weights), dict(zip(QUEUES, weights, strict=True)), itertools.count(1)
    done, waiting = dict.fromkeys(QUEUES, 0), dict.fromkeys(QUEUES, 0)
    # For each pair, the lowest and highest difference since both wait.
    spans = {}
    for what, name, many in steps:
        if what == "arrive":
            for _ in range(many):
                queue.add(next(claims(name, 1, next(numbers))))
            waiting[name] += many
        for one in served(queue, many if what == "serve" else 0):
            done[one.claim.queue] += 1
            waiting[one.claim.queue] -= 1
            check_spans(spans, done, waiting, weight_of)
        check_spans(spans, done, waiting, weight_of)


def check_spans(spans, done, waiting, weight_of):
    for one, other in itertools.combinations(QUEUES, 2):
        difference = done[one] / weight_of[one] - done[other] / weight_of[other]
        low, high = spans.get((one, other), (difference, difference))
        low, high = min(low, difference), max(high, difference)
        bound = 1 / weight_of[one] + 1 / weight_of[other]
        assert high - low <= bound + 1e-9, (one, other)
        if waiting[one] and waiting[other]:
            spans[one, other] = low, high
        else:
            spans.pop((one, other), None)


@pytest.mark.slow
@given(flood=st.integers(1, 2000), served_before=st.integers(0, 50), weight=st.sampled_from([1.0, 5.0]))
def test_a_flood_of_one_queue_delays_another_by_at_most_one_claim(flood, served_before, weight):
    queue = a_queue((weight, 1.0))
    for one in claims("a", flood):
        queue.add(one)
    served(queue, served_before)
    queue.add(next(claims("b", 1, 10_000)))
    assert "b" in {one.claim.queue for one in served(queue, 2)}


@given(flood=st.integers(1, 300), served_before=st.integers(0, 50))
def test_a_flood_of_one_holder_delays_another_of_the_same_queue_by_at_most_one_claim(flood, served_before):
    queue = a_queue()
    for one in claims("a", flood):
        queue.add(one)
    served(queue, served_before)
    queue.add(next(claims("a", 1, 10_000, holder="bob")))
    assert "bob" in {one.claim.key.holder for one in served(queue, 2)}


def test_a_queue_that_served_while_others_were_away_does_not_pay_for_it_later():
    queue = a_queue()
    for one in claims("a", 100):
        queue.add(one)
    served(queue, 90)
    for one in claims("b", 10, 200):
        queue.add(one)
    assert [one.claim.queue for one in served(queue, 6)] == ["b", "a"] * 3


def test_a_claim_that_waits_again_has_its_old_turn():
    queue = a_queue()
    for name, first in (("a", 1), ("b", 11)):
        for one in claims(name, 5, first):
            queue.add(one)
    first, _ = served(queue, 2)
    queue.add(first)
    assert [one.number for one in served(queue, 3)] == [first.number, 2, 12]


def positions(queue):
    return {one.number: place for one, place in queue.positions(NOW)}


POSITIONS = st.lists(
    st.tuples(
        st.sampled_from(["arrive", "serve", "leave"]),
        st.sampled_from(["alice", "bob", "carol"]),
        st.sampled_from(["", "high"]),
        st.integers(0, 5),
    ),
    min_size=4,
    max_size=30,
)


@given(steps=POSITIONS)
def test_a_position_gets_worse_only_when_a_claim_of_another_holder_or_a_higher_class_arrives(steps):
    queue = a_queue(priority_classes=(PriorityClass("high"), PriorityClass("low")), ageing=0.0)
    numbers, there = itertools.count(1), {}
    for what, holder, priority, number in steps:
        before = positions(queue)
        arrived = None
        match what:
            case "arrive":
                arrived = next(claims("a", 1, next(numbers), holder, priority=priority))
                queue.add(arrived)
                there[arrived.number] = arrived
            case "serve":
                for one in served(queue, number):
                    del there[one.number]
            case "leave" if number in there:
                queue.discard(there.pop(number))
        after = positions(queue)
        assert sorted(after.values()) == list(range(1, len(there) + 1))
        assert after.keys() == there.keys()
        for one in after.keys() & before.keys():
            claim = there[one].claim
            overtakes = arrived is not None and (
                arrived.claim.key.holder != claim.key.holder or arrived.claim.priority > claim.priority
            )
            assert after[one] <= before[one] + overtakes


@given(steps=POSITIONS)
def test_claims_are_served_in_the_order_of_their_positions(steps):
    queue = a_queue(priority_classes=(PriorityClass("high"), PriorityClass("low")), ageing=0.0)
    numbers = itertools.count(1)
    for what, holder, priority, number in steps:
        if what == "arrive":
            queue.add(next(claims("a", 1, next(numbers), holder, priority=priority)))
        elif what == "serve":
            served(queue, number)
    expected = {place: number for number, place in positions(queue).items()}
    assert [one.number for one in served(queue, 1000)] == [expected[place] for place in sorted(expected)]
