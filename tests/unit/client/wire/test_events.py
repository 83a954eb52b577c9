"""The collector takes whatever an executor sends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet._wire import events as collect
from sandfleet._wire.events import EventCollector
from sandfleet.errors import ProtocolError
from sandfleet.values.execution import CommandOutput, Gap, Outcome, Stream
from sandfleet_api.executor.v1 import common_pb2

Event = common_pb2.ExecutionEvent


def begun(**options: int | bool) -> EventCollector:
    collector = EventCollector("e", **options)  # type: ignore[arg-type]
    collector.feed(Event(sequence=1, started=common_pb2.ExecutionStarted(execution_id="e")))
    return collector


def chunk(sequence: int, data: bytes) -> common_pb2.ExecutionEvent:
    return Event(sequence=sequence, output=common_pb2.OutputChunk(stream=common_pb2.STREAM_STDOUT, data=data))


events = st.builds(
    lambda sequence, kind, number, data: Event(
        sequence=sequence,
        **{
            "output": {"output": common_pb2.OutputChunk(stream=number, data=data)},
            "gap": {"gap": common_pb2.OutputGap(stream=number, dropped_bytes=number, dropped_events=number)},
            "result": {"result": common_pb2.Result(parts=[common_pb2.MimePart(mime_type="text/plain", data=data)])},
            "error": {"error": common_pb2.ExecutionError(name=str(number))},
            "started": {"started": common_pb2.ExecutionStarted(execution_id="e")},
            "finished": {"finished": common_pb2.ExecutionFinished(outcome=number, blame=number)},
            "none": {},
        }[kind],
    ),
    st.integers(0, 8),
    st.sampled_from(["output", "gap", "result", "error", "started", "finished", "none"]),
    st.integers(0, 9),
    st.binary(max_size=20),
)


@given(st.lists(events, max_size=8))
def test_any_events_are_taken_or_refused_as_a_breach_of_the_protocol(stream: list[common_pb2.ExecutionEvent]) -> None:
    collector = EventCollector("e", output_limit=8)
    for event in stream:
        try:
            collector.feed(event)
        except ProtocolError:
            collector.lose("Broken", "", ())
            break
    assert collector.ending is None or collector.ending.outcome in Outcome


@given(st.binary(max_size=200), st.integers(1, 7))
def test_text_does_not_depend_on_where_chunks_are_cut(data: bytes, size: int) -> None:
    whole, cut = begun(), begun(keep_bytes=True)
    whole.feed(chunk(2, data))
    for number, start in enumerate(range(0, len(data), size), start=2):
        cut.feed(chunk(number, data[start : start + size]))
    for collector in (whole, cut):
        collector.lose("Done", "", ())
    assert whole.outputs[Stream.STDOUT].text == cut.outputs[Stream.STDOUT].text == data.decode("utf-8", "replace")
    assert cut.outputs[Stream.STDOUT].data == data


def test_output_above_the_limit_is_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "_OUTPUT_SLACK", 0)
    collector = begun(output_limit=10, keep_bytes=True)
    for number in range(2, 102):
        collector.feed(chunk(number, b"abcd"))
    stdout = collector.outputs[Stream.STDOUT]
    assert stdout.data == b"abcdabcdab"
    assert collector.gaps == (Gap(Stream.STDOUT, 10, 390),)


def test_results_above_the_bound_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "_RESULTS_BOUND", 5)
    monkeypatch.setattr(collect, "_RESULTS_COUNT", 3)
    collector = begun()
    for number in range(2, 12):
        part = common_pb2.MimePart(mime_type="text/plain", data=b"abcd")
        collector.feed(Event(sequence=number, result=common_pb2.Result(parts=[part])))
    assert [len(result.parts) for result in collector.results] == [1, 0, 0]
    assert collector.results[1].dropped_bytes == 4


def test_gaps_without_end_become_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "_GAPS_COUNT", 2)
    collector = begun()
    missing = common_pb2.OutputGap(stream=common_pb2.STREAM_STDOUT, dropped_bytes=5)
    for number in range(2, 22, 2):
        collector.feed(chunk(number, b"x"))
        collector.feed(Event(sequence=number + 1, gap=missing))
    assert collector.gaps == (Gap(Stream.STDOUT, 1, 5), Gap(Stream.STDOUT, 2, 45))


def test_events_that_fell_out_of_the_ring_leave_room_in_the_numbers() -> None:
    collector = begun()
    missing = common_pb2.OutputGap(dropped_bytes=7, dropped_events=10)
    assert collector.feed(Event(sequence=12, gap=missing)) == (CommandOutput(Stream.STDOUT, "", b"", dropped_bytes=7),)
    collector.feed(chunk(13, b"x"))
    with pytest.raises(ProtocolError, match="event 15 after event 13"):
        collector.feed(chunk(15, b"x"))


def test_nothing_comes_after_the_end() -> None:
    collector = begun()
    collector.feed(Event(sequence=2, finished=common_pb2.ExecutionFinished(outcome=common_pb2.OUTCOME_OK)))
    with pytest.raises(ProtocolError):
        collector.feed(chunk(3, b"x"))
