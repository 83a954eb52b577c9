"""The executor's spans wait as bytes until a processor looks at them, and what is large does not wait."""

import threading

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from sandfleet.observe import executor_spans, late_spans
from sandfleet_api.executor.v1.common_pb2 import Span

MANY = 4


@pytest.fixture
def placed(monkeypatch):
    """How many spans were placed, call by call."""
    counts = []

    def place(spans, call):
        counts.append(len(spans))
        return original(spans, call)

    original = executor_spans.place
    monkeypatch.setattr(executor_spans, "place", place)
    return counts


def handed_over(*fields):
    """The spans that an exporter is given for a call whose executor says these."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    call = tracer.start_span("call")
    own = call.get_span_context()
    ids = {"trace_id": own.trace_id.to_bytes(16, "big"), "parent_span_id": own.span_id.to_bytes(8, "big")}
    said = [Span(**ids, span_id=number.to_bytes(8, "big"), **each) for number, each in enumerate(fields, 1)]
    late_spans.hand_over(call, tracer, said, call.start_time + 1_000)
    return own, exporter.get_finished_spans()


def test_they_are_made_once_and_only_when_one_is_looked_at(placed):
    own, found = handed_over({"name": "a", "error": "boom"}, {"name": "b", "attributes": {"sandfleet.x": "1"}})
    assert [span.context.span_id for span in found] == [1, 2]
    assert placed == []
    assert [span.name for span in found] == ["a", "b"]
    assert found[1].attributes["sandfleet.x"] == "1"
    assert (found[0].parent, found[0].status.description) == (own, "boom")
    assert placed == [2]
    assert not hasattr(found[0], "nothing")


def test_what_is_large_is_made_at_once_and_becomes_small(placed):
    _, (span,) = handed_over({"name": "x" * 1_000_000, "attributes": {"sandfleet.x": "y" * 1_000_000}})
    assert placed == [1]
    assert len(span.name) == executor_spans.MAX_NAME
    assert len(span.to_json()) < 4_000


def test_threads_that_look_at_once_see_the_same():
    for _ in range(20):
        _, (span,) = handed_over({"name": "a"})
        barrier, seen = threading.Barrier(MANY), []

        def look(span=span, barrier=barrier, seen=seen):
            barrier.wait()
            seen.append((span.name, span.start_time, span.resource.attributes["service.name"]))

        threads = [threading.Thread(target=look) for _ in range(MANY)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(seen) == MANY
        assert len(set(seen)) == 1
