"""OpenTelemetry spans of the fleet. Without an SDK in the process they do nothing and pass the caller's context on."""

import time
from collections.abc import Callable

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from sandfleet_operator.api.values import Sandbox

_PROPAGATOR = TraceContextTextMapPropagator()
_TRACER = trace.get_tracer("sandfleet.fleet")


class ClaimSpan:
    """From the arrival of a claim to its answer, with a span for each phase: waits, starts, binds.

    `clock` gives seconds since the epoch.
    """

    def __init__(
        self, traceparent: str, request_id: str, template: str, clock: Callable[[], float] = time.time
    ) -> None:
        parent = _PROPAGATOR.extract({"traceparent": traceparent})
        attributes = {
            "rpc.system.name": "grpc",
            "rpc.method": "sandfleet_api.fleet.v1.FleetService/Claim",
            "sandfleet.request.id": request_id[:128],
            "sandfleet.template": template[:128],
        }
        self._clock = clock
        # When the claim was bound: the answer goes out then, and the call ends a little later.
        self._bound: float | None = None
        self._began = clock()
        name = "sandfleet_api.fleet.v1.FleetService/Claim"
        self._span: Span = _TRACER.start_span(name, parent, SpanKind.SERVER, attributes, start_time=_ns(self._began))

    @property
    def traceparent(self) -> str:
        """The trace context for calls made for this claim; empty if there is no trace."""
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, trace.set_span_in_context(self._span))
        return carrier.get("traceparent", "")

    @property
    def seconds(self) -> float:
        """Since the claim arrived."""
        return self._clock() - self._began

    @property
    def is_bound(self) -> bool:
        return self._bound is not None

    def queued(self, position: int, reason: str) -> None:
        self._span.add_event("queued", {"sandfleet.queue.position": position, "sandfleet.queue.reason": reason})

    def bound(self, sandbox: Sandbox) -> None:
        """The claim has its sandbox: what came before it is told by the sandbox's own times."""
        self._bound = self._clock()
        self._span.set_attributes(
            {
                "sandfleet.sandbox.id": sandbox.sandbox_id,
                "sandfleet.claim.warm": sandbox.warm,
                "sandfleet.pool": sandbox.pool,
                "k8s.pod.uid": sandbox.sandbox_uid,
            }
        )
        for name, start, end in phases(self._began, self._bound, sandbox):
            below = _TRACER.start_span(name, trace.set_span_in_context(self._span), start_time=_ns(start))
            below.end(_ns(end))

    def failed(self, reason: str, message: str) -> None:
        self._span.set_attribute("error.type", reason)
        self._span.set_status(Status(StatusCode.ERROR, message))

    def end(self) -> None:
        self._span.end(_ns(self._clock() if self._bound is None else self._bound))


def phases(began: float, now: float, sandbox: Sandbox) -> list[tuple[str, float, float]]:
    """Name, start and end of what a claim went through until `now`; in order, without gaps, inside the claim.

    A warm sandbox is only bound. A cold one is waited for until its place is free, started, and bound.
    """
    if sandbox.warm:
        marks = [("bind", began)]
    else:
        ready = now if sandbox.ready is None else sandbox.ready
        marks = [("wait", began), ("start", sandbox.started), ("bind", ready)]
    times = [min(max(began, start), now) for _, start in marks]
    ends = [*times[1:], now]
    return [(name, start, max(start, end)) for (name, _), start, end in zip(marks, times, ends, strict=True)]


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
