"""The collector takes whatever an executor sends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet._wire import events as collect
from sandfleet._wire import results as shown
from sandfleet._wire.events import EventCollector
from sandfleet.errors import ProtocolError
from sandfleet.values.execution import Cleared, CommandOutput, Gap, Outcome, Result, Stream
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
            "cleared": {"cleared": common_pb2.OutputCleared(wait=number % 2 == 0)},
            "input": {"input": common_pb2.InputRequest(input_id=str(number), settled=number % 2 == 0)},
            "update": {
                "result": common_pb2.Result(
                    parts=[common_pb2.MimePart(mime_type="text/plain", data=data)],
                    display_id=str(number % 3),
                    is_update=number % 2 == 0,
                )
            },
            "none": {},
        }[kind],
    ),
    st.integers(0, 8),
    st.sampled_from(["output", "gap", "result", "cleared", "input", "update", "error", "started", "finished", "none"]),
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
    monkeypatch.setattr(shown, "_BOUND", 5)
    monkeypatch.setattr(shown, "_COUNT", 3)
    collector = begun()
    for number in range(2, 12):
        part = common_pb2.MimePart(mime_type="text/plain", data=b"abcd")
        collector.feed(Event(sequence=number, result=common_pb2.Result(parts=[part])))
    assert [len(result.parts) for result in collector.results.shown] == [1, 0, 0]
    assert collector.results.shown[1].dropped_bytes == 4


def result(sequence: int, data: bytes, display_id: str = "", *, update: bool = False) -> common_pb2.ExecutionEvent:
    part = common_pb2.MimePart(mime_type="text/plain", data=data)
    shown = common_pb2.Result(parts=[part], display_id=display_id, is_update=update)
    return Event(sequence=sequence, result=shown)


def cleared(sequence: int, *, wait: bool) -> common_pb2.ExecutionEvent:
    return Event(sequence=sequence, cleared=common_pb2.OutputCleared(wait=wait))


def test_an_update_replaces_all_results_of_its_id_and_is_told_as_one() -> None:
    collector = begun()
    for event in (result(2, b"a", "x"), result(3, b"b"), result(4, b"c", "x")):
        collector.feed(event)
    [told] = collector.feed(result(5, b"new", "x", update=True))
    assert isinstance(told, Result)
    assert (told.text, told.is_update) == ("new", True)
    assert [(each.text, each.is_update) for each in collector.results.shown] == [
        ("new", False),
        ("b", False),
        ("new", False),
    ]


def test_an_update_of_what_an_earlier_execution_showed_is_a_result_that_later_ones_replace() -> None:
    collector = begun()
    for number in range(2, 9):
        collector.feed(result(number, str(number).encode(), "x", update=True))
    assert [(each.text, each.is_update) for each in collector.results.shown] == [("8", True)]


@pytest.mark.parametrize("wait", [False, True])
def test_a_clearing_forgets_results_and_output_at_once_or_with_what_comes_next(wait: bool) -> None:
    collector = begun(keep_bytes=True)
    for event in (chunk(2, "é".encode()), result(3, b"a", "x")):
        collector.feed(event)
    assert collector.feed(cleared(4, wait=wait)) == (Cleared(wait),)
    stdout = collector.outputs[Stream.STDOUT]
    before = ("é", 1) if wait else ("", 0)
    assert (stdout.text, len(collector.results.shown)) == before
    collector.feed(result(5, b"b", "x", update=True))
    collector.feed(chunk(6, b"c"))
    # The id is new after a clearing.
    assert [(each.text, each.is_update) for each in collector.results.shown] == [("b", True)]
    assert (stdout.text, stdout.data) == ("c", b"c")


@given(st.lists(st.tuples(st.integers(0, 6), st.sampled_from("abc"), st.booleans()), max_size=60))
def test_results_are_held_within_their_bound_whatever_is_updated(stream: list[tuple[int, str, bool]]) -> None:
    collector, bound = begun(), 10
    collector.results._room = bound
    for number, (size, name, update) in enumerate(stream, 2):
        collector.feed(result(number, b"\xff" * size, name, update=update))
        # A byte that is no UTF-8 is one character here.
        held = {id(each.parts): len(each.text or "") for each in collector.results.shown}
        assert sum(held.values()) <= bound


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
