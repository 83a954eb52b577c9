"""Representations of a result as the parts of a frame, within limits."""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

MAX_RESULT_BYTES = 16 << 20
MAX_PARTS = 64
MAX_MIME_CHARACTERS = 128
PLAIN = "text/plain"
# Marks help that IPython shows in a pager, for front ends that have a place for it.
PAGE = "application/vnd.sandfleet.page.v1+json"
# Types whose data is binary: a string there is Base64.
BINARY = (
    "image/png",
    "image/jpeg",
    "image/gif",
    "image/webp",
    "application/pdf",
    "application/octet-stream",
    "audio/",
    "video/",
)


class Parts(NamedTuple):
    parts: list[tuple[str, bytes]]
    dropped: int
    """Bytes of the representations that were left out."""


def to_parts(bundle: Mapping[str, Any], limit: int = MAX_RESULT_BYTES) -> Parts:
    """The representations as bytes. Over the limit (bytes of all together) the largest ones are dropped."""
    parts = [(str(mime)[:MAX_MIME_CHARACTERS], to_bytes(str(mime), data)) for mime, data in bundle.items()]
    total = sum(len(data) for _, data in parts)
    dropped = 0
    while parts and (total - dropped > limit or len(parts) > MAX_PARTS):
        largest = max(range(len(parts)), key=lambda index: len(parts[index][1]))
        mime, data = parts.pop(largest)
        dropped += len(data)
        if mime == PLAIN:
            note = f"<text of {len(data)} bytes dropped: the limit of a result is {limit} bytes>".encode()
            total += len(note)
            parts.append((PLAIN, note))
    return Parts(parts, dropped)


def to_bytes(mime: str, data: Any) -> bytes:
    """One representation as bytes: UTF-8, JSON or the image itself."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    if isinstance(data, str):
        return _from_base64(data) if mime.startswith(BINARY) else str.encode(data, "utf-8", "backslashreplace")
    try:
        return json.dumps(data, default=str).encode()
    except (TypeError, ValueError, RecursionError) as error:
        return f"<cannot show {mime}: {error}>".encode("utf-8", "backslashreplace")


def _from_base64(data: str) -> bytes:
    try:
        return base64.b64decode(data)
    except (binascii.Error, ValueError):
        return str.encode(data, "utf-8", "backslashreplace")
