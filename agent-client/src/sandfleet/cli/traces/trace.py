"""`sandfleet trace`: draw the waterfall of a session or a run."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path

from sandfleet.cli import FAILED, OK, refuse, table
from sandfleet.observe.spans.record import RUN
from sandfleet.observe.spans.store import default_path, newest, read
from sandfleet.observe.spans.tree import trees
from sandfleet.observe.spans.waterfall import waterfall
from sandfleet.values import _show

# Traces of a run that are drawn one below the other.
_MOST = 20
_LISTED = 20
_WIDTH = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument(
        "id", metavar="ID", nargs="?", default="", help="a sandbox, a run or a trace; without it the newest are listed"
    )
    add_spans(parser)
    parser.add_argument("--json", action="store_true", help="print an array of spans")


def add_spans(parser: argparse.ArgumentParser) -> None:
    """Declare where spans are read from."""
    parser.add_argument(
        "--spans", type=Path, default=default_path(), metavar="FILE",
        help="spans that `sandfleet dev --traces` keeps (default), or a file of `demo --trace`",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Draw it; return 1 when nothing of that name was traced."""
    if not options.id:
        return listed(options.spans, as_json=options.json)
    spans = read(options.spans, options.id)
    if options.json:
        print(json.dumps([_show.to_json(span) for span in spans]))
    elif spans:
        width = shutil.get_terminal_size((_WIDTH, 24)).columns
        found = trees(spans)
        for tree in found[:_MOST]:
            for line in waterfall(tree, max(60, width - 1)):
                print(f"\033[31m{line.text}\033[0m" if line.failed and not table.is_plain(sys.stdout) else line.text)
            print()
        if len(found) > _MOST:
            print(f"… {len(found) - _MOST} traces more; `sandfleet report {table.plain(options.id)}` shows all")
    if not spans:
        refuse(f"nothing of {options.id} was traced in {options.spans}", as_json=False)
    return OK if spans else FAILED


def listed(path: Path, *, as_json: bool) -> int:
    """List the newest runs and sandboxes."""
    found = newest(path, _LISTED)[:_LISTED]
    kinds = [
        ("run" if kind == RUN else "sandbox", name, datetime.fromtimestamp(at / 1e9, UTC)) for kind, name, at in found
    ]
    if as_json:
        print(json.dumps([{"kind": kind, "id": name, "began": at.isoformat()} for kind, name, at in kinds]))
        return OK
    now = datetime.now(UTC)
    table.show(("ID", "KIND", "AGE"), [(table.plain(name), kind, table.since(at, now)) for kind, name, at in kinds])
    return OK
