"""OTLP's messages and the lines of a span file as records. What is wrong in them costs the span, never the receiver."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any

from sandfleet.observe.spans.record import SpanEvent, SpanRecord

MAX_ATTRIBUTES, MAX_EVENTS, MAX_LINKS = 128, 64, 16
MAX_NAME, MAX_TEXT = 256, 16_384
_FAILED = 2


def spans_of(body: bytes) -> list[SpanRecord]:
    """The spans of an ExportTraceServiceRequest. Raises ValueError for what is none, ImportError without the SDK."""
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    try:
        request = ExportTraceServiceRequest.FromString(body)
    except DecodeError as error:
        raise ValueError(f"cannot read the spans: {error}") from error
    return [
        _span(span, service)
        for resource in request.resource_spans
        for service in [_service(resource.resource.attributes)]
        for scope in resource.scope_spans
        for span in scope.spans
        if len(span.trace_id) == 16 and len(span.span_id) == 8
    ]


def _service(attributes: Iterable[Any]) -> str:
    return next((pair.value.string_value[:MAX_NAME] for pair in attributes if pair.key == "service.name"), "")


def _span(span: Any, service: str) -> SpanRecord:
    failed = span.status.code == _FAILED
    events = islice(span.events, MAX_EVENTS)
    return SpanRecord(
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        name=span.name[:MAX_NAME],
        service=service,
        start=_time(span.start_time_unix_nano),
        end=max(_time(span.start_time_unix_nano), _time(span.end_time_unix_nano)),
        attributes=dict(_attributes(span.attributes)),
        events=tuple(
            SpanEvent(
                name=event.name[:MAX_NAME],
                time=_time(event.time_unix_nano),
                attributes=dict(_attributes(event.attributes)),
            )
            for event in events
        ),
        links=tuple(f"{link.trace_id.hex()}:{link.span_id.hex()}" for link in islice(span.links, MAX_LINKS)),
        error=(span.status.message[:MAX_TEXT] or "error") if failed else "",
    )


def _time(nanoseconds: int) -> int:
    # What SQLite can hold.
    return min(nanoseconds, 2**63 - 1)


def _attributes(pairs: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    for pair in islice(pairs, MAX_ATTRIBUTES):
        value = pair.value
        kind = value.WhichOneof("value")
        if kind == "string_value":
            yield pair.key[:MAX_NAME], value.string_value[:MAX_TEXT]
        elif kind in {"int_value", "double_value", "bool_value"}:
            yield pair.key[:MAX_NAME], getattr(value, kind)
        elif kind == "array_value":
            yield pair.key[:MAX_NAME], [one.string_value[:MAX_NAME] for one in islice(value.array_value.values, 64)]


def span_of_line(line: str) -> SpanRecord | None:
    """The span of one line of a file that `write_spans_to` has written; None for what is none."""
    try:
        said = json.loads(line)
        context = said["context"]
        status = said.get("status", {})
        failed = status.get("status_code") == "ERROR"
        return SpanRecord(
            trace_id=_hex(context["trace_id"], 32),
            span_id=_hex(context["span_id"], 16),
            parent_id=_hex(said["parent_id"], 16) if said.get("parent_id") else "",
            name=str(said["name"])[:MAX_NAME],
            service=str(said.get("resource", {}).get("attributes", {}).get("service.name", ""))[:MAX_NAME],
            start=_moment(said["start_time"]),
            end=_moment(said["end_time"]),
            attributes=_plain(said.get("attributes")),
            events=tuple(
                SpanEvent(
                    name=str(one["name"])[:MAX_NAME],
                    time=_moment(one["timestamp"]),
                    attributes=_plain(one.get("attributes")),
                )
                for one in (said.get("events") or [])[:MAX_EVENTS]
            ),
            error=str(status.get("description") or "error")[:MAX_TEXT] if failed else "",
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _hex(text: str, length: int) -> str:
    digits = text.removeprefix("0x")
    return f"{int(digits, 16):0{length}x}"[-length:]


def _moment(text: str) -> int:
    moment = datetime.fromisoformat(text)
    return int(moment.timestamp()) * 10**9 + moment.microsecond * 1000


def _plain(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        str(key)[:MAX_NAME]: value[:MAX_TEXT] if isinstance(value, str) else value
        for key, value in list((attributes or {}).items())[:MAX_ATTRIBUTES]
    }
