"""The spans of claims."""

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NoOpTracer
from sandfleet_operator.telemetry import tracing as telemetry
from support.fleet.builders import a_sandbox

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


def a_tracer(monkeypatch, name):
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(telemetry, name, provider.get_tracer("test"))
    return exporter


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"warm": True, "ready": 90.0}, [("bind", 100, 110)]),
        ({"started": 102.0, "ready": 107.0}, [("wait", 100, 102), ("start", 102, 107), ("bind", 107, 110)]),
        # A start that was under way already.
        ({"started": 95.0, "ready": 107.0}, [("wait", 100, 100), ("start", 100, 107), ("bind", 107, 110)]),
        ({"started": 102.0, "ready": None}, [("wait", 100, 102), ("start", 102, 110), ("bind", 110, 110)]),
    ],
)
def test_the_phases_of_a_claim_fill_it_without_gaps(changes, expected):
    assert telemetry.phases(100.0, 110.0, a_sandbox(**changes)) == expected


def test_a_claim_that_is_bound_has_its_phases_below_it(monkeypatch):
    exporter = a_tracer(monkeypatch, "_TRACER")
    times = iter([100.0, 110.0, 111.0])
    span = telemetry.ClaimSpan(TRACEPARENT, "r1", "python", clock=lambda: next(times))
    span.bound(a_sandbox(started=102.0, ready=107.0))
    span.end()
    *below, claim = exporter.get_finished_spans()
    assert [one.name for one in below] == ["wait", "start", "bind"]
    assert {one.parent.span_id for one in below} == {claim.context.span_id}
    assert claim.start_time <= below[0].start_time and below[-1].end_time <= claim.end_time


def test_a_round_is_linked_to_the_trace_that_its_object_names_and_is_no_part_of_it(monkeypatch):
    exporter = a_tracer(monkeypatch, "_OPERATOR")
    with telemetry.reconcile("team", "one", TRACEPARENT):
        pass
    with pytest.raises(ValueError), telemetry.reconcile("team", "one", TRACEPARENT):
        raise ValueError("a secret of the owner")
    good, bad = exporter.get_finished_spans()
    (link,) = good.links
    assert f"{link.context.trace_id:032x}" == TRACEPARENT.split("-")[1] != f"{good.context.trace_id:032x}"
    assert good.attributes == {"k8s.namespace.name": "team", "sandfleet.sandbox.id": "team/one"}
    assert bad.attributes["error.type"] == "ValueError"
    assert "secret" not in bad.to_json()


@pytest.mark.parametrize("traceparent", ["", "nonsense", TRACEPARENT[:-2] + "00"])
def test_an_object_without_a_sampled_trace_makes_no_span(monkeypatch, traceparent):
    exporter = a_tracer(monkeypatch, "_OPERATOR")
    with telemetry.reconcile("team", "one", traceparent):
        pass
    assert exporter.get_finished_spans() == ()
