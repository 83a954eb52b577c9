"""What a caller wants to write, as blocks of bytes: text, bytes, file objects, and iterables of pieces."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Iterable, Iterator
from typing import Protocol, runtime_checkable

from sandfleet.errors import InvalidArgument

Buffer = bytes | bytearray | memoryview
Piece = str | Buffer


@runtime_checkable
class Readable(Protocol):
    """A file object, of bytes or text; `read` may be asynchronous."""

    def read(self, size: int, /) -> Piece | Awaitable[Piece]:
        """Return at most `size` bytes or characters; none at the end."""
        ...


Data = str | bytes | bytearray | memoryview | Readable | Iterable[Piece] | AsyncIterable[Piece]

# The most of one block, and how much of small pieces makes one, in bytes.
_CHUNK = 1024 * 1024
_GATHERED = 256 * 1024
# Pieces that come slowly are sent after so many seconds.
_SLOW = 0.1


async def blocks(data: Data) -> AsyncIterator[bytes]:
    """Yield the data in blocks of at most 1 MiB. Raises InvalidArgument for a piece that is neither text nor bytes."""
    pieces: AsyncIterator[Buffer]
    if isinstance(data, (str, bytes, bytearray, memoryview)):
        pieces = _once(data)
    elif isinstance(data, Readable):
        pieces = _read(data)
    elif isinstance(data, AsyncIterable):
        pieces = _gathered(data)
    else:
        pieces = _in_thread(_gathered_here(data))
    async for piece in pieces:
        view = memoryview(piece).cast("B")
        for start in range(0, len(view), _CHUNK):
            yield bytes(view[start : start + _CHUNK])


async def _once(data: Piece) -> AsyncIterator[Buffer]:
    yield _bytes_of(data)


async def _read(file: Readable) -> AsyncIterator[Buffer]:
    while True:
        # Reading may block.
        piece = await asyncio.to_thread(file.read, _CHUNK)
        block = _bytes_of(await piece if inspect.isawaitable(piece) else piece)
        if not block:
            return
        yield block


async def _gathered(pieces: AsyncIterable[Piece]) -> AsyncIterator[Buffer]:
    gathering = _Gathering()
    async for piece in pieces:
        if block := gathering.add(piece):
            yield block
    yield gathering.rest()


def _gathered_here(pieces: Iterable[Piece]) -> Iterator[Buffer]:
    gathering = _Gathering()
    for piece in pieces:
        if block := gathering.add(piece):
            yield block
    yield gathering.rest()


async def _in_thread(items: Iterator[Buffer]) -> AsyncIterator[Buffer]:
    # An iterable may block.
    while (item := await asyncio.to_thread(next, items, None)) is not None:
        yield item


class _Gathering:
    """Small pieces on their way to a block."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._since = time.monotonic()

    def add(self, piece: Piece) -> Buffer | None:
        """Take a piece; return a block if there is enough for one, or if it took long."""
        self._held += _bytes_of(piece)
        if len(self._held) < _GATHERED and time.monotonic() - self._since < _SLOW:
            return None
        return self.rest()

    def rest(self) -> Buffer:
        """Return what is left."""
        block, self._held, self._since = self._held, bytearray(), time.monotonic()
        return block


def _bytes_of(piece: object) -> Buffer:
    if isinstance(piece, (bytes, bytearray, memoryview)):
        return piece
    if not isinstance(piece, str):
        raise _refused(f"it has to be text or bytes, not {type(piece).__name__}")
    try:
        return piece.encode()
    except UnicodeEncodeError as error:
        raise _refused(f"it holds what is no character (a lone surrogate at {error.start})") from None


def _refused(why: str) -> InvalidArgument:
    return InvalidArgument(f"cannot write a piece of data: {why}", reason="InvalidArgument", subject="data")
