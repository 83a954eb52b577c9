"""The spans of an execution and of its phases."""

from sandfleet_executor.core.egress.contacts import Contact
from sandfleet_executor.core.executions.outcomes import Verdict
from sandfleet_executor.core.executions.tracing import TraceParent
from sandfleet_executor.effects.executions import spans
from sandfleet_executor.effects.executions.spans import Trace

PARENT = TraceParent(b"\1" * 16, b"\2" * 8, 1)
OK = Verdict("ok", "code", "", "")
MS = 1_000_000


class Clock:
    now = 1_000 * MS

    def __call__(self) -> int:
        return self.now


def played(*phases, parent=PARENT, first_output=0, verdict=OK):
    clock = Clock()
    trace = Trace(parent, clock)
    for name, milliseconds in phases:
        trace.enter(name)
        clock.now += int(milliseconds * MS)
    return trace.finish("execute_cell", verdict, {}, first_output)


def test_phases_follow_each_other_and_fill_the_execution():
    own, *phases = played(("queue", 5), ("prepare", 2), ("run", 0.1), ("roll_back", 3))
    assert [phase.name for phase in phases] == ["queue", "prepare", "run", "roll_back"]
    assert {phase.parent_span_id for phase in phases} == {own.span_id}
    assert [phase.start for phase in phases[1:]] == [phase.end for phase in phases[:-1]]
    assert (phases[0].start, phases[-1].end) == (own.start, own.end)
    assert len({span.span_id for span in (own, *phases)}) == 5


def test_phases_in_which_nothing_was_waited_for_are_left_out_but_the_run_beside_others_is_not():
    _, *phases = played(("prepare", 0.5), ("copy", 2), ("run", 0.01))
    assert [phase.name for phase in phases] == ["copy", "run"]


def test_each_connection_of_the_session_has_a_span_with_its_verdict_and_its_bytes():
    clock = Clock()
    trace = Trace(PARENT, clock)
    trace.enter("run")
    start = clock.now
    reached = Contact("a.test", 443, "", denied=False, start=start + MS, sent=5, received=7)
    refused = Contact("b.test", 80, "NotListed", denied=True, start=start + MS, end=start + MS)
    clock.now += 3 * MS
    own, *found = trace.finish("execute_cell", OK, {}, 0, [reached, refused] * spans.MAX_CONTACTS)
    assert len(found) == spans.MAX_CONTACTS
    assert {(one.name, one.trace_id, one.parent_span_id) for one in found} == {("egress", own.trace_id, own.span_id)}
    # One that is open lasts up to the end of the execution.
    assert (found[0].start, found[0].end, found[0].error) == (start + MS, own.end, "")
    assert found[0].attributes == {
        "sandfleet.egress.host": "a.test",
        "sandfleet.egress.port": "443",
        "sandfleet.egress.verdict": "Reached",
        "sandfleet.egress.sent_bytes": "5",
        "sandfleet.egress.received_bytes": "7",
    }
    assert (found[1].attributes["sandfleet.egress.verdict"], found[1].error) == ("NotListed", "NotListed")


def test_an_execution_that_only_ran_is_one_span():
    (own,) = played(("queue", 0.5), ("prepare", 0.5), ("run", 10), first_output=1_001 * MS + 1)
    assert (own.name, own.end - own.start) == ("execute_cell", 11 * MS)


def test_the_wait_for_the_first_output_begins_with_the_run():
    _, run, first = played(("run", 10), first_output=1_004 * MS)
    assert (first.name, first.start, first.end) == ("first_output", run.start, 1_004 * MS)
    # Output of an earlier attempt is none of this run.
    assert [span.name for span in played(("run", 10), first_output=900 * MS)] == ["execute_cell"]


def test_a_cell_that_begins_again_and_again_has_a_bounded_number_of_phases():
    found = played(*[("run", 1), ("prepare", 1)] * 1_000)
    assert len(found) == 1 + spans.MAX_PHASES


def test_a_trace_that_is_not_sampled_costs_no_spans_and_still_reaches_the_child():
    unsampled = TraceParent(PARENT.trace_id, PARENT.span_id, 0)
    assert played(("run", 1), parent=unsampled) == ()
    assert Trace(unsampled).environment()["TRACEPARENT"].endswith("-00")
    assert played(("run", 1), parent=None) == ()
