"""Python values ↔ JSON with byte strings beside it, as ToolValue in the API says. What is read is hostile."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sandfleet._wire.convert import arrow as tables

BYTES, TABLE, KIND = "$bytes", "$table", "kind"
# In arguments: the code that calls can read tables.
READS_TABLES = "$tables"
# Of one value, in bytes: the executor takes no larger one.
MAX_VALUE = 16 << 20
# No value of a program is nested so deeply: it contains itself.
MAX_DEPTH = 200


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
    plain = _plain(value, blobs, 0, as_tables=as_tables and tables.has("pyarrow"))
    return Wire(json.dumps(plain, separators=(",", ":")).encode("ascii"), tuple(blobs))


def decode(wire: Wire) -> Any:
    """Raises ValueError and RecursionError."""
    return _made(json.loads(wire.json), wire.blobs)


def _plain(value: Any, blobs: list[bytes], depth: int, *, as_tables: bool) -> Any:
    if depth > MAX_DEPTH:
        raise TypeError("cannot send the value: it contains itself, or is nested too deeply")
    if value is None or type(value) in {bool, int, float, str}:
        return value
    if isinstance(value, Mapping):
        return {_name(name): _plain(each, blobs, depth + 1, as_tables=as_tables) for name, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(each, blobs, depth + 1, as_tables=as_tables) for each in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        blobs.append(bytes(value))
        return {BYTES: len(blobs) - 1}
    # Subclasses, as those of enums and of NumPy.
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    if as_tables and (library := tables.kind_of(value)) and (data := tables.written(value)) is not None:
        blobs.append(data)
        return {TABLE: len(blobs) - 1, KIND: library}
    return _plain(_converted(value), blobs, depth + 1, as_tables=as_tables)


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"cannot send an object with the key {name!r}: keys have to be strings")
    return f"${name}" if name.startswith("$") else str(name)


def _converted(value: Any) -> Any:
    """Tables as lists of rows, arrays as lists, scalars of NumPy, models as objects, times as ISO 8601."""
    if isinstance(value, type):
        raise _unsendable(value)
    for method in ("to_dicts", "to_pylist", "tolist", "to_list", "isoformat", "model_dump"):
        if callable(convert := getattr(value, method, None)):
            return convert()
    if hasattr(value, "columns") and callable(convert := getattr(value, "to_dict", None)):
        return convert(orient="records")
    if (fields := getattr(value, "__dataclass_fields__", None)) is not None:
        return {name: getattr(value, name) for name in fields}
    raise _unsendable(value)


def _unsendable(value: object) -> TypeError:
    return TypeError(f"cannot send a value of type {type(value).__name__}: it is no JSON, bytes or table")


def _made(plain: Any, blobs: Sequence[bytes]) -> Any:
    if isinstance(plain, list):
        return [_made(each, blobs) for each in plain]
    if not isinstance(plain, dict):
        return plain
    if plain.keys() == {BYTES}:
        return blobs[_index(plain[BYTES], len(blobs))]
    if plain.keys() == {TABLE, KIND}:
        return tables.read(blobs[_index(plain[TABLE], len(blobs))], plain[KIND])
    return {name.removeprefix("$") if name[:2] == "$$" else name: _made(each, blobs) for name, each in plain.items()}


def _index(value: Any, count: int) -> int:
    if type(value) is not int or not 0 <= value < count:
        raise ValueError("cannot read the value: it refers to bytes that are not there")
    return value
