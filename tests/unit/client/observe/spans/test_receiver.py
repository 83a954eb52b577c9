"""The receiver of spans: OpenTelemetry's own exporter sends to it, and so does who means it harm."""

import gzip
import http.client
import stat
from contextlib import closing

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import Link, Status, StatusCode
from sandfleet.errors import InvalidArgument
from sandfleet.observe.spans import receiver
from sandfleet.observe.spans.receiver import Receiver
from sandfleet.observe.spans.store import SpanStore, newest, read

pytestmark = pytest.mark.process


@pytest.fixture
def path(tmp_path):
    return tmp_path / "kept" / "traces.db"


@pytest.fixture
def store(path):
    with closing(SpanStore.open(path, most=100)) as opened:
        yield opened


@pytest.fixture
def receiving(store):
    with Receiver(store, 0) as opened:
        yield opened


@pytest.fixture
def tracer(receiving):
    provider = TracerProvider(resource=Resource({"service.name": "agent"}))
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{receiving.endpoint}/v1/traces")))
    yield provider.get_tracer("test")
    provider.shutdown()


def post(receiving, body, path="/v1/traces", **headers):
    sent = {"Content-Type": "application/x-protobuf"} | {name.replace("_", "-"): text for name, text in headers.items()}
    with closing(http.client.HTTPConnection(receiving.endpoint.removeprefix("http://"), timeout=10)) as connection:
        connection.request("POST", path, body, sent)
        return connection.getresponse().status


def test_spans_come_back_as_they_were_sent(tracer, path):
    with tracer.start_as_current_span("invoke_agent", attributes={"sandfleet.run.id": "r1", "n": 3, "f": 0.5}) as root:
        link = Link(root.get_span_context())
        with tracer.start_as_current_span("step", links=[link]) as step:
            step.add_event("queued", {"position": 2})
            step.set_status(Status(StatusCode.ERROR, "it broke"))
    agent, step = read(path, "r1")
    assert (agent.name, agent.parent_id, agent.service) == ("invoke_agent", "", "agent")
    assert agent.attributes == {"sandfleet.run.id": "r1", "n": 3, "f": 0.5}
    assert (step.parent_id, step.error, step.links) == (
        agent.span_id,
        "it broke",
        (f"{agent.trace_id}:{agent.span_id}",),
    )
    assert [(event.name, event.attributes) for event in step.events] == [("queued", {"position": 2})]
    assert agent.start <= step.start <= step.events[0].time <= step.end <= agent.end
    assert read(path, agent.trace_id) == [agent, step]
    assert read(path, "another") == []
    assert [(kind, name) for kind, name, _ in newest(path, 5)] == [("sandfleet.run.id", "r1")]


def test_the_file_can_be_read_by_its_owner_alone(store, path):
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_is_no_export_is_refused_and_the_next_is_taken(tracer, receiving, store):
    bomb = gzip.compress(b"\0" * (receiver.MAX_UNPACKED + 1))
    refused = [
        (post(receiving, b"nonsense"), 400),
        (post(receiving, b"no gzip", Content_Encoding="gzip"), 400),
        (post(receiving, bomb, Content_Encoding="gzip"), 413),
        (post(receiving, b"", Content_Length=str(receiver.MAX_BODY + 1)), 413),
        (post(receiving, b"", Content_Length="-1"), 413),
        # What a page in a browser can send without asking.
        (post(receiving, b"", Content_Type="text/plain"), 415),
    ]
    assert [found for found, _ in refused] == [expected for _, expected in refused]
    assert receiving.refused == len(refused)
    assert post(receiving, b"", "/elsewhere") == 404
    # A fleet that exports its metrics too finds nothing to complain about.
    assert post(receiving, b"", "/v1/metrics") == post(receiving, b"", "/v1/logs") == 200
    with tracer.start_as_current_span("after"):
        pass
    assert (store.count(), receiving.received) == (1, 1)


def test_spans_with_wrong_ids_are_left_out_and_huge_ones_are_cut(receiving, path):
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    spans.add(trace_id=b"\1", span_id=b"\1" * 8, name="short")
    huge = spans.add(trace_id=b"\1" * 16, span_id=b"\1" * 8, name="x" * 10_000, start_time_unix_nano=2**64 - 1)
    for number in range(1_000):
        huge.attributes.add(key=f"k{number}").value.string_value = "y" * 100_000 if number < 3 else "z"
        huge.events.add(name="e")
    assert post(receiving, gzip.compress(request.SerializeToString()), Content_Encoding="gzip") == 200
    (kept,) = read(path, ("01" * 16))
    assert (len(kept.name), len(kept.attributes), len(kept.events)) == (256, 128, 64)
    assert max(len(text) for text in kept.attributes.values()) == 16_384
    assert kept.end == kept.start


def test_the_oldest_spans_go_first(tracer, store):
    for number in range(250):
        with tracer.start_as_current_span(f"s{number}", attributes={"sandfleet.run.id": f"r{number}"}):
            pass
    assert store.count() < 200
    names = {name for name, _ in store.newest("sandfleet.run.id", 1_000)}
    assert "r249" in names
    assert "r0" not in names


def test_a_span_that_is_sent_twice_is_kept_once(store, tracer, path):
    with tracer.start_as_current_span("once", attributes={"sandfleet.run.id": "r"}):
        pass
    (span,) = read(path, "r")
    store.add([span, span])
    assert store.count() == 1


def test_a_place_that_cannot_be_written_is_said_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidArgument, match="cannot keep spans"):
        SpanStore.open(tmp_path / "file" / "traces.db")
    with pytest.raises(InvalidArgument, match="does not exist"):
        read(tmp_path / "nowhere.db", "x")
    (tmp_path / "damaged.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 5_000)
    with pytest.raises(InvalidArgument, match="cannot read spans"):
        read(tmp_path / "damaged.db", "x")
