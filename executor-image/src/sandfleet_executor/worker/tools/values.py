"""Python values ↔ JSON with byte strings beside it, as ToolValue in the API says."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sandfleet_rules.tables import has, kind_of
from sandfleet_rules.tool_values import READS_TABLES, made, named, plain, text

from ..base import tables


def encode(value: Any) -> tuple[bytes, list[bytes]]:
    """Raises TypeError for a value that cannot be sent. Tables are lists of rows."""
    blobs: list[bytes] = []
    return text(plain(value, blobs)), blobs


def encode_arguments(arguments: Mapping[str, Any], as_tables: Collection[str]) -> tuple[bytes, list[bytes]]:
    """As `encode`, for code that reads tables. Arguments of these names are sent as tables where they are tables."""
    if not has("pyarrow"):
        return encode(arguments)
    blobs: list[bytes] = []
    said: dict[str, Any] = {READS_TABLES: True}
    for name, value in arguments.items():
        write = tables.written if name in as_tables and kind_of(value) else None
        said[named(name)] = plain(value, blobs, 1, write=write)
    return text(said), blobs


def decode(data: bytes, blobs: Sequence[bytes]) -> Any:
    """Raises ValueError."""
    return made(json.loads(data), blobs, tables.read)
