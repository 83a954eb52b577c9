"""A connection to a host, over which requests are written by h11, one after the other where that is safe."""

import asyncio

import h11

from sandfleet_operator.fleet.egress.sessions import Connection
from sandfleet_operator.plan.egress.refusals import RefusedError, Why

MAX_HEAD = 64 << 10
# Each request that could hide in a body has this word in its first line.
VERSION = b"http/"


class Upstream:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._conn = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
        # An answer was here before.
        self._is_used = False
        # This answer has begun.
        self._has_answered = False
        # A host that answers without reading the body takes it for more requests: the next one, with its key, could
        # become part of those.
        self.hides_request = False
        self._tail = b""

    async def send(self, *events: h11.Event) -> None:
        """Raises OSError."""
        out = []
        for event in events:
            if isinstance(event, h11.Data):
                text = self._tail + bytes(event.data).lower()
                self.hides_request = self.hides_request or VERSION in text
                self._tail = text[1 - len(VERSION) :]
            out.append(self._conn.send(event) or b"")
        if data := b"".join(out):
            self.connection.sent(len(data))
            await self.connection.outer.write(data)

    def next(self) -> object:
        """What has come of the answer; h11.NEED_DATA: no more yet. Raises RefusedError and OSError."""
        try:
            return self._conn.next_event()
        except h11.RemoteProtocolError:
            if self._is_used and not self._has_answered:
                # It was closed as the request went out: a program that keeps connections knows that, and asks again.
                raise ConnectionResetError from None
            raise RefusedError(Why.UNREACHABLE, self.connection.place) from None

    async def hear(self) -> None:
        """Waits for more of the answer. Raises OSError."""
        data = await self.connection.outer.read()
        self._has_answered = self._has_answered or bool(data)
        self.connection.received(len(data))
        self._conn.receive_data(data)

    def leave(self) -> None:
        """HTTP is over: what has come behind the answer is read again."""
        self.connection.outer.unread(self._conn.trailing_data[0])

    async def is_ready(self) -> bool:
        """Whether another request may follow: both have said all, and the host has neither closed nor said more."""
        states = {self._conn.our_state, self._conn.their_state}
        if states != {h11.DONE} or self.hides_request or self._conn.trailing_data[0]:
            return False
        reading = asyncio.ensure_future(self.connection.outer.read())
        # It runs up to where it waits.
        await asyncio.sleep(0)
        if reading.done():
            await asyncio.gather(reading, return_exceptions=True)
            return False
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        self._conn.start_next_cycle()
        self._is_used = True
        self._has_answered = False
        self._tail = b""
        return True
