"""One end of a connection, whose bytes can be looked at before they are carried."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any

# What is read at once. A connection holds two such pieces each way: the rest waits in the kernels of both ends.
PIECE_BYTES = 256 << 10
# What is dropped of a program that has been told all, and for how long.
MOST_UNREAD, UNREAD_SECONDS = 1 << 20, 5.0


class Peer:
    """A stream, with bytes that were read ahead."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._ahead = b""

    async def read(self) -> bytes:
        """The next bytes; empty at the end. Raises OSError."""
        if self._ahead:
            data, self._ahead = self._ahead, b""
            return data
        return await self._reader.read(PIECE_BYTES)

    def unread(self, data: bytes) -> None:
        """The bytes come again with the next read."""
        self._ahead = data + self._ahead

    async def exactly(self, count: int) -> bytes:
        """Raises EOFError and OSError."""
        pieces, left = [], count
        while left > 0:
            if not (piece := await self.read()):
                raise EOFError
            pieces.append(piece[:left])
            if len(piece) > left:
                self.unread(piece[left:])
            left -= len(piece)
        return b"".join(pieces)

    async def line(self, most: int) -> bytes:
        """Up to the next newline, and no byte behind it. Raises EOFError, ValueError for a longer one, and OSError."""
        data = await self._reader.readline()
        if len(data) > most:
            raise ValueError("the line is too long")
        if not data.endswith(b"\n"):
            raise EOFError
        return data

    async def write(self, data: bytes) -> None:
        """Returns when there is room for more. Raises OSError."""
        self._writer.write(data)
        await self._writer.drain()

    def send(self, data: bytes) -> None:
        """A few bytes for which there is always room."""
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.write(data)

    def say(self, report: Mapping[str, Any]) -> None:
        """Tells the executor whose program this is; the program does not see it. Only pieces have room for it."""

    def carried(self, sent: int, received: int) -> None:
        """Tells an executor that does not carry it how much went to the host and came from it, once that is over."""

    async def has_ended(self) -> bool:
        """Whether both directions have ended as they should. Here no end is waited for. Raises OSError and EOFError."""
        return False

    async def drained(self) -> None:
        """Reads and drops what still comes, for a while: a program reads a refusal before it has said all.

        Raises OSError and EOFError.
        """
        left = MOST_UNREAD
        async with asyncio.timeout(UNREAD_SECONDS):
            while left >= 0 and (data := await self.read()):
                left -= len(data)

    def end(self) -> None:
        """No more is sent."""
        with contextlib.suppress(OSError, RuntimeError):
            if self._writer.can_write_eof():
                self._writer.write_eof()

    def close(self) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.close()

    def abort(self) -> None:
        """Drops what was not sent; the other end sees a reset."""
        self._writer.transport.abort()


async def carry(
    source: Peer, target: Peer, moved: Callable[[int], None], passed: Callable[[bytes], bytes] | None = None
) -> None:
    """Carries bytes to the source's end, and tells that end. `moved` hears of each piece; `passed` says what goes on.

    Raises OSError, and what `passed` raises.
    """
    while data := await source.read():
        moved(len(data))
        if piece := passed(data) if passed else data:
            await target.write(piece)
    target.end()
