"""The server of `sandfleet serve`."""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import Callable
from contextlib import AsyncExitStack
from types import FrameType
from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from sandfleet.doors.http import callers
from sandfleet.doors.http.headers import REQUEST_ID, Headers
from sandfleet.doors.http.previews import MOST_HEAD, Message, Previews, Receive, Send, head_of
from sandfleet.doors.http.rpcs import Rpcs, described
from sandfleet.doors.http.upgrades import Upgrade
from sandfleet.resources.links import place_at

if TYPE_CHECKING:
    from sandfleet.doors.mcp.endpoint import Endpoint

_MCP, _OPENAPI = "/mcp", "/openapi.json"
# Connections at the same time; more are answered with 503.
_MOST_CONNECTIONS = 1000
# Seconds in which the head of a request has to come.
_HEAD_SECONDS = 10.0
# Seconds that requests have to end in after SIGTERM.
_DRAIN = 30
# Seconds before that at which calls are ended in words.
_LAST_WORDS = 5


class Doors:
    """The ASGI application: previews by their hosts, and calls that have the key."""

    def __init__(self, previews: Previews, key: str, origins: frozenset[str], mcp: Endpoint | None) -> None:
        """Let in callers with the key, and their pages of these origins."""
        self._previews = previews
        self._key = key
        self._origins = origins
        self.rpcs = Rpcs(previews.sandboxes)
        self._mcp = mcp

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request."""
        asked = head_of(scope)
        is_call = asked.method in (b"POST", b"OPTIONS") or asked.path in (_MCP, _OPENAPI)
        if place_at(asked.host) is not None or not is_call:
            return await self._previews(scope, receive, send)
        fields = [
            (REQUEST_ID, uuid.uuid4().hex.encode()),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
            *callers.cross_origin(asked, self._origins),
        ]
        if asked.method == b"OPTIONS":
            return await _answer(send, 204, fields)
        if failure := callers.refusal(asked, self._key, self._origins):
            return await _answer(send, failure.status, [*fields, *failure.fields], failure.body)
        if asked.path == _OPENAPI:
            return await _answer(send, 200, [*fields, (b"content-type", b"application/json")], described())
        if asked.path != _MCP or self._mcp is None:
            return await self.rpcs.answer(asked, receive, send, fields)

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *fields]
            await send(message)

        return await self._mcp(scope, receive, sent)


async def _answer(send: Send, status: int, fields: Headers, body: bytes = b"") -> None:
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})


class _Connection(H11Protocol):
    """A connection that is closed when the head of a request does not come in time, byte by byte or not at all."""

    _limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self._limit = self.loop.call_later(_HEAD_SECONDS, self.timeout_keep_alive_handler)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        is_head = self.conn.their_state is h11.IDLE
        if self._limit and not is_head:
            self._limit.cancel()
            self._limit = None
        elif is_head and not self._limit:
            self._limit = self.loop.call_later(_HEAD_SECONDS, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._limit:
            self._limit.cancel()
        super().connection_lost(exc)


class _Server(uvicorn.Server):
    """A server that says when it drains."""

    def __init__(self, config: uvicorn.Config, draining: asyncio.Event, doors: Doors) -> None:
        super().__init__(config)
        self._draining = draining
        self._doors = doors

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002  # uvicorn's names
        """Begin to end; the second signal does not wait for requests. None is raised again behind the end."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._draining.set()
        asyncio.get_running_loop().call_later(_DRAIN - _LAST_WORDS, self._doors.rpcs.end)
        await super().shutdown(sockets)


async def serve(
    listener: socket.socket,
    links_key: bytes,
    key: str,
    origins: frozenset[str],
    endpoint: Callable[[asyncio.Event], Endpoint] | None,
) -> None:
    """Serve until SIGTERM or Ctrl-C, and let requests that run end. `key` is that of callers."""

    def upgraded(config: Any, server_state: Any, app_state: Any) -> Upgrade:  # noqa: ARG001  # uvicorn's names
        return Upgrade(previews, server_state.connections)

    # Connections inherit it. Without it the end of each answer waits 40 ms for the caller's word on its beginning.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    draining = asyncio.Event()
    previews = Previews(links_key, draining.is_set)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(previews.sandboxes.close)
        mcp = endpoint(draining) if endpoint else None
        if mcp is not None:
            await stack.enter_async_context(mcp.sessions.run())
        doors = Doors(previews, key, origins, mcp)
        config = uvicorn.Config(
            doors,
            http=_Connection,
            ws=upgraded,  # type: ignore[arg-type]  # it is called for a protocol, as a class is
            lifespan="off",
            log_level="critical",
            access_log=False,
            # What a browser says about proxies before this one is no reason to believe it.
            proxy_headers=False,
            server_header=False,
            date_header=False,
            limit_concurrency=_MOST_CONNECTIONS,
            h11_max_incomplete_event_size=MOST_HEAD,
            timeout_graceful_shutdown=_DRAIN,
        )
        await _Server(config, draining, doors).serve([listener])
