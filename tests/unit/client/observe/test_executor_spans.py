"""What a hostile executor says of its spans: it stays below the call, inside its time, and within bounds."""

from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st
from sandfleet.observe.executor_spans import ALLOWED, CLOCK_OFFSET, MAX_SPANS, MAX_TEXT, Call, place
from sandfleet_api.executor.v1.common_pb2 import Span

TRACE = b"\7" * 16
CALL = Call(trace_id=int.from_bytes(TRACE, "big"), span_id=99, start=10 * 10**9, end=20 * 10**9)


def at(seconds: float) -> Timestamp:
    return Timestamp(seconds=int(seconds), nanos=int((seconds % 1) * 1e9))


def span(number: int, parent: int = 99, start: float = 12, end: float = 13, **fields) -> Span:
    ids = {"trace_id": TRACE, "span_id": number.to_bytes(8, "big"), "parent_span_id": parent.to_bytes(8, "big")}
    return Span(**{"name": f"s{number}", "start": at(start), "end": at(end), **ids, **fields})


def test_spans_keep_their_tree_and_their_times():
    own, run = place([span(2, 1, 12.5, 13), span(1, 99, 12, 14)], CALL)
    assert (own.span_id, own.parent_id, run.parent_id) == (1, 99, 1)
    assert (own.start, own.end, run.start) == (12 * 10**9, 14 * 10**9, 12_500_000_000)
    assert CLOCK_OFFSET not in own.attributes


def test_a_parent_that_the_executor_did_not_make_is_replaced_by_the_call():
    (found,) = place([span(1, parent=123_456)], CALL)
    assert found.parent_id == CALL.span_id


def test_circles_and_endless_chains_hang_on_the_call():
    circle = place([span(1, 2), span(2, 1), span(3, 3)], CALL)
    assert {one.parent_id for one in circle} == {99}
    chain = place([span(number, number + 1) for number in range(1, 60)], CALL)
    assert len(chain) == 59
    assert any(one.parent_id == 99 for one in chain)


def test_ids_of_the_client_of_others_and_used_ones_are_dropped():
    hostile = [
        span(99),
        span(0),
        span(5, trace_id=b"\1" * 16),
        span(6, trace_id=b"\7"),
        span(7, span_id=b"\7"),
        span(8),
        span(8, name="again"),
    ]
    assert [one.name for one in place(hostile, CALL)] == ["s8"]


def test_a_clock_that_is_wrong_is_set_by_the_measured_offset_which_each_span_tells():
    # The executor's clock is an hour ahead; the call lasted 10 s, of which it saw 4.
    own, run = place([span(1, 99, 3613, 3617), span(2, 1, 3614, 3615)], CALL)
    assert (own.start, own.end) == (13 * 10**9, 17 * 10**9)
    assert (run.start, run.end) == (14 * 10**9, 15 * 10**9)
    assert own.attributes[CLOCK_OFFSET] == run.attributes[CLOCK_OFFSET] == -3600.0


def test_only_the_executors_own_attributes_come_through_and_no_text_can_write_to_a_terminal():
    attributes = {"service.name": "fleet", "gen_ai.agent.name": "x", "sandfleet.outcome": "o\x1b[2Jk" + "x" * 9_999}
    (found,) = place([span(1, name="a\nb\x1b]0;x\x07", attributes=attributes, error="\x00")], CALL)
    assert set(found.attributes) == {"sandfleet.outcome"}
    assert len(found.attributes["sandfleet.outcome"]) == MAX_TEXT
    assert (found.name, found.error) == ("a b ]0;x ", " ")
    assert found.attributes["sandfleet.outcome"].startswith("o [2Jk")


def test_more_spans_than_the_bound_are_not_looked_at():
    assert len(place((span(number) for number in range(100, 1_000_000)), CALL)) == MAX_SPANS


moments = st.builds(Timestamp, seconds=st.integers(-(2**40), 2**40), nanos=st.integers(-(2**31), 2**31 - 1))
small = st.integers(0, 12).map(lambda number: number.to_bytes(8, "big"))
anything = st.builds(
    Span,
    name=st.text(max_size=300),
    trace_id=st.sampled_from([TRACE, b"", b"\1" * 16]),
    span_id=st.one_of(small, st.binary(max_size=9)),
    parent_span_id=st.one_of(small, st.binary(max_size=9)),
    start=moments,
    end=moments,
    attributes=st.dictionaries(st.sampled_from(["sandfleet.a", "process.b", "other", ""]), st.text(max_size=20)),
)


@given(st.lists(anything, max_size=30))
def test_whatever_comes_the_spans_are_one_tree_below_the_call_and_each_parent_covers_its_children(spans):
    placed = place(spans, CALL)
    times = {CALL.span_id: (CALL.start, CALL.end)}
    for one in placed:
        # Parents come first: so there is no circle, and each chain ends at the call.
        start, end = times[one.parent_id]
        assert start <= one.start <= one.end <= end
        assert one.span_id not in times
        times[one.span_id] = one.start, one.end
        assert all(key.startswith(ALLOWED) or key == CLOCK_OFFSET for key in one.attributes)
        assert one.name.isprintable()
