"""`sandfleet sandboxes services|logs`: the services of a sandbox, and their logs."""

from __future__ import annotations

import argparse
import json
import sys

from sandfleet import Sandbox
from sandfleet.cli import OK, print_json, table
from sandfleet.cli.terminal import output
from sandfleet.values.services import LogPiece, Service

_COLUMNS = ("SERVICE", "STATE", "RESTARTS", "PID", "PORTS", "STARTED", "WHY")
_WIDTH = 80


def show(sandbox_id: str, options: argparse.Namespace) -> int:
    """List the services of a sandbox."""
    with Sandbox.connect(sandbox_id, keep_alive=False) as sandbox:
        found = sandbox.services.list()
    return table.listing(found, _COLUMNS, _row, as_json=options.json)


def _row(one: Service) -> tuple[str, ...]:
    ports = "?" if one.ports is None else ",".join(map(str, one.ports)) or "-"
    why = table.plain(one.message if len(one.message) <= _WIDTH else f"{one.message[: _WIDTH - 1]}…")
    return (
        table.plain(one.name),
        one.state,
        str(one.restarts),
        str(one.pid or "-"),
        ports,
        table.moment(one.started),
        why or "-",
    )


def logs(sandbox_id: str, options: argparse.Namespace) -> int:
    """Show the log of a service; with --follow also new output."""
    with Sandbox.connect(sandbox_id, keep_alive=False) as sandbox, output.opened(options) as outputs:
        if options.follow:
            for piece in sandbox.services.logs(options.service, follow=True, tail=options.tail):
                _show_piece(piece, None if options.json else outputs)
            return OK
        text = sandbox.services.logs(options.service, tail=options.tail)
        if options.json:
            print(json.dumps({"log": text}))
        else:
            outputs.stdout.text(text)
    return OK


def _show_piece(piece: LogPiece, outputs: output.Outputs | None) -> None:
    if outputs is None:
        print_json(piece)
    elif piece.dropped_bytes:
        print(f"sandfleet: {piece.dropped_bytes} bytes are missing here", file=sys.stderr)
    else:
        outputs.stdout.data(piece.data)
