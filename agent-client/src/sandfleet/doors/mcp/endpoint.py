"""The server over streamable HTTP: each session of a client has a sandbox of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from sse_starlette.sse import AppStatus
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from sandfleet.doors.mcp.server import Lifespan, made
from sandfleet.doors.mcp.session import Call, Seats
from sandfleet.doors.seat import Seat
from sandfleet.values.options import CreateOptions


def by_session(template: str, options: CreateOptions, packages: tuple[str, ...]) -> Lifespan:
    """Give each session a sandbox at its first call, which ends with the session."""

    def seat(call: Call) -> Seat:
        # The SDK has this for what ends with a session, and no other way to it.
        connection = call.request_context.session._connection  # noqa: SLF001
        own: Seat | None = connection.state.get("seat")
        if own is None:
            own = connection.state["seat"] = Seat(template, options)
            connection.exit_stack.push_async_callback(own.close)
        return own

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[Seats]:
        yield Seats(seat, packages)

    return lifespan


class Endpoint:
    """An ASGI application whose callers were let in before."""

    def __init__(self, lifespan: Lifespan, *, idle: float, most: int, draining: asyncio.Event) -> None:
        """End sessions that no request has used for `idle` seconds, and have `most` of them at a time."""
        server = made(lifespan)
        # Host and Origin are checked with the key.
        checked = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        server.streamable_http_app(transport_security=checked, session_idle_timeout=idle, max_sessions=most)
        self.sessions = server.session_manager
        # It would cut the answers of calls that run as soon as the server drains.
        AppStatus.enable_automatic_graceful_drain = False
        self._draining = draining

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        request = Request(scope, receive)
        version = request.headers.get(MCP_PROTOCOL_VERSION_HEADER, "")
        if version not in ("", *HANDSHAKE_PROTOCOL_VERSIONS):
            # Later versions have no sessions: the calls of one client could not be told from those of another.
            text = f"cannot serve version {version[:20]}: it has no sessions; {HANDSHAKE_PROTOCOL_VERSIONS[-1]} has"
            return await PlainTextResponse(text, 400)(scope, receive, send)
        serving = asyncio.ensure_future(self.sessions.handle_request(scope, receive, send))
        waits: list[asyncio.Future[Any]] = [serving]
        if request.method == "GET":
            # It would stay open until its client ends it; clients connect again.
            waits.append(asyncio.ensure_future(self._draining.wait()))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
        finally:
            for task in waits:
                task.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        return None
