"""The spans of claims."""

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NoOpTracer
from sandfleet_operator.telemetry import tracing as telemetry

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_claims_span_continues_the_callers_trace_and_is_the_parent_of_the_executors(monkeypatch):
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(telemetry, "_TRACER", provider.get_tracer("test"))
    span = telemetry.ClaimSpan(TRACEPARENT, "r1", "python")
    onward = span.traceparent
    span.queued(2, "PoolEmpty")
    span.failed("SandboxLimit", "cannot claim: the limit of sandboxes is reached")
    span.end()
    (ended,) = exporter.get_finished_spans()
    version, trace, parent, flags = TRACEPARENT.split("-")
    assert f"{ended.parent.span_id:016x}" == parent
    assert onward == f"{version}-{trace}-{ended.context.span_id:016x}-{flags}"
    assert ended.attributes["error.type"] == "SandboxLimit"
    assert [event.name for event in ended.events] == ["queued"]


def test_without_an_sdk_the_callers_trace_is_passed_on_unchanged(monkeypatch):
    # Other tests give the whole process a provider.
    monkeypatch.setattr(telemetry, "_TRACER", NoOpTracer())
    span = telemetry.ClaimSpan(TRACEPARENT, "r1", "python")
    assert span.traceparent == TRACEPARENT
    assert telemetry.ClaimSpan("", "r1", "python").traceparent == ""
