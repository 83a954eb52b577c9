"""Files that hold a table."""

from __future__ import annotations

import asyncio
import os
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from sandfleet._wire.convert import arrow
from sandfleet.errors import FileError, InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from sandfleet.values.options import FileText

    PathLike = FileText | bytes | os.PathLike[str]


async def read(path: PathLike, data: Awaitable[bytes], library: str) -> Any:
    """Return the table in the bytes of a file. Raises FileError, InvalidArgument, and what `data` raises."""
    suffix = check_readable(path)
    try:
        return await asyncio.to_thread(arrow.of_file, await data, suffix, library)
    except ValueError as error:
        name = os.fsdecode(path)
        raise FileError(f"cannot read {name!r} as a table: {error}", reason="NotATable", subject=name) from None


def check_readable(path: PathLike) -> str:
    """Return the kind of a file of tables. Raises InvalidArgument."""
    return _suffix(path, arrow.READ, "read")


async def contents(path: PathLike, table: Any) -> memoryview:
    """Return the bytes of a file that holds a table. Raises InvalidArgument."""
    suffix = _suffix(path, arrow.WRITTEN, "write")
    try:
        return await asyncio.to_thread(arrow.to_file, table, suffix)
    except ValueError as error:
        raise InvalidArgument(f"cannot write {os.fsdecode(path)!r}: {error}") from None


def _suffix(path: PathLike, known: tuple[str, ...], verb: str) -> str:
    name = os.fsdecode(path)
    suffix = PurePosixPath(name).suffix.lower()
    if suffix not in known:
        also = "; read it in the sandbox, and take the table with sandbox.tables.get" if suffix == ".parquet" else ""
        raise InvalidArgument(f"cannot {verb} {name!r} as a table: the name has to end with {' or '.join(known)}{also}")
    return suffix
