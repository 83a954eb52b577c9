"""The executor's end of a connection: each piece behind its length, so that each direction ends by itself."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from sandfleet_operator.fleet.egress.peer import PIECE_BYTES, Peer, SocketPeer

LENGTH_BYTES = 4
END = bytes(LENGTH_BYTES)
# The piece is a report about the connection, as JSON, and no byte of it.
REPORT = 1 << 31
# The executor reads as much at once as this process does.
MAX_PIECE = 2 * PIECE_BYTES


class FramedPeer(Peer):
    # Whether the executor takes reports: those of earlier releases do not.
    reports = False

    def __init__(self, below: Peer) -> None:
        self.below = below
        # A length that is not all here, and bytes of the present piece that are still to come.
        self._rest, self._left = b"", 0
        # Of pieces that are not read yet.
        self._pieces: list[bytes] = []
        self._is_over = self._has_sent_end = False
        # Reports that go with the next bytes, or in the next turn.
        self._said = b""

    async def _next(self) -> bytes:
        while not self._pieces and not self._is_over:
            if not (data := await self.below.read()):
                raise EOFError
            self._pieces += self._parsed(data)
        return self._pieces.pop(0) if self._pieces else b""

    def ahead(self) -> list[bytes]:
        pieces, self._pieces = self._pieces, []
        return [*super().ahead(), *pieces, *self._parsed(b"".join(self.below.ahead()))]

    @property
    def root(self) -> SocketPeer:
        return self.below.root

    def decoded(self, data: bytes) -> list[bytes]:
        return self._parsed(b"".join(self.below.decoded(data)))

    def encoded(self, data: bytes) -> bytes:
        return self.below.encoded(self._piece(data))

    def _parsed(self, data: bytes) -> list[bytes]:
        """Bytes are not held back until their piece is complete. Raises ValueError."""
        data = self._rest + data
        at = 0
        found: list[bytes] = []
        while at < len(data) and not self._is_over:
            if self._left:
                piece = data[at : at + self._left]
                at, self._left = at + len(piece), self._left - len(piece)
                found.append(piece)
                continue
            if (start := at + LENGTH_BYTES) > len(data):
                break
            self._left = int.from_bytes(data[at:start])
            if self._left > MAX_PIECE:
                raise ValueError("the piece is too long")
            at = start
            if not self._left:
                self._is_over = True
                found.append(b"")
        self._rest = data[at:]
        return found

    def _piece(self, data: bytes) -> bytes:
        said, self._said = self._said, b""
        return said + len(data).to_bytes(LENGTH_BYTES) + data

    async def has_ended(self) -> bool:
        self.end()
        await self.drained()
        # Nothing may follow before the executor was told that it may.
        return self._is_over and not self._rest

    def again(self) -> "FramedPeer":
        """The same connection for another greeting, with nothing of the program before."""
        self.say({"again": True})
        self._tell()
        return FramedPeer(self.below)

    def send(self, data: bytes) -> None:
        self.below.send(self._piece(data))

    async def write(self, data: bytes) -> None:
        await self.below.write(self._piece(data))

    def say(self, report: Mapping[str, Any]) -> None:
        if self.reports:
            data = json.dumps(report, separators=(",", ":")).encode("ascii")
            self._said += (len(data) | REPORT).to_bytes(LENGTH_BYTES) + data
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        if self._said:
            said, self._said = self._said, b""
            self.below.send(said)

    def end(self) -> None:
        if not self._has_sent_end:
            self._has_sent_end = True
            self.below.send(self._piece(b""))

    def close(self) -> None:
        # Without it the program would see a reset behind the last byte.
        self.end()
        self.below.close()

    def abort(self) -> None:
        self.below.abort()
