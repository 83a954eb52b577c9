"""`sandfleet serve`: previews of what sandboxes serve, and both APIs over HTTP, for programs of this machine."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from sandfleet.cli import OK, USAGE, create, end_at_sigterm, mcp, refuse

if TYPE_CHECKING:
    from sandfleet.doors.mcp.endpoint import Endpoint

_HOST, _PORT = "127.0.0.1", 7800
_IDLE, _MOST_SESSIONS = 1800.0, 100
# A key that lasts longer than one server.
_KEY, _LEAST_KEY = "SANDFLEET_SERVE_KEY", 32
_TEXT = """Previews are served at {address}: sandbox.get_url(PORT) makes links to them. Ctrl-C ends them.
Programs call both APIs there with the key {key}."""
_MCP = " MCP clients connect to /mcp with it."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("--port", type=int, default=_PORT, metavar="N", help=f"0: a free one (default: {_PORT})")
    parser.add_argument(
        "--host",
        default=_HOST,
        metavar="ADDRESS",
        help=f"listen at this IP address (default: {_HOST}, for this machine)",
    )
    parser.add_argument(
        "--allow-origin", action="append", default=[], metavar="ORIGIN", help="let pages like https://app.example.com call; "
        "may be repeated",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print address and key as a JSON object")
    parser.add_argument("--mcp", action="store_true", help="be an MCP server at /mcp, with a sandbox for each session")
    sessions = parser.add_argument_group("sessions of --mcp")
    sessions.add_argument(
        "--idle",
        type=create.duration,
        default=_IDLE,
        metavar="TIME",
        help="end one that was not used so long (default: 30m)",
    )
    sessions.add_argument(
        "--max-sessions", type=int, default=_MOST_SESSIONS, metavar="N", help=f"at a time (default: {_MOST_SESSIONS})"
    )
    mcp.add_sandbox_arguments(sessions)


def run(options: argparse.Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM; return 2 if the port is taken."""
    if find_spec("uvicorn") is None:
        refuse("cannot serve: the server is missing: pip install 'sandfleet[http]'", as_json=options.json)
        return USAGE
    if options.mcp and mcp.lacking():
        return USAGE
    fixed = os.environ.get(_KEY, "")
    if fixed and not (len(fixed) >= _LEAST_KEY and fixed.isascii() and fixed.isprintable()):
        refuse(
            f"cannot serve: {_KEY} has less than {_LEAST_KEY} characters, or others than ASCII", as_json=options.json
        )
        return USAGE
    from sandfleet.doors.http import callers, server
    from sandfleet.resources import links

    end_at_sigterm()
    try:
        family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
        listener = socket.create_server((options.host, options.port), family=family)
    except (OSError, OverflowError) as error:
        why = error.strerror if isinstance(error, OSError) else "ports are 0 to 65535"
        refuse(f"cannot listen on port {options.port}: {why}", error, as_json=options.json)
        return USAGE
    address = (f"[{options.host}]" if ":" in options.host else options.host) + f":{listener.getsockname()[1]}"
    with listener, links.published(listener.getsockname()[1]) as links_key:
        key = fixed or callers.calling_key(links_key)
        says = {"address": address} | ({} if fixed else {"key": key})
        text = _TEXT.format(address=address, key=f"of {_KEY}" if fixed else key) + (_MCP if options.mcp else "")
        print(json.dumps(says) if options.json else text, flush=True)
        endpoint = partial(_endpoint, options) if options.mcp else None
        with suppress(KeyboardInterrupt):
            asyncio.run(server.serve(listener, links_key, key, frozenset(options.allow_origin), endpoint))
    return OK


def _lacking(key: str) -> str:
    """Say what is missing; "" if all is there."""
    if find_spec("uvicorn") is None:
        return "the server is missing: pip install 'sandfleet[http]'"
    if key and not (len(key) >= _LEAST_KEY and key.isascii() and key.isprintable()):
        return f"{_KEY} has fewer than {_LEAST_KEY} characters, or others than ASCII"
    return ""


def _endpoint(options: argparse.Namespace, draining: asyncio.Event) -> Endpoint:
    from sandfleet.doors.mcp.endpoint import Endpoint, by_session

    lifespan = by_session(*mcp.wish(options))
    return Endpoint(lifespan, idle=options.idle, most=options.max_sessions, draining=draining)
