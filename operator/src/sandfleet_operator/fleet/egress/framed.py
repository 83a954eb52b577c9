"""The executor's end of a connection: each piece behind its length, so that each direction ends by itself."""

import json
from collections.abc import Mapping
from typing import Any

from sandfleet_operator.fleet.egress.peer import PIECE_BYTES, Peer

LENGTH_BYTES = 4
END = bytes(LENGTH_BYTES)
# The piece is a report about the connection, as JSON, and no byte of it.
REPORT = 1 << 31
# The executor reads as much at once as this process does.
MAX_PIECE = 2 * PIECE_BYTES


class FramedPeer(Peer):
    _is_over = False
    _has_sent_end = False
    # Whether the executor takes reports: those of earlier releases do not.
    reports = False

    def __init__(self, below: Peer) -> None:
        self.below = below
        # Also after a read that was cancelled: then the place of the next length is lost.
        self._is_within = False

    async def _next(self) -> bytes:
        if self._is_over:
            return b""
        self._is_within = True
        size = int.from_bytes(await self.below.exactly(LENGTH_BYTES))
        if size > MAX_PIECE:
            raise ValueError("the piece is too long")
        data = await self.below.exactly(size)
        self._is_within, self._is_over = False, not size
        return data

    async def has_ended(self) -> bool:
        self.end()
        if not self._is_within:
            await self.drained()
        return self._is_over and not self._is_within

    def again(self) -> "FramedPeer":
        """The same connection for another greeting, with nothing of the program before."""
        self.say({"again": True})
        return FramedPeer(self.below)

    def send(self, data: bytes) -> None:
        self.below.send(len(data).to_bytes(LENGTH_BYTES) + data)

    async def write(self, data: bytes) -> None:
        await self.below.write(len(data).to_bytes(LENGTH_BYTES) + data)

    def say(self, report: Mapping[str, Any]) -> None:
        if self.reports:
            data = json.dumps(report, separators=(",", ":")).encode("ascii")
            self.below.send((len(data) | REPORT).to_bytes(LENGTH_BYTES) + data)

    def end(self) -> None:
        if not self._has_sent_end:
            self._has_sent_end = True
            self.below.send(END)

    def close(self) -> None:
        # Without it the program would see a reset behind the last byte.
        self.end()
        self.below.close()

    def abort(self) -> None:
        self.below.abort()
