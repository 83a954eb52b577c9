"""Pass requests on to ports of sandboxes, each by a connection of its own: nothing of one request reaches another."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

import h11

from sandfleet.doors.http import headers
from sandfleet.doors.http.headers import Answer, Asked, admitted
from sandfleet.doors.http.sandboxes import Sandboxes, Stream
from sandfleet.errors import LimitReached, NotFoundError, SandboxEnded, SandfleetError
from sandfleet.resources.links import Place

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

# Bytes of a request's or an answer's head.
MOST_HEAD = 64 * 1024
PIECE = 256 * 1024


class Previews:
    """An ASGI application: browsers on one side, sandboxes on the other."""

    def __init__(self, key: bytes, is_draining: Callable[[], bool]) -> None:
        """Let in what `key` has signed."""
        self._key = key
        self._is_draining = is_draining
        self.sandboxes = Sandboxes()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        asked = head_of(scope)
        request_id = uuid.uuid4().hex.encode()
        goal = self.goal(asked)
        if isinstance(goal, Place):
            exchange = _Exchange(asked, request_id, receive, send)
            try:
                async with self.sandboxes.dialled(goal.sandbox_id, goal.port) as stream:
                    return await exchange.run(stream)
            except (SandfleetError, h11.RemoteProtocolError, OSError, TimeoutError) as error:
                if exchange.is_begun:
                    # Without its end, the browser sees that the answer is not whole.
                    return None
                goal = await self.failure(goal, error)
        await send({"type": "http.response.start", "status": goal.status, "headers": _head(goal, request_id)})
        await send({"type": "http.response.body", "body": goal.body})
        return None

    def goal(self, asked: Asked) -> Place | Answer:
        """Return where a request is to go, or what this server answers itself."""
        goal = admitted(asked, self._key, time.time())
        if isinstance(goal, Answer) and goal.status == 404 and asked.method in (b"GET", b"HEAD"):
            if asked.target == b"/healthz":
                return Answer(200, "ok")
            if asked.target == b"/readyz":
                return Answer(503, "draining") if self._is_draining() else Answer(200, "ready")
        return goal

    async def failure(self, place: Place, error: Exception) -> Answer:
        """Say why a request cannot be passed on."""
        if isinstance(error, SandboxEnded | NotFoundError):
            return Answer(404, f"There is no such sandbox: {error}")
        if isinstance(error, LimitReached):
            return Answer(503, str(error), [(b"retry-after", b"1")])
        if not isinstance(error, SandfleetError):
            return Answer(502, f"cannot read the answer of port {place.port}: {error}")
        if error.reason != "ConnectionRefused":
            return Answer(502, str(error))
        log = await self.sandboxes.log_end(place.sandbox_id)
        return Answer(502, f"No program listens on port {place.port} of the sandbox.\n\n{log}".rstrip())


def head_of(scope: Message) -> Asked:
    """Return the head of a request."""
    target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    return Asked(scope["method"].encode(), target, scope["headers"], scope["client"][0])


class _Exchange:
    """A request and its answer, both passed on as they come."""

    def __init__(self, asked: Asked, request_id: bytes, receive: Receive, send: Send) -> None:
        self._asked = asked
        self._request_id = request_id
        self._receive = receive
        self._send = send
        self._upstream = h11.Connection(h11.CLIENT, max_incomplete_event_size=MOST_HEAD)
        self.is_begun = False

    async def run(self, stream: Stream) -> None:
        """Pass both on; end when the answer has ended, or the browser has gone. Raises what went wrong."""
        asked = self._asked
        fields = [*headers.for_sandbox(asked, self._request_id), (b"connection", b"close")]
        head = h11.Request(method=asked.method, target=asked.target, headers=fields)
        await stream.send(self._upstream.send(head) or b"")
        up, down = asyncio.ensure_future(self._up(stream)), asyncio.ensure_future(self._down(stream))
        try:
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            if down.done():
                down.result()
        finally:
            up.cancel()
            down.cancel()
            await asyncio.gather(up, down, return_exceptions=True)

    async def _up(self, stream: Stream) -> None:
        """Pass the body on, and return when the browser has gone."""
        while (message := await self._receive())["type"] != "http.disconnect":
            # The sandbox may answer and stop reading before the body has ended: the answer still counts.
            with suppress(OSError, h11.LocalProtocolError):
                if data := message.get("body"):
                    await stream.send(self._upstream.send(h11.Data(data)) or b"")
                if not message.get("more_body") and self._upstream.our_state is h11.SEND_BODY:
                    await stream.send(self._upstream.send(h11.EndOfMessage()) or b"")

    async def _down(self, stream: Stream) -> None:
        while not isinstance(event := await next_event(self._upstream, stream), h11.EndOfMessage):
            if isinstance(event, h11.Response):
                self.is_begun = True
                fields = headers.for_browser([*event.headers], self._request_id)
                await self._send({"type": "http.response.start", "status": event.status_code, "headers": fields})
            elif isinstance(event, h11.Data):
                await self._send({"type": "http.response.body", "body": bytes(event.data), "more_body": True})
        await self._send({"type": "http.response.body", "body": b""})


async def next_event(upstream: h11.Connection, stream: Stream) -> h11.Event:
    """Return what a sandbox has sent next. Raises RemoteProtocolError, SandfleetError, OSError, TimeoutError."""
    while (event := upstream.next_event()) is h11.NEED_DATA:
        if not (data := await stream.reader.read(PIECE)):
            # A broken tunnel must not look like the end of an answer that has no length.
            await stream.confirm()
        upstream.receive_data(data)
    if isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
        raise h11.RemoteProtocolError("it ended the connection before its answer")
    assert not isinstance(event, type)
    return event


def _head(answer: Answer, request_id: bytes) -> list[tuple[bytes, bytes]]:
    return [*answer.head(), (headers.REQUEST_ID, request_id)]
