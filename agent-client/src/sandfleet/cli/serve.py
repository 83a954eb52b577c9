"""`sandfleet serve`: previews of what sandboxes of this machine serve, for its browsers."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
from contextlib import suppress
from importlib.util import find_spec

from sandfleet.cli import OK, USAGE, end_at_sigterm, refuse

_PORT = 7800


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("--port", type=int, default=_PORT, metavar="N", help=f"0: a free one (default: {_PORT})")
    parser.add_argument("--json", action="store_true", help="print the address as a JSON object")


def run(options: argparse.Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM; return 2 if the port is taken."""
    if find_spec("uvicorn") is None:
        refuse("cannot serve: the server is missing: pip install 'sandfleet[http]'", as_json=options.json)
        return USAGE
    from sandfleet.doors.http import server
    from sandfleet.resources import links

    end_at_sigterm()
    try:
        listener = socket.create_server(("127.0.0.1", options.port))
    except (OSError, OverflowError) as error:
        why = os.strerror(error.errno or 0) if isinstance(error, OSError) else "ports are 0 to 65535"
        refuse(f"cannot listen on port {options.port}: {why}", error, as_json=options.json)
        return USAGE
    port = listener.getsockname()[1]
    with listener, links.published(port) as key:
        address = f"127.0.0.1:{port}"
        text = f"Previews are served at {address}: sandbox.get_url(PORT) makes links to them. Ctrl-C ends them."
        print(json.dumps({"address": address}) if options.json else text, flush=True)
        # uvicorn raises the signal again when it has drained.
        with suppress(KeyboardInterrupt):
            asyncio.run(server.serve(listener, key))
    return OK
