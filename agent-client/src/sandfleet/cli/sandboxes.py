"""`sandfleet sandboxes ls`: the sandboxes of this machine."""

from __future__ import annotations

import argparse
import json

from sandfleet import _show
from sandfleet.cli import OK
from sandfleet.sync import Sandbox
from sandfleet.values import SandboxInfo

_COLUMNS = ("SANDBOX", "STATE", "TEMPLATE", "ISOLATION", "LEASE ENDS", "LABELS")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("action", choices=["ls"], help="list them")
    parser.add_argument("--selector", default="", metavar="KEY=VALUE,…", help="only those with these labels")
    parser.add_argument("--json", action="store_true", help="print a JSON array")


def run(options: argparse.Namespace) -> int:
    """List them."""
    found = Sandbox.list(options.selector)
    if options.json:
        print(json.dumps(_show.to_json(found)))
        return OK
    rows = [_COLUMNS, *map(_row, found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return OK


def _row(info: SandboxInfo) -> tuple[str, ...]:
    ends = info.lease_expires.isoformat(sep=" ", timespec="seconds") if info.lease_expires else "-"
    labels = ",".join(f"{key}={value}" for key, value in sorted(info.labels.items())) or "-"
    return (info.sandbox_id, info.state, info.template, info.isolation, ends, labels)
