"""`sandfleet serve`: previews of what sandboxes serve, and both APIs over HTTP, for programs of this machine."""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
from contextlib import suppress
from importlib.util import find_spec

from sandfleet.cli import OK, USAGE, end_at_sigterm, refuse

_HOST, _PORT = "127.0.0.1", 7800
_TEXT = """Previews are served at {address}: sandbox.get_url(PORT) makes links to them. Ctrl-C ends them.
Programs call both APIs there with the key {key}."""


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


def run(options: argparse.Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM; return 2 if the port is taken."""
    if find_spec("uvicorn") is None:
        refuse("cannot serve: the server is missing: pip install 'sandfleet[http]'", as_json=options.json)
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
    with listener, links.published(listener.getsockname()[1]) as key:
        says = {"address": address, "key": callers.calling_key(key)}
        print(json.dumps(says) if options.json else _TEXT.format(**says), flush=True)
        # uvicorn raises the signal again when it has drained.
        with suppress(KeyboardInterrupt):
            asyncio.run(server.serve(listener, key, frozenset(options.allow_origin)))
    return OK
