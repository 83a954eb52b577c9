"""Lines of a span file as records. A wrong line costs its span, never the reader."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sandfleet.observe.spans.record import SpanEvent, SpanRecord

MAX_ATTRIBUTES, MAX_EVENTS, MAX_LINKS = 128, 64, 16
MAX_NAME, MAX_TEXT = 256, 16_384


def span_of_line(line: str) -> SpanRecord | None:
    """The span of one line of a file as `span_file` writes it; None if it is no span."""
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
            links=tuple(
                f"{_hex(one['context']['trace_id'], 32)}:{_hex(one['context']['span_id'], 16)}"
                for one in (said.get("links") or [])[:MAX_LINKS]
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
