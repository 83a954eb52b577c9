"""Journals from files of this machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from os import PathLike, fspath
from pathlib import Path

from sandfleet.errors import InvalidArgument
from sandfleet.journal import records
from sandfleet.journal.records import BadRecordError, Record

_CHUNK = 1 << 18
# What is kept in memory of one journal.
MAX_BYTES = 256 << 20


def load(path: str | PathLike[str]) -> list[Record]:
    """Read all records of an exported journal; lines that are none are left out. Raises InvalidArgument."""
    return records_in(chunks(fspath(path)), fspath(path))


def records_in(data: Iterable[bytes], name: str) -> list[Record]:
    """Read all records of what comes in pieces; `name` is for errors. Raises InvalidArgument."""
    found, size = [], 0
    for line in records.lines(data):
        size += len(line.data)
        if size > MAX_BYTES:
            raise InvalidArgument(f"cannot read {name}: it is larger than {MAX_BYTES} bytes", subject=name)
        try:
            if not line.oversized:
                found.append(records.read(line.data))
        except BadRecordError:
            continue
    if not found:
        raise InvalidArgument(f"cannot read {name}: it has no record of a journal", reason="NoJournal", subject=name)
    return found


def chunks(path: str) -> Iterator[bytes]:
    """Read a file piece by piece. Raises InvalidArgument."""
    try:
        with Path(path).open("rb") as file:
            yield from iter(lambda: file.read(_CHUNK), b"")
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: str, error: OSError) -> InvalidArgument:
    """Make the error of a file that cannot be read."""
    return InvalidArgument(f"cannot read {path}: {error.strerror or error}", reason="CannotRead", subject=path)
