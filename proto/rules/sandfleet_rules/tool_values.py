"""Python values ↔ JSON with byte strings beside it, as ToolValue in the API says."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sandfleet_rules import tables

BYTES, TABLE, KIND = "$bytes", "$table", "kind"
# In arguments: the code that calls can read tables.
READS_TABLES = "$tables"
# No value of a program is nested so deeply: it contains itself.
MAX_DEPTH = 200
# Makes a stream of Arrow of a table; None where Arrow has no such columns.
Write = Callable[[Any], bytes | None]


def text(plain: Any) -> bytes:
    return json.dumps(plain, separators=(",", ":")).encode("ascii")


def plain(value: Any, blobs: list[bytes], depth: int = 0, *, write: Write | None = None) -> Any:
    """The value as JSON has it; its byte strings are added to `blobs`. Raises TypeError where it cannot be sent.

    `write` sends tables as tables; without it they are lists of rows.
    """
    if depth > MAX_DEPTH:
        raise TypeError("cannot send the value: it contains itself, or is nested too deeply")
    if value is None or type(value) in {bool, int, float, str}:
        return value
    if isinstance(value, Mapping):
        return {named(name): plain(each, blobs, depth + 1, write=write) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each, blobs, depth + 1, write=write) for each in value]
    if isinstance(value, bytes | bytearray | memoryview):
        blobs.append(bytes(value))
        return {BYTES: len(blobs) - 1}
    # Subclasses, as those of enums and of NumPy.
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    if write is not None and (library := tables.kind_of(value)) and (data := write(value)) is not None:
        blobs.append(data)
        return {TABLE: len(blobs) - 1, KIND: library}
    return plain(_converted(value), blobs, depth + 1, write=write)


def named(name: Any) -> str:
    """The key of an object as it is sent. Raises TypeError."""
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


def made(plain: Any, blobs: Sequence[bytes], read: Callable[[bytes, Any], Any]) -> Any:
    """The value of JSON and its byte strings. `read` makes a table of a stream of Arrow. Raises ValueError."""
    if isinstance(plain, list):
        return [made(each, blobs, read) for each in plain]
    if not isinstance(plain, dict):
        return plain
    if plain.keys() == {BYTES}:
        return blobs[_index(plain[BYTES], len(blobs))]
    if plain.keys() == {TABLE, KIND}:
        return read(blobs[_index(plain[TABLE], len(blobs))], plain[KIND])
    names = {name: name.removeprefix("$") if name[:2] == "$$" else name for name in plain}
    return {names[name]: made(each, blobs, read) for name, each in plain.items()}


def _index(value: Any, count: int) -> int:
    if type(value) is not int or not 0 <= value < count:
        raise ValueError("cannot read the value: it refers to bytes that are not there")
    return value
