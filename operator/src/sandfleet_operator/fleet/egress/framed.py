"""The executor's end of a connection, over TLS: each piece behind its length, so that each direction ends by itself."""

import contextlib

from sandfleet_operator.fleet.egress.peer import PIECE_BYTES, Peer

LENGTH_BYTES = 4
END = bytes(LENGTH_BYTES)
# The executor reads as much at once as this process does.
MAX_PIECE = 2 * PIECE_BYTES


class FramedPeer(Peer):
    _is_over = False

    async def read(self) -> bytes:
        if self._ahead:
            data, self._ahead = self._ahead, b""
            return data
        if self._is_over:
            return b""
        size = int.from_bytes(await self._reader.readexactly(LENGTH_BYTES))
        if size > MAX_PIECE:
            raise ValueError("the piece is too long")
        self._is_over = not size
        return await self._reader.readexactly(size)

    async def write(self, data: bytes) -> None:
        self._writer.write(len(data).to_bytes(LENGTH_BYTES) + data)
        await self._writer.drain()

    def end(self) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.write(END)
