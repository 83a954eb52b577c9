"""The server of `sandfleet serve`."""

from __future__ import annotations

import socket
from typing import Any

import uvicorn

from sandfleet.doors.http.previews import MOST_HEAD, Previews
from sandfleet.doors.http.upgrades import Upgrade

# Connections at the same time; more are answered with 503.
_MOST_CONNECTIONS = 1000
# Seconds that requests have to end in after SIGTERM.
_DRAIN = 30


async def serve(listener: socket.socket, key: bytes) -> None:
    """Serve until SIGTERM or Ctrl-C, and let requests that run end."""

    def upgraded(config: Any, server_state: Any, app_state: Any) -> Upgrade:  # noqa: ARG001  # uvicorn's names
        return Upgrade(previews, server_state.connections)

    previews = Previews(key, lambda: server.should_exit)
    config = uvicorn.Config(
        previews,
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
