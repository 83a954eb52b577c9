"""OpenTelemetry spans of fleet and operator.

Without an SDK in the process they do nothing and pass the caller's context on.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from sandfleet_operator.api.values import Sandbox

_PROPAGATOR = TraceContextTextMapPropagator()
_TRACER = trace.get_tracer("sandfleet.fleet")
_OPERATOR = trace.get_tracer("sandfleet.operator")


class Snapshot(Protocol):
    """A snapshot as the API tells it."""

    @property
    def snapshot_id(self) -> str: ...
    @property
    def bytes(self) -> int: ...
    @property
    def stored_bytes(self) -> int: ...


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

    def bound(self, sandbox: Sandbox, marks: Iterable[tuple[str, float]] = ()) -> None:
        """The claim has its sandbox: what came before it is told by the sandbox's own times.

        `marks`: what its pod came to and when, in seconds since the epoch.
        """
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
            for part, first, last in pod_phases(start, end, marks) if name == "start" else ():
                one = _TRACER.start_span(part, trace.set_span_in_context(below), start_time=_ns(first))
                one.end(_ns(last))
            below.end(_ns(end))

    def failed(self, reason: str, message: str) -> None:
        self._span.set_attribute("error.type", reason)
        self._span.set_status(Status(StatusCode.ERROR, message))

    def end(self) -> None:
        self._span.end(_ns(self._clock() if self._bound is None else self._bound))


class SnapshotSpan:
    """Of a snapshot that is saved, or restored."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def told(self, snapshot: Snapshot) -> None:
        """What is known of it by now; none has no id."""
        if snapshot.snapshot_id:
            sizes = {
                "sandfleet.snapshot.bytes": snapshot.bytes,
                "sandfleet.snapshot.stored_bytes": snapshot.stored_bytes,
            }
            self._span.set_attributes({"sandfleet.snapshot.id": snapshot.snapshot_id, **sizes})


@contextmanager
def snapshot(name: str, traceparent: str, sandbox_id: str) -> Iterator[SnapshotSpan]:
    """`save` or `restore`, below the call of the client."""
    parent = _PROPAGATOR.extract({"traceparent": traceparent})
    span = _TRACER.start_span(name, parent, SpanKind.SERVER, {"sandfleet.sandbox.id": sandbox_id[:128]})
    try:
        yield SnapshotSpan(span)
    except BaseException as error:  # A call that is refused, or left, has failed.
        span.set_attribute("error.type", type(error).__qualname__)
        span.set_status(Status(StatusCode.ERROR, type(error).__qualname__))
        raise
    finally:
        span.end()


@contextmanager
def reconcile(namespace: str, name: str, traceparent: str) -> Iterator[None]:
    """A round of the operator for a sandbox whose object names a trace, which is linked: the round is no part of it.

    The annotation is the owner's word. One that is no trace context, or of a trace that is not sampled, makes no span.
    """
    linked = trace.get_current_span(_PROPAGATOR.extract({"traceparent": traceparent})).get_span_context()
    if not (linked.is_valid and linked.trace_flags.sampled):
        yield
        return
    attributes = {"k8s.namespace.name": namespace, "sandfleet.sandbox.id": f"{namespace}/{name}"}
    with _OPERATOR.start_as_current_span(
        "reconcile sandbox",
        Context(),
        attributes=attributes,
        links=[Link(linked)],
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield
        except Exception as error:
            # Its message may name what the owner wrote.
            span.set_attribute("error.type", type(error).__qualname__)
            span.set_status(Status(StatusCode.ERROR, type(error).__qualname__))
            raise


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


# What a pod comes to, and the phase that ends with it: a node, an image and a container, a process that listens.
_POD_PHASES = {"scheduled": "schedule", "started": "pull", "ready": "boot"}


def pod_phases(began: float, end: float, marks: Iterable[tuple[str, float]]) -> list[tuple[str, float, float]]:
    """Name, start and end of what a pod went through while it was started; the last one is the fleet's first contact.

    In order, without gaps, inside the start. Pods tell whole seconds. None where nothing is known of the pod.
    """
    found, since = [], began
    for mark, at in marks:
        if mark in _POD_PHASES:
            until = min(max(since, at), end)
            found.append((_POD_PHASES[mark], since, until))
            since = until
    return [*found, ("greet", since, end)] if found else []


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
