"""A snapshot as one file, to carry it elsewhere.

Behind a line with the format comes one zstd stream of records: a letter, the length in eight digits of hexadecimal,
the content. `a`: what the snapshot says of itself (JSON); `f`: facts; `e`: one or more entries; `d`: data; `s`: SHA-256
of all before, the last record. The file is not encrypted, and not authentic: its reader believes nothing in it.
"""

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any

import zstandard

from sandfleet_operator.api.values import Mark
from sandfleet_operator.plan.snapshots.entries import Entry, Lines, encode
from sandfleet_operator.plan.snapshots.errors import Reason, SnapshotError, hostile
from sandfleet_operator.plan.snapshots.manifest import MAX_FACTS, About
from sandfleet_operator.snapshots.reader import Part, Reader

FORMAT = b"sandfleet snapshot file 1\n"
_HEAD = 9
_MOST = {b"a": 1 << 20, b"f": MAX_FACTS, b"e": 16 << 20, b"d": 16 << 20, b"s": 32}


def write(source: Reader, path: Path) -> None:
    """Write a new file; it has its name only when it is whole. Raises SnapshotError."""
    temporary = path.parent / f".part-{secrets.token_hex(8)}"
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                _write_all(source, file)
                file.flush()
                os.fsync(file.fileno())
            os.link(temporary, path)
        finally:
            temporary.unlink()
    except FileExistsError as error:
        raise SnapshotError(Reason.EXISTS, f"cannot export to {path}: it is there already") from error
    except OSError as error:
        raise SnapshotError(Reason.FULL, f"cannot export to {path}: {error.strerror or error}") from error


def _write_all(source: Reader, file: IO[bytes]) -> None:
    file.write(FORMAT)
    digest = hashlib.sha256()
    with zstandard.ZstdCompressor(level=3).stream_writer(file, closefd=False) as out:

        def record(letter: bytes, content: bytes | memoryview) -> None:
            head = letter + b"%08x" % len(content)
            digest.update(head)
            digest.update(content)
            out.write(head)
            out.write(content)

        record(
            b"a", json.dumps(asdict(replace(source.manifest.about, claim="")), separators=(",", ":")).encode("ascii")
        )
        record(b"f", source.facts)
        for part in source.parts():
            for entry in part.entries:
                record(b"e", encode(entry))
            if part.data:
                record(b"d", part.data)
        record(b"s", digest.digest())


@contextlib.contextmanager
def opened(path: Path) -> Iterator[tuple[Mapping[str, Any], Iterator[Part | bytes]]]:
    """What a file says of itself, and its content: first the facts, then parts. Raises SnapshotError."""
    try:
        with path.open("rb") as file:
            if file.read(len(FORMAT)) != FORMAT:
                raise hostile(f"{path} is no exported snapshot")
            with zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(file) as stream:
                records = _records(stream)
                letter, text = next(records)
                if letter != b"a":
                    raise hostile("the file does not begin with what it is")
                yield _about(text), _parts(records)
    except OSError as error:
        raise SnapshotError(Reason.NOT_FOUND, f"cannot import {path}: {error.strerror or error}") from error
    except zstandard.ZstdError as error:
        raise hostile("the file cannot be decompressed") from error


def requested(path: Path) -> Mapping[str, Any]:
    """What a file asks for: its contract, limits and names, none of which may be believed. Raises SnapshotError."""
    with opened(path) as (about, _):
        return about


def imported(said: Mapping[str, Any], **ours: Any) -> About:
    """What is kept of an imported snapshot: labels and marks of the file, all else from `ours`."""
    labels = said.get("labels")
    labels = {str(name): str(value) for name, value in labels.items()} if isinstance(labels, dict) else {}
    known = {mark.value for mark in Mark}
    received = said.get("received")
    marks = {str(word) for word in received} & known if isinstance(received, list) else set()
    return untrusted(About(labels=labels, received=tuple(marks), **ours))


def untrusted(about: About) -> About:
    """The same of a snapshot that came in a file."""
    return replace(about, reason="import", received=tuple(sorted({*about.received, Mark.UNTRUSTED.value})))


def _about(text: bytes) -> Mapping[str, Any]:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise hostile("the file does not say what it is") from error
    if not isinstance(said, dict):
        raise hostile("the file does not say what it is")
    return said


def _records(stream: zstandard.ZstdDecompressionReader) -> Iterator[tuple[bytes, bytes]]:
    digest = hashlib.sha256()
    while True:
        head = _exactly(stream, _HEAD)
        letter = head[:1]
        try:
            length = int(head[1:], 16)
        except ValueError as error:
            raise hostile("the file has a record without a length") from error
        if length < 0 or length > _MOST.get(letter, -1):
            raise hostile("the file has an unknown record, or one that is too long")
        content = _exactly(stream, length)
        if letter == b"s":
            if content != digest.digest() or stream.read(1):
                raise hostile("the file is not what was written")
            return
        digest.update(head)
        digest.update(content)
        yield letter, content


def _exactly(stream: zstandard.ZstdDecompressionReader, length: int) -> bytes:
    found = bytearray()
    while len(found) < length:
        piece = stream.read(length - len(found))
        if not piece:
            raise hostile("the file is cut off")
        found += piece
    return bytes(found)


def _parts(records: Iterator[tuple[bytes, bytes]]) -> Iterator[Part | bytes]:
    for letter, content in records:
        if letter == b"f":
            yield content
        elif letter == b"e":
            lines = Lines()
            entries: tuple[Entry, ...] = tuple(lines.feed(content))
            lines.end()
            yield Part(entries, b"")
        elif letter == b"d":
            yield Part((), content)
        else:
            raise hostile("the file says twice what it is")
