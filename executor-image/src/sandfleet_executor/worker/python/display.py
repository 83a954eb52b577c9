"""Results of cells: what IPython displays, as the parts of a frame, within limits."""

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher

MAX_RESULT_BYTES = 16 << 20
MAX_PARTS = 64
MAX_MIME_CHARACTERS = 128
PLAIN = "text/plain"
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


class Shown(NamedTuple):
    """A result: the representations by their MIME types."""

    bundle: Mapping[str, Any]
    # Whether it is the value of the cell's last expression.
    main: bool = False
    # By which later results replace it; empty: none do.
    display_id: str = ""
    # Whether it replaces what was shown under its id.
    update: bool = False


Publish = Callable[[Shown], None]


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


class Publisher(DisplayPublisher):
    """Takes what display() and libraries publish."""

    def publish(
        self, data: Any, metadata: Any = None, *args: Any, transient: Any = None, update: bool = False, **kwargs: Any
    ) -> None:
        """Publishes a result, or an update of one with the same display id."""
        del args, kwargs
        self._validate_data(data, metadata)
        display_id = transient.get("display_id") if isinstance(transient, Mapping) else None
        self.shell.publish(Shown(data, display_id="" if display_id is None else str(display_id), update=bool(update)))

    def clear_output(self, wait: bool = False) -> None:
        """Clears what the cell has shown and printed; with `wait` when the next output comes."""
        self.shell.clear(wait=bool(wait))


class Hook(DisplayHook):
    """sys.displayhook, for code that calls it and for cells inside cells (%%capture, %run)."""

    def __call__(self, result: Any = None) -> None:
        if result is None:
            return
        self.fill_exec_result(result)
        self.shell.show_value(result)
