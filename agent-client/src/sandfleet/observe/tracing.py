"""OpenTelemetry: a span around each call, and the executor's own spans in the same trace.

Nothing here imports OpenTelemetry unless the program has done so, or its environment asks for it: otherwise there are
no spans. Code, output and paths go into attributes only where the environment asks for them (`contents`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sandfleet.observe import contents, executor_spans, provider

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext
    from sandfleet_api.executor.v1.common_pb2 import Span

    from sandfleet.values.execution import CommandResult, Execution

_REMOTE = {"rpc.system.name", "server.address"}
_CALL_ID = "gen_ai.tool.call.id"
# The spans of executions that are open in this process.
_running: dict[str, SpanContext] = {}


class Recorder:
    """The span of one call; does nothing without OpenTelemetry."""

    def __init__(self, span: Any = None, tracer: Any = None) -> None:
        self._span = span
        self._tracer = tracer

    def set(self, name: str, value: str | float) -> None:
        """Set an attribute."""
        if self._span is not None:
            self._span.set_attribute(name, value)

    def tell(self, name: str, text: str) -> None:
        """Set an attribute that is content: only where the environment asks for contents."""
        if self._span is not None and text and contents.captured():
            self._span.set_attribute(name, contents.cut(text))

    def fail(self, kind: str) -> None:
        """Record a failure of the platform; a failure of the code is none of the call."""
        if self._span is not None:
            from opentelemetry.trace import Status, StatusCode

            self._span.set_attribute("error.type", kind)
            self._span.set_status(Status(StatusCode.ERROR, kind))

    def conclude(self, asked: str, result: Execution | CommandResult, spans: Sequence[Span]) -> None:
        """Record how an execution of `asked` ended, and export the executor's spans of it."""
        if self._span is None:
            return
        self._span.set_attributes(contents.numbers(result))
        if contents.captured():
            self._span.set_attributes(contents.texts(asked, result))
        if result.outcome.value == "lost":
            self.fail(result.reason)
        if len(spans) > executor_spans.MAX_SPANS:
            self._span.set_attribute("sandfleet.spans.dropped", len(spans) - executor_spans.MAX_SPANS)
        # A tracer without processors is none of the SDK, which need not be installed.
        if spans and hasattr(self._tracer, "span_processor"):
            from sandfleet.observe import late_spans

            late_spans.hand_over(self._span, self._tracer, spans, time.time_ns())


_SILENT = Recorder()


@contextmanager
def call(name: str, attributes: Mapping[str, str], parent: SpanContext | None = None) -> Iterator[Recorder]:
    """Open a span for the body, below the current one or `parent`: a client span if the attributes name a remote call.

    The span of an execution is known by its id as long as it is open: see `host_tool`.
    """
    tracer = provider.tracer()
    if tracer is None:
        yield _SILENT
        return
    # Whatever made the tracer has imported both.
    trace: Any = sys.modules["opentelemetry.trace"]
    context: Any = sys.modules["opentelemetry.context"]
    above = None if parent is None else trace.set_span_in_context(trace.NonRecordingSpan(parent))
    remote = not _REMOTE.isdisjoint(attributes)
    kind = trace.SpanKind.CLIENT if remote else trace.SpanKind.INTERNAL
    # `start_as_current_span` does the same in three generators, which costs half as much again.
    span = tracer.start_span(name, above, kind, attributes, record_exception=False, set_status_on_exception=False)
    token = context.attach(trace.set_span_in_context(span))
    recorder = Recorder(span, tracer)
    execution_id = attributes.get(_CALL_ID, "")
    if execution_id:
        _running[execution_id] = span.get_span_context()
    try:
        yield recorder
    except BaseException as error:  # Cancelled and interrupted calls are failed ones in a trace.
        recorder.fail(type(error).__qualname__)
        raise
    finally:
        _running.pop(execution_id, None)
        context.detach(token)
        span.end()


def host_tool(name: str, execution_id: str) -> AbstractContextManager[Recorder]:
    """Open a span for a tool of this process that code in a sandbox has called, below the span of the execution."""
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.type": "function",
        "sandfleet.execution.id": execution_id,
    }
    return call(f"execute_tool {name}", attributes, _running.get(execution_id))


@contextmanager
def apart() -> Iterator[None]:
    """Let tasks and timers that the body begins belong to no span: they outlive the one that is open."""
    context: Any = sys.modules.get("opentelemetry.context")
    if context is None or not hasattr(context, "attach"):
        yield
        return
    token = context.attach(context.Context())
    try:
        yield
    finally:
        context.detach(token)


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
    return f"{service}/{method}", {"rpc.system.name": "grpc", "rpc.method": f"{service}/{method}"}


def tool(name: str, execution_id: str, sandbox_id: str, sandbox_uid: str) -> tuple[str, dict[str, str]]:
    """Name and attributes of the span of an execution, which is a tool call of an agent."""
    return f"execute_tool {name}", {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.type": "function",
        _CALL_ID: execution_id,
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
