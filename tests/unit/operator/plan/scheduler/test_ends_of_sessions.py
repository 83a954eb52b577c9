"""When leases and suspensions may be over: told by a heap as by a look at all sandboxes."""

from hypothesis import given
from hypothesis import strategies as st
from sandfleet_operator.api.values import State
from sandfleet_operator.plan.scheduler.sessions.ends import STALE, EndsOfSessions
from support.fleet.builders import NOW, a_sandbox

SECONDS = st.one_of(st.none(), st.integers(0, 12))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 4), SECONDS, st.sampled_from(State)),
        st.tuples(st.just("gone"), st.integers(1, 4), st.none(), st.none()),
        st.tuples(st.just("pass"), st.integers(0, 5), st.none(), st.none()),
    ),
    max_size=40,
)


def a_session(number, state, seconds, now):
    end = None if seconds is None else now + seconds
    return a_sandbox(state, sandbox_id=f"s{number}", bound=True, lease_expires=end, suspended_until=end)


def is_due(sandbox, now):
    asleep = sandbox.state in {State.SUSPENDING, State.SUSPENDED}
    end = sandbox.suspended_until if asleep else sandbox.lease_expires
    return end is not None and end <= now and (asleep or sandbox.state in {State.CLAIMED, State.RECOVERING})


@given(STEPS)
def test_the_same_sessions_are_due_as_by_a_look_at_all(steps):
    sandboxes, now = {}, NOW
    ends = EndsOfSessions(sandboxes)
    for what, number, seconds, state in steps:
        if what == "put":
            sandboxes[f"s{number}"] = one = a_session(number, state, seconds, now)
            ends.note(one)
        elif what == "gone":
            sandboxes.pop(f"s{number}", None)
        else:
            now += number
        due = {name for name, one in sandboxes.items() if is_due(one, now)}
        found = ends.over(now)
        assert (len(found), set(found)) == (len(due), due)


def test_renewals_and_sessions_that_end_early_leave_a_bounded_number_of_entries():
    sandboxes = {}
    ends = EndsOfSessions(sandboxes)
    for number in range(20 * STALE):
        sandboxes["long"] = one = a_session(0, State.CLAIMED, 50 + number, NOW)
        ends.note(one)
        sandboxes[f"s{number}"] = one = a_session(number, State.CLAIMED, 50, NOW)
        ends.note(one)
        del sandboxes[f"s{number}"]
    assert len(ends) <= 2 * len(sandboxes) + STALE + 1
    assert ends.over(NOW + 49) == []
