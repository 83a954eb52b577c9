"""OpenTelemetry: a span around each call, and the executor's own spans in the same trace.

Nothing here imports OpenTelemetry unless the program has done so: without it there are no spans. Code, output and paths
never go into attributes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanContext
    from sandfleet_api.executor.v1.common_pb2 import Span

_SPANS_LIMIT = 256
_TEXT_LIMIT = 1024
_ATTRIBUTES_LIMIT = 64
_REMOTE = {"rpc.system", "server.address"}


class Recorder:
    """The span of one call; does nothing without OpenTelemetry."""

    def __init__(self, span: Any = None) -> None:
        self._span = span

    def set(self, name: str, value: str | float) -> None:
        """Set an attribute."""
        if self._span is not None:
            self._span.set_attribute(name, value)

    def fail(self, kind: str) -> None:
        """Record a failure of the platform; a failure of the code is none of the call."""
        if self._span is not None:
            from opentelemetry.trace import Status, StatusCode

            self._span.set_attribute("error.type", kind)
            self._span.set_status(Status(StatusCode.ERROR, kind))

    def conclude(self, outcome: str, reason: str, spans: Iterable[Span]) -> None:
        """Record how an execution ended, and export the executor's spans of it."""
        if self._span is None:
            return
        self._span.set_attribute("sandfleet.outcome", outcome)
        if outcome == "lost":
            self.fail(reason)
        _export(self._span.get_span_context(), spans)


_SILENT = Recorder()


@contextmanager
def call(name: str, attributes: Mapping[str, str]) -> Iterator[Recorder]:
    """Open a span for the body: a client span if the attributes name a remote call."""
    trace: Any = sys.modules.get("opentelemetry.trace")
    if trace is None or not hasattr(trace, "get_tracer"):
        yield _SILENT
        return
    tracer = trace.get_tracer("sandfleet")
    remote = not _REMOTE.isdisjoint(attributes)
    kind = trace.SpanKind.CLIENT if remote else trace.SpanKind.INTERNAL
    with tracer.start_as_current_span(
        name, kind=kind, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        recorder = Recorder(span)
        try:
            yield recorder
        except BaseException as error:  # Cancelled and interrupted calls are failed ones in a trace.
            recorder.fail(type(error).__qualname__)
            raise


def event(name: str, attributes: Mapping[str, str]) -> None:
    """Add an event to the current span, if there is one."""
    trace: Any = sys.modules.get("opentelemetry.trace")
    if trace is not None and hasattr(trace, "get_current_span"):
        trace.get_current_span().add_event(name, attributes)


@lru_cache(maxsize=128)
def rpc(descriptor: Any) -> tuple[str, dict[str, str]]:
    """Name and attributes of the span of an RPC, from the descriptor of its request."""
    service = next(iter(descriptor.file.services_by_name.values())).full_name
    method = descriptor.name.removesuffix("Request")
    return f"{service}/{method}", {"rpc.system": "grpc", "rpc.service": service, "rpc.method": method}


def tool(name: str, execution_id: str, sandbox_id: str, sandbox_uid: str) -> tuple[str, dict[str, str]]:
    """Name and attributes of the span of an execution, which is a tool call of an agent."""
    return f"execute_tool {name}", {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": execution_id,
        "k8s.pod.uid": sandbox_uid,
        "sandfleet.sandbox.id": sandbox_id,
    }


def traceparent() -> str | None:
    """Return the current W3C trace context, or None."""
    trace: Any = sys.modules.get("opentelemetry.trace")
    if trace is None or not hasattr(trace, "get_current_span"):
        return None
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def _export(parent: SpanContext, spans: Iterable[Span]) -> None:
    sdk: Any = sys.modules.get("opentelemetry.sdk.trace")
    if sdk is None or not parent.is_valid or not parent.trace_flags.sampled:
        return
    from opentelemetry import trace

    provider = trace.get_tracer_provider()
    if not isinstance(provider, sdk.TracerProvider):
        return
    for message, _ in zip(spans, range(_SPANS_LIMIT), strict=False):
        # A foreign trace id would let an executor write into the traces of others.
        if int.from_bytes(message.trace_id, "big") == parent.trace_id and len(message.span_id) == 8:
            provider._active_span_processor.on_end(_readable(message, parent, provider.resource))  # noqa: SLF001  the SDK has no public way to export a span made elsewhere


def _readable(message: Span, parent: SpanContext, resource: Any) -> ReadableSpan:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode

    def context(span_id: bytes) -> SpanContext:
        return SpanContext(
            parent.trace_id, int.from_bytes(span_id, "big"), is_remote=True, trace_flags=parent.trace_flags
        )

    attributes = {
        key[:_TEXT_LIMIT]: text[:_TEXT_LIMIT] for key, text in list(message.attributes.items())[:_ATTRIBUTES_LIMIT]
    }
    error = message.error[:_TEXT_LIMIT]
    return ReadableSpan(
        name=message.name[:_TEXT_LIMIT],
        context=context(message.span_id),
        parent=context(message.parent_span_id) if len(message.parent_span_id) == 8 else parent,
        resource=resource.merge(Resource({"service.name": "sandfleet-executor"})),
        attributes=attributes,
        kind=SpanKind.INTERNAL,
        status=Status(StatusCode.ERROR, error) if error else Status(StatusCode.UNSET),
        start_time=_nanoseconds(message.start),
        end_time=_nanoseconds(message.end),
    )


def _nanoseconds(moment: Timestamp) -> int:
    # Bounded: the clock of a hostile executor must not break an exporter.
    return max(0, min(moment.seconds, 2**33)) * 10**9 + max(0, min(moment.nanos, 10**9 - 1))


@contextmanager
def write_spans_to(path: str | Path) -> Iterator[None]:
    """Write every span that ends during the body to a file, one JSON object a line. Needs `sandfleet[otel]`.

    Uses the tracer provider of the program, or sets one up where there is none. Raises ImportError without the SDK.
    """
    from opentelemetry import trace
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        provider = TracerProvider(resource=Resource.create({"service.name": "sandfleet"}))
        trace.set_tracer_provider(provider)
    with Path(path).open("a", encoding="utf-8") as out:
        exporter = ConsoleSpanExporter(out=out, formatter=lambda span: span.to_json(indent=None) + "\n")
        processor = SimpleSpanProcessor(exporter)
        provider.add_span_processor(processor)
        try:
            yield
        finally:
            # A provider cannot remove a processor: after its shutdown it still gets spans, and must not write them.
            exporter.formatter = lambda _: ""
            processor.shutdown()
            exporter.out = sys.stderr
