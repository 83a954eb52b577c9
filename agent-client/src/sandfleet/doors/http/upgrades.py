"""WebSockets: after the sandbox has agreed, bytes are passed both ways, whatever they mean."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import suppress
from typing import Any

import h11

from sandfleet.doors.http import headers
from sandfleet.doors.http.headers import Answer, Asked
from sandfleet.doors.http.previews import MOST_HEAD, PIECE, Previews, next_event
from sandfleet.doors.http.sandboxes import Stream
from sandfleet.errors import SandfleetError
from sandfleet.resources.links import Place

_UPGRADE = [(b"connection", b"Upgrade"), (b"upgrade", b"websocket")]


class Upgrade(asyncio.StreamReaderProtocol):
    """The protocol to which uvicorn gives a connection whose request asks for a WebSocket."""

    def __init__(self, previews: Previews, connections: set[Any]) -> None:
        """Belong to the connections for which the server waits at its end."""
        super().__init__(asyncio.StreamReader(), self._begun)
        self._previews = previews
        self._connections = connections
        self._writer: asyncio.StreamWriter | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._connections.add(self)
        super().connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        """Be no longer waited for."""
        self._connections.discard(self)
        super().connection_lost(error)

    def shutdown(self) -> None:
        """End at once: a WebSocket lasts as long as its page, and pages connect again."""
        if self._writer:
            self._writer.close()

    async def _begun(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        with suppress(OSError):
            answer = await self._served(reader, writer)
            if answer:
                writer.write(_plain(answer))
                await writer.drain()
        writer.close()

    async def _served(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Answer | None:
        asked = _asked(await reader.readuntil(b"\r\n\r\n"), writer)
        goal = self._previews.goal(asked)
        if isinstance(goal, Answer):
            return goal
        if asked.all(b"content-length") or asked.all(b"transfer-encoding"):
            return Answer(400, "cannot open a WebSocket: its request has a body")
        if any(origin != b"http://" + asked.host.encode("latin-1") for origin in asked.all(b"origin")):
            return Answer(403, "cannot open a WebSocket: a page of another origin asks for it")
        is_open = False
        try:
            async with self._previews.sandboxes.dialled(goal.sandbox_id, goal.port) as stream:
                head, rest = await _agreed(asked, stream)
                writer.write(head)
                is_open = True
                await _both_ways(reader, writer, stream, rest)
        except (SandfleetError, h11.RemoteProtocolError, OSError, TimeoutError) as error:
            return None if is_open else await self._failure(goal, error)
        return None

    async def _failure(self, place: Place, error: Exception) -> Answer:
        return await self._previews.failure(place, error)


def _asked(head: bytes, writer: asyncio.StreamWriter) -> Asked:
    browser = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEAD)
    browser.receive_data(head)
    request = browser.next_event()
    assert isinstance(request, h11.Request), "uvicorn has read it before"
    return Asked(request.method, request.target, [*request.headers], writer.get_extra_info("peername")[0])


async def _agreed(asked: Asked, stream: Stream) -> tuple[bytes, bytes]:
    """Let the sandbox answer; return the head for the browser, and what follows. Raises what is no agreement."""
    upstream = h11.Connection(h11.CLIENT, max_incomplete_event_size=MOST_HEAD)
    request_id = uuid.uuid4().hex.encode()
    fields = headers.for_sandbox(asked, request_id) + _UPGRADE
    await stream.send(upstream.send(h11.Request(method=asked.method, target=asked.target, headers=fields)) or b"")
    await stream.send(upstream.send(h11.EndOfMessage()) or b"")
    event = await next_event(upstream, stream)
    if not isinstance(event, h11.InformationalResponse) or event.status_code != 101:
        # Bytes of the browser must not become requests that were never checked.
        status = event.status_code if isinstance(event, h11.Response | h11.InformationalResponse) else 0
        raise h11.RemoteProtocolError(f"it does not open a WebSocket (status {status})")
    lines = [b"HTTP/1.1 101 Switching Protocols"]
    lines += [name + b": " + value for name, value in headers.for_browser([*event.headers], request_id) + _UPGRADE]
    return b"\r\n".join([*lines, b"", b""]), upstream.trailing_data[0]


async def _both_ways(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, stream: Stream, rest: bytes) -> None:
    async def down() -> None:
        data = rest
        while data or (data := await stream.reader.read(PIECE)):
            writer.write(data)
            await writer.drain()
            data = b""

    async def up() -> None:
        while data := await reader.read(PIECE):
            await stream.send(data)

    tasks = {asyncio.ensure_future(up()), asyncio.ensure_future(down())}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _plain(answer: Answer) -> bytes:
    server = h11.Connection(h11.SERVER)
    fields = [*answer.head(), (b"connection", b"close")]
    head = server.send(h11.Response(status_code=answer.status, headers=fields, reason=b"")) or b""
    return head + (server.send(h11.Data(answer.body)) or b"")
