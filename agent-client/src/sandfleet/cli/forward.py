"""`sandfleet forward SANDBOX PORT[:LOCAL]…`: forward ports of this machine to a sandbox."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from contextlib import ExitStack

from sandfleet import Sandbox
from sandfleet.cli import INTERRUPTED, USAGE, end_at_sigterm, refuse, sandboxes
from sandfleet.errors import SandfleetError

# Seconds between two checks whether the sandbox still exists.
_LOOK = 5.0
_MOST_PORT = 65535
_NUMBER = re.compile(r"-?[0-9]{1,9}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("-n", "--namespace", metavar="NS", help="namespace of the sandbox, on a cluster")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each port")
    parser.add_argument("sandbox", metavar="ID")
    parser.add_argument(
        "ports",
        metavar="PORT[:LOCAL]",
        nargs="+",
        type=_pair,
        help="LOCAL is a port of this machine (default: a free one)",
    )


def _pair(text: str) -> tuple[int, int]:
    port, colon, local = text.partition(":")
    if not (_NUMBER.fullmatch(port) and (not colon or _NUMBER.fullmatch(local))):
        raise argparse.ArgumentTypeError(f"cannot forward {text!r}: it is not PORT[:LOCAL]")
    pair = int(port), int(local) if colon else 0
    if not (1 <= pair[0] <= _MOST_PORT and 0 <= pair[1] <= _MOST_PORT):
        raise argparse.ArgumentTypeError(f"cannot forward {text!r}: ports are 1 to {_MOST_PORT}")
    return pair


def run(options: argparse.Namespace) -> int:
    """Forward until Ctrl-C or SIGTERM (130), or until the sandbox has ended (3); return 2 if a local port is taken."""
    end_at_sigterm()
    with Sandbox.connect(sandboxes.full_id(options.sandbox, options)) as sandbox, ExitStack() as opened:
        for port, local_port in options.ports:
            try:
                made = opened.enter_context(sandbox.forward(port, local_port=local_port, on_error=_say))
            except OSError as error:
                why = os.strerror(error.errno or 0)
                refuse(f"cannot listen on port {local_port}: {why}", error, as_json=options.json)
                return USAGE
            said = {"port": port, "address": made.address}
            print(json.dumps(said) if options.json else f"{made.address} -> {port}", flush=True)
        try:
            while True:
                # Raises when the sandbox has ended.
                sandbox.get_info()
                time.sleep(_LOOK)
        except KeyboardInterrupt:
            return INTERRUPTED


def _say(error: SandfleetError) -> None:
    print(f"sandfleet: {error}", file=sys.stderr, flush=True)
