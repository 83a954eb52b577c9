"""Records of a journal and their chain (docs/dev/adr/0049). A record is one line of JSON; its hash is of the line."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Of one line, without its end.
MAX_RECORD_BYTES = 1 << 20
NO_HASH = "0" * 64
# What a record that is too large is cut of, wherever it stands: the bytes themselves. Their digests stay.
CONTENT = ("base64", "content", "text")
# What tells which one it was stays also where a record is cut down to its digest, if it is short.
NAMES = ("id", "op", "name", "path", "outcome", "context", "type")
MAX_NAME_CHARACTERS = 256

_HEX = re.compile(r"[0-9a-f]{64}")
_KEYS = {"at", "body", "kind", "n", "prev"}


class BadRecordError(ValueError):
    """The line is no record, or not the next one."""


@dataclass(frozen=True, slots=True)
class Head:
    """The newest record: its number, from 1, and its hash. 0 where there is none."""

    number: int = 0
    hash: str = NO_HASH

    def __str__(self) -> str:
        return f"{self.number}:{self.hash}"


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it was read."""

    head: Head
    prev: str
    kind: str
    at: float
    body: Mapping[str, Any]


# One for all records: making it costs as much as a short record. Bodies are trees, so no circles are looked for.
_ENCODER = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False, check_circular=False
)


def encode(value: Any) -> bytes:
    """The one form that a value has as JSON. Raises ValueError for what JSON has no form for."""
    return _ENCODER.encode(value).encode("ascii")


def hash_of(line: bytes) -> str:
    """Of a line without its end."""
    return hashlib.sha256(line).hexdigest()


def follow(head: Head, kind: str, body: Mapping[str, Any], at: float) -> tuple[bytes, Head]:
    """The line of the record after `head`, with its end, and the head that it makes."""
    line = _line(head, kind, body, at)
    if len(line) > MAX_RECORD_BYTES:
        line = _line(head, kind, without_content(body), at)
    if len(line) > MAX_RECORD_BYTES:
        line = _line(head, kind, cut(body), at)
    return line + b"\n", Head(head.number + 1, hash_of(line))


def _line(head: Head, kind: str, body: Mapping[str, Any], at: float) -> bytes:
    return encode({"at": round(at, 3), "body": body, "kind": kind, "n": head.number + 1, "prev": head.hash})


def without_content(value: Any) -> Any:
    """The value without the bytes that stand in it; their digests stay, and say that something was cut."""
    if isinstance(value, Mapping):
        kept = {name: without_content(each) for name, each in value.items() if name not in CONTENT}
        return kept | {"cut": True} if len(kept) < len(value) else kept
    return [without_content(each) for each in value] if isinstance(value, list | tuple) else value


def cut(body: Mapping[str, Any]) -> dict[str, Any]:
    """What is left of a body that is too large without its content, too."""
    whole = encode(body)
    named = {name: body[name] for name in NAMES if isinstance(body.get(name), str)}
    short = {name: value for name, value in named.items() if len(value) <= MAX_NAME_CHARACTERS}
    return {**short, "cut_record": {"bytes": len(whole), "sha256": hash_of(whole)}}


def read(line: bytes) -> Record:
    """A record of its line, without the line's end. Raises BadRecordError."""
    if len(line) > MAX_RECORD_BYTES:
        raise BadRecordError(f"cannot read the record: it is larger than {MAX_RECORD_BYTES} bytes")
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadRecordError("cannot read the record: it is no JSON") from error
    if not isinstance(found, dict) or found.keys() != _KEYS:
        raise BadRecordError(f"cannot read the record: it has not the keys {', '.join(sorted(_KEYS))}")
    at, body, kind, number, prev = (found[name] for name in sorted(_KEYS))
    if type(number) is not int or number < 1 or not isinstance(kind, str) or not isinstance(body, dict):
        raise BadRecordError("cannot read the record: a value is of another type")
    if not isinstance(prev, str) or not _HEX.fullmatch(prev) or type(at) not in (int, float):
        raise BadRecordError("cannot read the record: a value is of another type")
    return Record(Head(number, hash_of(line)), prev, kind, float(at), body)


def follows(record: Record, head: Head) -> bool:
    """Whether the record is the one after `head`."""
    return record.head.number == head.number + 1 and record.prev == head.hash
