"""Spans as OTLP's bytes, written field by field: half of the time that messages of protobuf take, or less.

The thread that exports competes with the program for Python's lock. So it also lets go of it again and again. What is
rare (events, links, lists) is written by the SDK: parts of a request stand one behind the other.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

# Spans that are written before others may have the lock.
_AT_A_TIME = 8
# Of opentelemetry/proto/trace/v1/trace.proto and common/v1/common.proto: number of the field << 3 | kind of its bytes.
_TRACE_ID, _SPAN_ID, _PARENT_ID, _NAME, _KIND = b"\x0a\x10", b"\x12\x08", b"\x22\x08", b"\x2a", b"\x30"
_START, _END, _ATTRIBUTE, _STATUS, _FLAGS = b"\x39", b"\x41", b"\x4a", b"\x7a", b"\x85\x01"
_KEY, _VALUE, _TEXT, _BOOL, _INT, _FLOAT = b"\x0a", b"\x12", b"\x0a", b"\x10", b"\x18", b"\x21"
_STATUS_TEXT, _STATUS_CODE = b"\x12", b"\x18"
_RESOURCE_SPANS, _RESOURCE, _SCOPE_SPANS, _SCOPE, _SPAN, _SCHEMA = b"\x0a", b"\x0a", b"\x12", b"\x0a", b"\x12", b"\x1a"
_FIXED, _DOUBLE, _FIXED32 = struct.Struct("<Q"), struct.Struct("<d"), struct.Struct("<I")
# Whether the parent is known to be remote, and whether it is.
_KNOWN, _REMOTE = 0x100, 0x200
_PLAIN = {str, int, bool, float}
# Characters of a value that is kept in its written form; ids are longer.
_WORD = 24


def request_of(spans: Sequence[ReadableSpan]) -> bytes:
    """Return an ExportTraceServiceRequest. Raises ImportError without the SDK."""
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    written: dict[tuple[int, int], tuple[ReadableSpan, list[bytes]]] = {}
    rare = []
    for number, span in enumerate(spans, 1):
        if _is_plain(span):
            # Both live as long as the spans do.
            key = id(span.resource), id(span.instrumentation_scope)
            written.setdefault(key, (span, []))[1].append(_SPAN + _sized(b"".join(_fields(span))))
        else:
            rare.append(span)
        if not number % _AT_A_TIME:
            time.sleep(0)
    parts = [_group(first, found) for first, found in written.values()]
    return b"".join(parts) + (encode_spans(rare).SerializeToString() if rare else b"")


def _is_plain(span: ReadableSpan) -> bool:
    context, attributes = span.context, span.attributes
    if context is None or span.events or span.links or context.trace_state or span.dropped_attributes:
        return False
    return not attributes or _PLAIN.issuperset(map(type, attributes.values()))


def _group(first: ReadableSpan, spans: Iterable[bytes]) -> bytes:
    """The spans of one resource and one scope."""
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    (head,) = encode_spans([first]).resource_spans
    (scope,) = head.scope_spans
    within = [_SCOPE + _sized(scope.scope.SerializeToString()), *spans, *_schema(scope.schema_url)]
    parts = [_RESOURCE + _sized(head.resource.SerializeToString()), _SCOPE_SPANS + _sized(b"".join(within))]
    return _RESOURCE_SPANS + _sized(b"".join([*parts, *_schema(head.schema_url)]))


def _schema(url: str) -> tuple[bytes, ...]:
    return (_SCHEMA + _sized(url.encode()),) if url else ()


def _fields(span: ReadableSpan) -> list[bytes]:
    context: Any = span.context
    parent, status = span.parent, span.status
    found = [_TRACE_ID, context.trace_id.to_bytes(16, "big"), _SPAN_ID, context.span_id.to_bytes(8, "big")]
    if parent is not None:
        found += _PARENT_ID, parent.span_id.to_bytes(8, "big")
    # OTLP counts kinds from 1.
    found += _NAME, _sized(_utf8(span.name)), _KIND, _varint(span.kind.value + 1)
    found += _START, _FIXED.pack(span.start_time or 0), _END, _FIXED.pack(span.end_time or 0)
    found += [_attribute(key, value) for key, value in (span.attributes or {}).items()]
    found += _STATUS, _sized(_status(status.description, status.status_code.value))
    is_remote = parent is not None and parent.is_remote
    found += _FLAGS, _FIXED32.pack(_KNOWN | _REMOTE if is_remote else _KNOWN)
    return found


def _status(description: str | None, code: int) -> bytes:
    text = _STATUS_TEXT + _sized(_utf8(description)) if description else b""
    return text + _STATUS_CODE + _varint(code) if code else text


def _attribute(key: str, value: Any) -> bytes:
    kind = type(value)
    if kind is str:
        return _word(key, value) if len(value) <= _WORD else _pair(key, _TEXT + _sized(_utf8(value)))
    if kind is float:
        return _pair(key, _FLOAT + _DOUBLE.pack(value))
    # A negative number is its two's complement of 64 bits.
    return _pair(key, (_BOOL if kind is bool else _INT) + _varint(value & 0xFFFF_FFFF_FFFF_FFFF))


@lru_cache(maxsize=1024)
def _word(key: str, value: str) -> bytes:
    """Of a short value, of which most come again and again."""
    return _pair(key, _TEXT + _sized(_utf8(value)))


def _pair(key: str, value: bytes) -> bytes:
    return _ATTRIBUTE + _sized(_key(key) + _sized(value))


@lru_cache(maxsize=256)
def _key(name: str) -> bytes:
    return _KEY + _sized(_utf8(name)) + _VALUE


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _sized(data: bytes) -> bytes:
    """The data behind its length."""
    size = len(data)
    return _ONE_BYTE[size] + data if size < 128 else _varint(size) + data


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)


_ONE_BYTE = tuple(bytes([number]) for number in range(128))
