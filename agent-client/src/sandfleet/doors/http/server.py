"""The server of `sandfleet serve`."""

from __future__ import annotations

import socket
import uuid
from typing import Any

import uvicorn

from sandfleet.doors.http import callers
from sandfleet.doors.http.headers import REQUEST_ID, Headers
from sandfleet.doors.http.previews import MOST_HEAD, Message, Previews, Receive, Send, head_of
from sandfleet.doors.http.rpcs import Rpcs
from sandfleet.doors.http.upgrades import Upgrade
from sandfleet.resources.links import place_at

# Connections at the same time; more are answered with 503.
_MOST_CONNECTIONS = 1000
# Seconds that requests have to end in after SIGTERM.
_DRAIN = 30


class Doors:
    """The ASGI application: previews by their hosts, and calls that have the key."""

    def __init__(self, previews: Previews, key: bytes, origins: frozenset[str]) -> None:
        """Let in callers with the key that is made from `key`, and their pages of these origins."""
        self._previews = previews
        self._key = callers.calling_key(key)
        self._origins = origins
        self._rpcs = Rpcs(previews.sandboxes)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request."""
        asked = head_of(scope)
        if place_at(asked.host) is not None or asked.method not in (b"POST", b"OPTIONS"):
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
        await self._rpcs.answer(asked, receive, send, fields)
        return None


async def _answer(send: Send, status: int, fields: Headers, body: bytes = b"") -> None:
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})


async def serve(listener: socket.socket, key: bytes, origins: frozenset[str]) -> None:
    """Serve until SIGTERM or Ctrl-C, and let requests that run end."""

    def upgraded(config: Any, server_state: Any, app_state: Any) -> Upgrade:  # noqa: ARG001  # uvicorn's names
        return Upgrade(previews, server_state.connections)

    previews = Previews(key, lambda: server.should_exit)
    config = uvicorn.Config(
        Doors(previews, key, origins),
        http="h11",
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
    server = uvicorn.Server(config)
    try:
        await server.serve([listener])
    finally:
        await previews.sandboxes.close()
