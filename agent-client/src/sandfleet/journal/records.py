"""Records of a journal: one line of JSON each, with the SHA-256 of the line before (docs/dev/adr/0049)."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

# Of one line, without its end.
MAX_RECORD_BYTES = 1 << 20
NO_HASH = "0" * 64
# Of a number in a record or in a head.
MAX_NUMBER = (1 << 63) - 1

_HEX = re.compile(r"[0-9a-f]{64}")
_KEYS = {"at", "body", "kind", "n", "prev"}
_MAX_KIND = 64


class BadRecordError(ValueError):
    """The line is no record."""


@dataclass(frozen=True, slots=True)
class Head:
    """A record by its number, from 1, and its hash. 0 and 64 zeros where there is none."""

    number: int = 0
    hash: str = NO_HASH

    def __str__(self) -> str:
        return f"{self.number}:{self.hash}"


NO_HEAD = Head()


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it was read.

    head  its own number and hash.
    prev  the hash of the record before.
    kind  what it is of: "opened", "execution", "file", "tool_call", …
    at    when it was written, in seconds since the epoch, by the executor's clock.
    body  what was done, and what came of it.
    """

    head: Head
    prev: str
    kind: str
    at: float
    body: Mapping[str, Any]

    @property
    def number(self) -> int:
        """The record's number, from 1."""
        return self.head.number


def hash_of(line: bytes) -> str:
    """Return the hash of a line without its end."""
    return hashlib.sha256(line).hexdigest()


def is_hash(text: object) -> bool:
    """Return whether it has the form of a hash."""
    return isinstance(text, str) and _HEX.fullmatch(text) is not None


def is_number(value: object, least: int = 1) -> bool:
    """Return whether it can be the number of a record."""
    return type(value) is int and least <= value <= MAX_NUMBER


def loads(data: bytes | str) -> Any:
    """Read JSON without the constants that JSON does not have. Raises ValueError."""
    try:
        return json.loads(data, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def read(line: bytes) -> Record:
    """Read a line without its end. Raises BadRecordError."""
    if len(line) > MAX_RECORD_BYTES:
        raise BadRecordError(f"cannot read the record: it is larger than {MAX_RECORD_BYTES} bytes")
    try:
        found = loads(line)
    except ValueError as error:
        raise BadRecordError("cannot read the record: it is no JSON") from error
    if not isinstance(found, dict) or found.keys() != _KEYS:
        raise BadRecordError(f"cannot read the record: it has not the keys {', '.join(sorted(_KEYS))}")
    at, body, kind, number, prev = (found[name] for name in sorted(_KEYS))
    well_formed = (
        is_number(number)
        and isinstance(kind, str)
        and len(kind) <= _MAX_KIND
        and isinstance(body, dict)
        and is_hash(prev)
        and type(at) in (int, float)
        and abs(at) < 1e15
        and math.isfinite(at)
    )
    if not well_formed:
        raise BadRecordError("cannot read the record: a value is of another type")
    return Record(Head(number, hash_of(line)), prev, kind, float(at), body)


def parse_head(text: str) -> Head | None:
    """Read "NUMBER:HASH", as calls end with it; None for other text."""
    number, _, digest = text[:100].partition(":")
    if not (number.isascii() and number.isdecimal() and len(number) < 19 and is_hash(digest)):
        return None
    return Head(int(number), digest)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a file, without its end. `oversized`: it was too long to be kept; `cut`: it has no end."""

    data: bytes
    oversized: bool = False
    cut: bool = False


def lines(chunks: Iterable[bytes]) -> Iterator[Line]:
    """Split a file, given piece by piece, into lines. The memory is bounded by the longest record."""
    splitter = Splitter()
    for chunk in chunks:
        yield from splitter.feed(chunk)
    yield from splitter.end()


class Splitter:
    """Cuts bytes that come piece by piece into lines."""

    def __init__(self) -> None:
        self._rest = b""
        self._skipping = False

    def feed(self, chunk: bytes) -> Iterator[Line]:
        """Yield the lines that end in this chunk."""
        first, *others = chunk.split(b"\n")
        rest = self._rest + first
        for following in others:
            if self._skipping or len(rest) > MAX_RECORD_BYTES:
                yield Line(rest[:MAX_RECORD_BYTES], oversized=True)
            else:
                yield Line(rest)
            rest, self._skipping = following, False
        if len(rest) > MAX_RECORD_BYTES:
            rest, self._skipping = b"", True
        self._rest = rest

    def end(self) -> Iterator[Line]:
        """Yield what stands behind the last end of a line."""
        if self._rest or self._skipping:
            yield Line(self._rest, oversized=self._skipping, cut=True)
        self._rest, self._skipping = b"", False
