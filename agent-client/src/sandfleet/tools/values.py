"""Python values ↔ JSON with byte strings beside it, as ToolValue in the API says. What is read is hostile."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from sandfleet_rules import tables
from sandfleet_rules.tool_values import made, plain, text

from sandfleet._wire.convert import arrow

# Bytes of one value: the executor takes no larger one.
MAX_VALUE = 16 << 20


class Wire(NamedTuple):
    """A value as it is sent."""

    json: bytes
    blobs: tuple[bytes, ...] = ()

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.json) + sum(map(len, self.blobs))


def encode(value: Any, *, as_tables: bool = False) -> Wire:
    """Raises TypeError for a value that cannot be sent. Tables are lists of rows, unless the code reads tables."""
    blobs: list[bytes] = []
    write = arrow.written if as_tables and tables.has("pyarrow") else None
    return Wire(text(plain(value, blobs, write=write)), tuple(blobs))


def decode(wire: Wire) -> Any:
    """Raises ValueError and RecursionError."""
    return made(json.loads(wire.json), wire.blobs, arrow.read)
