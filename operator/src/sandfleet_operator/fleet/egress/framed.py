"""The executor's end of a connection: each piece behind its length, so that each direction ends by itself."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from sandfleet_rules.pieces import AGAIN, END, Kind, Pieces, piece, report

from sandfleet_operator.fleet.egress.peer import Peer, SocketPeer


class FramedPeer(Peer):
    # Whether the executor takes reports: those of earlier releases do not.
    reports = False

    def __init__(self, below: Peer) -> None:
        self.below = below
        self._pieces = Pieces()
        # What they have said and was not read yet.
        self._unread: list[bytes] = []
        self._is_over = self._has_sent_end = False
        # Reports that go with the next bytes, or in the next turn.
        self._said = b""

    async def _next(self) -> bytes:
        while not self._unread and not self._is_over:
            if not (data := await self.below.read()):
                raise EOFError
            self._unread += self._parsed(data)
        return self._unread.pop(0) if self._unread else b""

    def ahead(self) -> list[bytes]:
        unread, self._unread = self._unread, []
        return [*super().ahead(), *unread, *self._parsed(b"".join(self.below.ahead()))]

    @property
    def root(self) -> SocketPeer:
        return self.below.root

    def decoded(self, data: bytes) -> list[bytes]:
        return self._parsed(b"".join(self.below.decoded(data)))

    def encoded(self, data: bytes) -> bytes:
        return self.below.encoded(self._with_reports(piece(data)))

    def _parsed(self, data: bytes) -> list[bytes]:
        """Raises ValueError."""
        found = []
        for kind, said in self._pieces.feed(data):
            # Nothing may follow before the executor was told that it may.
            if kind is Kind.REPORT or self._is_over:
                raise ValueError("it says what no executor says")
            self._is_over = kind is Kind.END
            found.append(said)
        return found

    def _with_reports(self, data: bytes) -> bytes:
        said, self._said = self._said, b""
        return said + data

    async def has_ended(self) -> bool:
        self.end()
        await self.drained()
        return self._is_over and self._pieces.is_between

    def again(self) -> "FramedPeer":
        """The same connection for another greeting, with nothing of the program before."""
        self.below.send(self._with_reports(report(AGAIN)))
        return FramedPeer(self.below)

    def send(self, data: bytes) -> None:
        self.below.send(self._with_reports(piece(data)))

    async def write(self, data: bytes) -> None:
        await self.below.write(self._with_reports(piece(data)))

    def say(self, about: Mapping[str, Any]) -> None:
        if self.reports:
            self._said += report(json.dumps(about, separators=(",", ":")).encode("ascii"))
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        if self._said:
            self.below.send(self._with_reports(b""))

    def end(self) -> None:
        if not self._has_sent_end:
            self._has_sent_end = True
            self.below.send(self._with_reports(END))

    def close(self) -> None:
        # Without it the program would see a reset behind the last byte.
        self.end()
        self.below.close()

    def abort(self) -> None:
        self.below.abort()
