"""Python values ↔ JSON with byte strings beside it, as ToolValue in the API says."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

BYTES = "$bytes"
MAX_DEPTH = 200


def encode(value: Any) -> tuple[bytes, list[bytes]]:
    """Raises TypeError for a value that cannot be sent."""
    blobs: list[bytes] = []
    plain = _plain(value, blobs, 0)
    return json.dumps(plain, separators=(",", ":")).encode("ascii"), blobs


def decode(text: bytes, blobs: Sequence[bytes]) -> Any:
    """Raises ValueError."""
    return _made(json.loads(text), blobs)


def _plain(value: Any, blobs: list[bytes], depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise TypeError("cannot send the value: it contains itself, or is nested too deeply")
    if value is None or type(value) in {bool, int, float, str}:
        return value
    if isinstance(value, Mapping):
        return {_name(name): _plain(each, blobs, depth + 1) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each, blobs, depth + 1) for each in value]
    if isinstance(value, bytes | bytearray | memoryview):
        blobs.append(bytes(value))
        return {BYTES: len(blobs) - 1}
    # Subclasses, as those of enums and of NumPy.
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return _plain(_converted(value), blobs, depth + 1)


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"cannot send an object with the key {name!r}: keys have to be strings")
    return f"${name}" if name.startswith("$") else str(name)


def _converted(value: Any) -> Any:
    """Tables as lists of rows, arrays as lists, scalars of NumPy, times as ISO 8601."""
    for method, arguments in (
        ("to_dicts", {}),
        ("to_pylist", {}),
        ("tolist", {}),
        ("to_dict", {"orient": "records"}),
        ("isoformat", {}),
        ("model_dump", {}),
    ):
        convert = getattr(value, method, None)
        if callable(convert) and not isinstance(value, type):
            if method == "to_dict" and not hasattr(value, "columns"):
                continue
            return convert(**arguments)
    fields = getattr(value, "__dataclass_fields__", None)
    if fields is not None and not isinstance(value, type):
        return {name: getattr(value, name) for name in fields}
    raise TypeError(f"cannot send a value of type {type(value).__name__}: it is no JSON, bytes or table")


def _made(plain: Any, blobs: Sequence[bytes]) -> Any:
    if isinstance(plain, list):
        return [_made(each, blobs) for each in plain]
    if not isinstance(plain, dict):
        return plain
    if plain.keys() == {BYTES}:
        return blobs[_index(plain[BYTES], len(blobs))]
    return {name.removeprefix("$") if name[:2] == "$$" else name: _made(each, blobs) for name, each in plain.items()}


def _index(value: Any, count: int) -> int:
    if type(value) is not int or not 0 <= value < count:
        raise ValueError("cannot read the value: it refers to bytes that are not there")
    return value
