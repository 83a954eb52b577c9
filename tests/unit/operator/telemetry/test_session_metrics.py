"""What the fleet counts of the word of executors, which may lie."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_api.executor.v1 import common_pb2, session_pb2
from sandfleet_operator.api.values import Isolation, Sandbox, State
from sandfleet_operator.executors.usage import reading
from sandfleet_operator.plan.scheduler.actions import Gone
from sandfleet_operator.plan.usage import NOTHING, End, Ended, Reading, grown
from sandfleet_operator.telemetry.metrics import exposition
from sandfleet_operator.telemetry.session_metrics import ReviewMetrics, SessionMetrics

SANDBOX = Sandbox(
    sandbox_id="team/s", sandbox_uid="uid-1", pool="team/fast", template="t", isolation=Isolation.NONE,
    workspace_id="w", created=0.0, started=0.0, state=State.CLAIMED,
)  # fmt: skip
OK, LATE = End("cell", "ok", "none"), End("cell", "timeout", "limit")


def said(seconds, ok, *, late=0, **more):
    """A reading after so many seconds, with so many executions."""
    ends = {OK: Ended((ok, 0, 0, 0, 0, 0, 0), ok * 0.005), LATE: Ended((0, 0, 0, late, 0, 0, 0), late * 5.0)}
    return Reading(wall_seconds=seconds, ends=ends, **more)


class Fleet:
    def __init__(self):
        self.now = 0.0
        self.metrics = SessionMetrics(lambda: self.now)

    def hears(self, at, found, sandbox=SANDBOX):
        self.now = at
        self.metrics.read(sandbox, found)

    def has(self, line):
        return f"{line}\n" in exposition(self.metrics.families())


def executions(count, outcome="ok", blame="none"):
    where = 'namespace="team",pool="fast",kind="cell"'
    return f'sandfleet_executions_total{{{where},outcome="{outcome}",blame="{blame}"}} {count}'


def readings(outcome, count):
    return f'sandfleet_usage_readings_total{{namespace="team",pool="fast",outcome="{outcome}"}} {count}'


def test_what_came_since_the_reading_before_is_counted_once():
    fleet = Fleet()
    fleet.hears(10, said(10, 3, cpu_seconds=1.5, memory_bytes=100, processes=2, calls={"ok": 2}))
    fleet.hears(20, said(20, 5, late=1, cpu_seconds=2.0, memory_bytes=50, processes=1, calls={"ok": 2, "error": 1}))
    assert fleet.has(executions(5))
    assert fleet.has(executions(1, "timeout", "limit"))
    assert fleet.has('sandfleet_execution_seconds_bucket{namespace="team",pool="fast",kind="cell",le="0.01"} 5')
    assert fleet.has('sandfleet_execution_seconds_sum{namespace="team",pool="fast",kind="cell"} 5.025')
    assert fleet.has('sandfleet_tool_calls_total{namespace="team",pool="fast",end="ok"} 2')
    assert fleet.has('sandfleet_tool_calls_total{namespace="team",pool="fast",end="error"} 1')
    assert fleet.has('sandfleet_session_cpu_seconds_total{namespace="team",pool="fast"} 2')
    assert fleet.has('sandfleet_session_memory_bytes{namespace="team",pool="fast"} 50')


def test_an_executor_that_was_started_again_counts_from_zero():
    fleet = Fleet()
    fleet.hears(100, said(100, 3))
    fleet.hears(110, said(5, 2))
    assert fleet.has(executions(5))


def test_sessions_of_a_pool_are_added_and_one_that_is_gone_holds_nothing():
    fleet, other = Fleet(), replace(SANDBOX, sandbox_uid="uid-2")
    fleet.hears(1, said(1, 1, disk_bytes=7))
    fleet.hears(1, said(1, 1, disk_bytes=5), other)
    assert fleet.has('sandfleet_session_disk_bytes{namespace="team",pool="fast"} 12')
    fleet.metrics.note(Gone(SANDBOX))
    assert fleet.has('sandfleet_session_disk_bytes{namespace="team",pool="fast"} 5')


@pytest.mark.parametrize(
    "lie",
    [
        said(10, 10**9),
        said(10, 0, cpu_seconds=math.inf),
        said(10, 0, cpu_seconds=math.nan),
        said(math.nan, 1),
        said(10, 0, cpu_seconds=1e9),
        said(10, 0, memory_bytes=1 << 60),
        said(10, 0, processes=1 << 31),
        said(10, 0, calls={"ok": 1 << 63}),
        Reading(wall_seconds=10, ends={OK: Ended((1, 0, 0, 0, 0, 0, 0), math.nan)}),
        Reading(wall_seconds=10, ends={OK: Ended((1, 0, 0, 0, 0, 0, 0), 1e12)}),
    ],
)
def test_numbers_that_no_sandbox_reaches_are_refused_with_the_whole_reading(lie):
    fleet = Fleet()
    fleet.hears(10, lie)
    assert fleet.has(readings("refused", 1))
    assert "sandfleet_executions_total{" not in exposition(fleet.metrics.families())
    # The same executor, once it tells the truth.
    fleet.hears(11, said(11, 1))
    assert fleet.has(executions(1))


def test_counts_that_went_back_are_refused():
    fleet = Fleet()
    fleet.hears(10, said(10, 5))
    fleet.hears(20, said(20, 4))
    assert fleet.has(readings("refused", 1))
    assert fleet.has(executions(5))


def test_an_executor_that_does_not_answer_is_counted_as_such():
    fleet = Fleet()
    fleet.hears(10, None)
    assert fleet.has(readings("unanswered", 1))


NUMBERS = st.floats(allow_nan=True, allow_infinity=True) | st.integers(-(2**63), 2**64).map(float)


@given(NUMBERS, NUMBERS, st.lists(st.integers(0, 2**64 - 1), min_size=7, max_size=7), NUMBERS)
def test_no_reading_makes_a_counter_go_down_or_to_infinity(wall, cpu, counts, seconds):
    lie = Reading(wall_seconds=wall, cpu_seconds=cpu, ends={OK: Ended(tuple(counts), seconds)})
    found = grown(NOTHING, lie, 10.0)
    if found is not None:
        assert all(0 <= count <= 10_000 for count in found.ends[OK].counts)
        assert 0 <= found.ends[OK].seconds < 1e12
        assert -1 <= found.cpu_seconds <= 1e5


def test_words_that_the_contract_does_not_have_make_no_series():
    counts = [1, 0, 0, 0, 0, 0, 0]
    message = session_pb2.UsageResponse(
        wall_seconds=5,
        ended=[
            session_pb2.EndedExecutions(outcome=common_pb2.OUTCOME_OK, counts=counts),
            session_pb2.EndedExecutions(commands=True, outcome=common_pb2.OUTCOME_KILLED, counts=counts,
                                        blame=common_pb2.BLAME_CODE),
            session_pb2.EndedExecutions(outcome=4711, counts=counts),
            session_pb2.EndedExecutions(outcome=common_pb2.OUTCOME_ERROR, blame=4711, counts=counts),
            session_pb2.EndedExecutions(outcome=common_pb2.OUTCOME_ERROR, counts=[1] * 100),
        ],
        tool_calls=[
            *(session_pb2.EndedToolCalls(end=end, count=1) for end in ("ok", "denied")),
            *(session_pb2.EndedToolCalls(end=f"flood-{number}", count=1) for number in range(1000)),
        ],
    )  # fmt: skip
    found = reading(message)
    assert set(found.ends) == {OK, End("command", "killed", "code")}
    assert found.calls == {"ok": 1, "denied": 1}


def test_reviews_count_by_their_answer_and_what_waits_by_its_namespace():
    metrics = ReviewMetrics(lambda: {"team/a": ["r1", "r2"], "team/b": [], "other/c": ["r3"]})
    metrics.answered("team/a", "approve", 7.0)
    metrics.answered("team/a", "deny", -5.0)
    lines = exposition(metrics.families())
    assert 'sandfleet_reviews_waiting{namespace="team"} 2\n' in lines
    assert 'sandfleet_reviews_waiting{namespace="other"} 1\n' in lines
    assert 'sandfleet_review_wait_seconds_sum{namespace="team",answer="approve"} 7\n' in lines
    assert 'sandfleet_review_wait_seconds_sum{namespace="team",answer="deny"} 0\n' in lines
