"""Lanes: who has a turn, who waits, and whom a stall concerns."""

from hypothesis import given
from hypothesis import strategies as st
from sandfleet_operator.plan.lanes import MAX_STALLED, Bounds, Lane, Party
from sandfleet_rules.backoff import Backoff

BOUNDS = Bounds(total=6, per_namespace=3, per_node=4, waiting=50, rounds=2, pauses=Backoff(first=1.0, longest=4.0))
A, B, C = (Party(name, "n1") for name in "abc")


def asked(lane, *parties):
    return [lane.ask(one) for one in parties]


def names(turns):
    return "".join(one.party.namespace for one in turns)


def test_namespaces_take_turns_within_their_bounds():
    lane = Lane(Bounds(total=6, per_namespace=3, per_node=100))
    asked(lane, *[A] * 10, *[B] * 2, C)
    begun = lane.begin(0.0)
    assert sorted(names(begun)) == list("aaabbc")
    assert lane.begin(0.0) == []
    lane.end(next(one for one in begun if one.party == A), 1.0, stalled=False)
    assert names(lane.begin(1.0)) == "a"


def test_without_a_bound_a_namespace_has_all_turns_and_the_others_none():
    """The control of the one above."""
    lane = Lane(Bounds(total=6, per_namespace=6, per_node=6))
    asked(lane, *[A] * 10)
    assert names(lane.begin(0.0)) == "aaaaaa"
    asked(lane, B)
    assert lane.begin(0.0) == []


def test_a_node_has_room_for_more_than_one_namespace():
    lane = Lane(BOUNDS)
    asked(lane, *[A] * 10, *[B] * 10, Party("a", "n2"), Party("c", ""))
    assert sorted(names(lane.begin(0.0))) == list("aaabbc")


def test_a_party_that_stalls_is_paused_and_gets_one_turn_at_a_time():
    lane = Lane(BOUNDS)
    asked(lane, *[A] * 12)
    for now in (0.0, 2.0):
        # All that were under way together stall once.
        round_ = lane.begin(now)
        assert len(round_) == 3
        for one in round_:
            lane.end(one, now + 2, stalled=True)
    assert lane.begin(4.0) == []
    assert lane.wakes_at(4.0) == 5.0
    (trial,) = lane.begin(5.0)
    assert lane.begin(6.0) == []
    lane.end(trial, 7.0, stalled=True)
    assert lane.wakes_at(7.0) == 9.0
    (trial,) = lane.begin(9.0)
    lane.end(trial, 9.1, stalled=False)
    assert len(lane.begin(9.1)) == 3


def test_a_stall_concerns_neither_other_nodes_nor_other_namespaces():
    lane = Lane(BOUNDS)
    for now in (0.0, 2.0):
        asked(lane, A)
        (one,) = lane.begin(now)
        lane.end(one, now + 1, stalled=True)
    asked(lane, A, Party("a", "n2"), B)
    assert [one.party for one in lane.begin(3.0)] == [Party("a", "n2"), B]


def test_a_turn_that_was_given_up_says_nothing():
    lane = Lane(BOUNDS)
    for now in (0.0, 2.0, 4.0):
        asked(lane, A)
        (one,) = lane.begin(now)
        lane.end(one, now + 1, stalled=None)
    assert asked(lane, A) == lane.begin(5.0)


def test_the_line_and_what_is_remembered_are_bounded():
    lane = Lane(BOUNDS)
    assert asked(lane, *[A] * 51)[-1] is None
    lane = Lane(BOUNDS)
    for number in range(MAX_STALLED + 10):
        asked(lane, Party(str(number)))
        for one in lane.begin(0.0):
            lane.end(one, 1.0, stalled=True)
    assert len(lane._stalled) == MAX_STALLED


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["ask", "end", "leave"]),
        st.sampled_from("abcd"),
        st.sampled_from(["", "n1", "n2"]),
        st.sampled_from([True, False, None]),
    ),
    max_size=120,
)


@given(STEPS)
def test_bounds_hold_and_every_turn_begins_in_the_end(steps):
    lane, waiting, busy = Lane(BOUNDS), [], []
    now = 0.0
    for what, namespace, node, stalled in steps:
        now += 0.5
        if what == "ask" and (turn := lane.ask(Party(namespace, node))):
            waiting.append(turn)
        elif what == "end" and busy:
            lane.end(busy.pop(0), now, stalled=stalled)
        elif what == "leave" and waiting:
            lane.leave(waiting.pop())
        begun = lane.begin(now)
        waiting = [one for one in waiting if one not in begun]
        busy += begun
        assert len(busy) <= BOUNDS.total
        for name in "abcd":
            assert sum(one.party.namespace == name for one in busy) <= BOUNDS.per_namespace
        for name in ("n1", "n2"):
            assert sum(one.party.node == name for one in busy) <= BOUNDS.per_node
    for _ in range(500):
        for one in busy:
            lane.end(one, now, stalled=False)
        now = lane.wakes_at(now) or now
        busy = lane.begin(now)
        waiting = [one for one in waiting if one not in busy]
    assert not waiting
    assert (lane._waiting, lane._busy, +lane._under_way, lane._line) == (0, 0, {}, {})
