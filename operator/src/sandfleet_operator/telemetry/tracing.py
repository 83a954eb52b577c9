"""OpenTelemetry spans of the fleet. Without an SDK in the process they do nothing and pass the caller's context on."""

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_PROPAGATOR = TraceContextTextMapPropagator()
_TRACER = trace.get_tracer("sandfleet.fleet")


class ClaimSpan:
    """From the arrival of a claim to its answer."""

    def __init__(self, traceparent: str, request_id: str, template: str) -> None:
        parent = _PROPAGATOR.extract({"traceparent": traceparent})
        attributes = {
            "rpc.system.name": "grpc",
            "rpc.method": "sandfleet_api.fleet.v1.FleetService/Claim",
            "sandfleet.request.id": request_id,
            "sandfleet.template": template,
        }
        self._span: Span = _TRACER.start_span(
            "sandfleet_api.fleet.v1.FleetService/Claim", parent, SpanKind.SERVER, attributes
        )

    @property
    def traceparent(self) -> str:
        """The trace context for calls made for this claim; empty if there is no trace."""
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, trace.set_span_in_context(self._span))
        return carrier.get("traceparent", "")

    def queued(self, position: int, reason: str) -> None:
        self._span.add_event("queued", {"sandfleet.queue.position": position, "sandfleet.queue.reason": reason})

    def bound(self, sandbox_id: str, *, warm: bool) -> None:
        self._span.set_attributes({"sandfleet.sandbox.id": sandbox_id, "sandfleet.claim.warm": warm})

    def failed(self, reason: str, message: str) -> None:
        self._span.set_attribute("error.type", reason)
        self._span.set_status(Status(StatusCode.ERROR, message))

    def end(self) -> None:
        self._span.end()
