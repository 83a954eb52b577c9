"""Spans as OTLP's bytes: the same messages as the SDK writes."""

from google.protobuf.json_format import MessageToDict
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.span import TraceState
from sandfleet.observe.spans.encode import request_of

RESOURCES = (Resource({"service.name": "a"}), Resource({"service.name": "b", "n": 1}, "https://schema"))
SCOPES = (InstrumentationScope("s"), InstrumentationScope("t", "1", "https://other"))

numbers = st.integers(-(2**63), 2**63 - 1)
texts = st.text(max_size=300)
plain = st.one_of(texts, numbers, st.booleans(), st.floats(allow_nan=False))
values = st.one_of(plain, plain, plain, st.lists(texts, max_size=3))
attributes = st.dictionaries(texts, values, max_size=20)
contexts = st.builds(
    SpanContext,
    st.integers(1, 2**128 - 1),
    st.integers(1, 2**64 - 1),
    st.booleans(),
    st.just(TraceFlags(1)),
    st.sampled_from([None, None, TraceState([("k", "v")])]),
)
times = st.integers(0, 2**64 - 1)
statuses = st.one_of(
    st.sampled_from([Status(StatusCode.UNSET), Status(StatusCode.OK)]), texts.map(lambda text: Status(StatusCode.ERROR, text))
)
made = st.builds(
    ReadableSpan,
    name=texts,
    context=contexts,
    parent=st.none() | contexts,
    resource=st.sampled_from(RESOURCES),
    attributes=attributes,
    events=st.lists(st.builds(Event, texts, attributes, times), max_size=1),
    links=st.lists(st.builds(Link, contexts, attributes), max_size=1),
    kind=st.sampled_from(list(SpanKind)),
    status=statuses,
    start_time=times,
    end_time=times,
    instrumentation_scope=st.sampled_from(SCOPES),
)


def flat(request):
    """Each span with its resource and its scope, in any order."""
    return sorted(
        repr(MessageToDict(each))
        for group in request.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
        for each in [_alone(group, scope, span)]
    )


def _alone(group, scope, span):
    one = type(group)(resource=group.resource, schema_url=group.schema_url)
    one.scope_spans.add(scope=scope.scope, schema_url=scope.schema_url).spans.append(span)
    return one


@settings(max_examples=150, deadline=None)
@given(st.lists(made, max_size=12))
def test_the_bytes_are_those_of_the_sdk(spans):
    ours = ExportTraceServiceRequest.FromString(request_of(spans))
    assert flat(ours) == flat(encode_spans(spans))
