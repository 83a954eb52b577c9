"""The executor's spans of a call, given to the processors at once and made when one of them is looked at.

A processor that exports in batches looks at them in a thread of its own: the call does not wait for that work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, Status, StatusCode

from sandfleet.observe import executor_spans
from sandfleet.observe.executor_spans import Call, Placed

if TYPE_CHECKING:
    from sandfleet_api.executor.v1.common_pb2 import Span

# The most bytes of one call that wait. What is larger is made at once: it becomes much smaller by that.
MOST_WAITING = 4096
_SCOPE, _FINE = InstrumentationScope("sandfleet.executor"), Status(StatusCode.UNSET)


class _Said:
    """What an executor has said of one call, as bytes: a message would keep the whole answer with it."""

    def __init__(self, spans: Sequence[Span], call: Call) -> None:
        self._call = call
        self._kind = type(spans[0])
        self._data = [span.SerializeToString() for span in spans]
        self._placed: Mapping[int, Placed] | None = None
        if sum(map(len, self._data)) > MOST_WAITING:
            self.placed()

    def placed(self) -> Mapping[int, Placed]:
        """The spans by their ids. Threads that come at once make the same."""
        found = self._placed
        if found is None:
            spans = [self._kind.FromString(data) for data in self._data]
            found = self._placed = {one.span_id: one for one in executor_spans.place(spans, self._call)}
            self._data = []
        return found


class _LateSpan(ReadableSpan):
    """Its context is there from the beginning, since processors ask for it; the rest when it is asked for."""

    def __init__(self, call: SpanContext, span_id: int, said: _Said, resource: Resource) -> None:
        self._call, self._said, self._of = call, said, resource
        self._own = _remote(call, span_id)

    @property
    def context(self) -> SpanContext:
        return self._own

    def get_span_context(self) -> SpanContext:
        return self._own

    def __getattr__(self, name: str) -> Any:
        # Only what is not there is asked for here. Another thread may just have made it.
        known = self.__dict__
        if name not in known and "_said" in known:
            self._make(known["_said"].placed()[self._own.span_id])
            known.pop("_said", None)
        try:
            return known[name]
        except KeyError:
            raise AttributeError(name) from None

    def _make(self, placed: Placed) -> None:
        call = self._call
        super().__init__(
            name=placed.name,
            context=self._own,
            parent=call if placed.parent_id == call.span_id else _remote(call, placed.parent_id),
            resource=self._of,
            attributes=placed.attributes,
            status=Status(StatusCode.ERROR, placed.error) if placed.error else _FINE,
            start_time=placed.start,
            end_time=placed.end,
            instrumentation_scope=_SCOPE,
        )


def hand_over(span: Any, tracer: Any, spans: Sequence[Span], end: int) -> None:
    """Give the executor's spans to the processors of the call's own span. `end`: of the call, as in spans."""
    own: SpanContext = span.get_span_context()
    start = getattr(span, "start_time", None)
    if start is None or not own.is_valid or not own.trace_flags.sampled:
        return
    call = Call(trace_id=own.trace_id, span_id=own.span_id, start=start, end=end)
    taken = executor_spans.taken(spans, call)
    if taken:
        resource, said = _resource(tracer), _Said(list(taken.values()), call)
        for span_id in taken:
            tracer.span_processor.on_end(_LateSpan(own, span_id, said, resource))


def _remote(call: SpanContext, span_id: int) -> SpanContext:
    return SpanContext(call.trace_id, span_id, is_remote=True, trace_flags=call.trace_flags)


@lru_cache(maxsize=4)
def _resource(tracer: Any) -> Resource:
    """The resource of this process, with another name."""
    own: Resource = tracer.resource
    return own.merge(Resource({"service.name": "sandfleet-executor"}))
