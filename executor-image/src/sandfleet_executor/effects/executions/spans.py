"""The executor's own spans. It has no egress: they go back in the stream and the client exports them."""

import os
import time
from collections.abc import Mapping

from sandfleet_executor.core.executions.events import Span
from sandfleet_executor.core.executions.outcomes import Verdict
from sandfleet_executor.core.executions.tracing import TraceParent


class Trace:
    """One span below the caller's, from now on. Without a caller's span there is none."""

    def __init__(self, parent: TraceParent | None) -> None:
        self._parent = parent
        self._own = TraceParent(parent.trace_id, os.urandom(8), parent.flags) if parent else None
        self._start = time.time_ns()

    def environment(self) -> dict[str, str]:
        """What tells the code of the span that it runs in."""
        return {"TRACEPARENT": str(self._own)} if self._own else {}

    def finish(self, name: str, verdict: Verdict, attributes: Mapping[str, str]) -> tuple[Span, ...]:
        if not (self._parent and self._own):
            return ()
        span = Span(
            name=name,
            trace_id=self._own.trace_id,
            span_id=self._own.span_id,
            parent_span_id=self._parent.span_id,
            start=self._start,
            end=time.time_ns(),
            attributes={**attributes, "sandfleet.outcome": verdict.outcome},
            error="" if verdict.outcome == "ok" else verdict.reason,
        )
        return (span,)
