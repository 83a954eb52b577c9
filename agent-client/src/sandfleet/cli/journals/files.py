"""Journals and heads from files of this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sandfleet.errors import InvalidArgument, PreconditionFailed
from sandfleet.journal import headfile, signatures
from sandfleet.journal.headfile import Heads
from sandfleet.journal.statements import Keys, read_keys
from sandfleet.replay import files
from sandfleet.replay.files import records_in

if TYPE_CHECKING:
    import argparse

    from sandfleet.journal.records import Record

_CHUNK = 1 << 18


def chunks(path: str) -> Iterator[bytes]:
    """Read a file piece by piece; "-" is standard input. Raises InvalidArgument."""
    if path == "-":
        return iter(lambda: sys.stdin.buffer.read(_CHUNK), b"")
    return files.chunks(path)


def heads_for(options: argparse.Namespace) -> Heads:
    """Read the heads that the options name, and those beside the journal. Raises InvalidArgument."""
    beside = Path(options.file + headfile.SUFFIX)
    given = [Path(name) for name in options.heads or ()]
    found = Heads()
    for path in [beside, *given] if options.file != "-" and beside.exists() and beside not in given else given:
        found = headfile.load(_small(path), found)
    return found


def keys_for(path: str | None, authority: str | None = None) -> Keys | None:
    """Read the fleet's keys that the reader trusts, and who has to vouch for keys. Raises InvalidArgument.

    Raises PreconditionFailed if this machine cannot check signatures.
    """
    if path is None and authority is None:
        return None
    if not signatures.can_check():
        raise PreconditionFailed(f"cannot check signatures: {signatures.MISSING}", reason="CryptographyMissing")
    try:
        authorities = signatures.read_authorities(_small(Path(authority))) if authority is not None else ()
    except ValueError as error:
        raise InvalidArgument(str(error), reason="BadAuthority", subject=authority or "") from error
    if path is None:
        return Keys(None, authorities)
    try:
        return read_keys(_small(Path(path)), authorities)
    except ValueError as error:
        raise InvalidArgument(str(error), reason="BadKeys", subject=path) from error


def records_of(path: str) -> list[Record]:
    """Read all records of a journal; lines that are none are left out. Raises InvalidArgument."""
    return records_in(chunks(path), path)


def exported(path: str) -> headfile.Exported | None:
    """Return what the file of heads beside a journal says of the sandbox."""
    beside = Path(path + headfile.SUFFIX)
    return headfile.load(_small(beside)).exported if path != "-" and beside.exists() else None


def environment(words: Sequence[str]) -> dict[str, str]:
    """Read NAME=VALUE. Raises InvalidArgument."""
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise InvalidArgument(f"cannot use {word!r} as an environment variable: it is not NAME=VALUE")
        found[name] = value
    return found


def _small(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(headfile.MAX_FILE_BYTES + 1)
    except OSError as error:
        raise files.unreadable(str(path), error) from error
    if len(data) > headfile.MAX_FILE_BYTES:
        why = f"it is larger than {headfile.MAX_FILE_BYTES} bytes"
        raise InvalidArgument(f"cannot read {path}: {why}", subject=str(path))
    return data
