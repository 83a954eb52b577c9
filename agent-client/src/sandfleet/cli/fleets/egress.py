"""`sandfleet egress`: what a sandbox may reach, what it has reached and was refused, and changes of that."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime

from sandfleet import Fleet
from sandfleet import _portal as portal
from sandfleet._fleets import discovery
from sandfleet.cli import OK, sandboxes, table, top
from sandfleet.values import _show
from sandfleet.values.egress import EgressReport, HostUse

_COLUMNS = ("HOST", "STATE", "CONNECTIONS", "SENT", "RECEIVED", "LAST")
_WEB = (80, 443)
# Between two looks.
_SECONDS = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("sandbox", metavar="ID")
    parser.add_argument(
        "--allow", action="append", default=[], metavar="HOST", help="first add this host to the list; may be repeated"
    )
    parser.add_argument(
        "--deny", action="append", default=[], metavar="HOST", help="first remove this entry; may be repeated"
    )
    parser.add_argument("-n", "--namespace", metavar="NS", help="namespace of the sandbox, on a cluster")
    parser.add_argument("-w", "--watch", action="store_true", help="update the view until q")
    parser.add_argument("--json", action="store_true", help="print a JSON object")


def run(options: argparse.Namespace) -> int:
    """Change the list, if asked to, and print the report."""
    sandbox_id = sandboxes.full_id(options.sandbox, options)
    with Fleet(portal.run(discovery.find_fleet_of(sandbox_id))) as fleet:
        report = fleet.get_egress(sandbox_id)
        if options.allow or options.deny:
            _change(fleet, sandbox_id, report, options)
            report = fleet.get_egress(sandbox_id)
        if options.watch:
            top.watch(_looks(fleet, sandbox_id), sys.stdout, as_json=options.json, text=_text, draw=_drawn)
        elif options.json:
            print(json.dumps(_show.to_json(report)))
        else:
            print(_text(report))
    return OK


def _looks(fleet: Fleet, sandbox_id: str) -> Iterator[EgressReport]:
    """Until the sandbox ends, which raises NotFoundError."""
    while True:
        yield fleet.get_egress(sandbox_id)
        time.sleep(_SECONDS)


def _drawn(report: EgressReport, width: int) -> top.Drawn:
    lines = _lines(report, width)
    return lines, [None for _ in lines]


def _text(report: EgressReport) -> str:
    return "\n".join(_lines(report))


def _change(fleet: Fleet, sandbox_id: str, report: EgressReport, options: argparse.Namespace) -> None:
    kept = [name for name in report.names if name not in options.deny]
    fleet.set_egress(sandbox_id, list(dict.fromkeys([*kept, *options.allow])))


def _lines(report: EgressReport, width: int = 0) -> list[str]:
    found = [f"may reach: {', '.join(map(table.plain, report.names)) or 'nothing'}"]
    if report.hosts:
        now = datetime.now(UTC)
        found += table.lines(_COLUMNS, [_row(each, now) for each in report.hosts], width)
    if missing := dict.fromkeys(_entry(each) for each in report.hosts if each.reason == "NotListed"):
        found.append("to allow what was refused: " + " ".join(f"--allow {table.plain(each)}" for each in missing))
    return found


def _row(each: HostUse, now: datetime) -> tuple[str, ...]:
    where = f"{table.plain(each.host)}:{each.port}" if each.host else "others"
    count = f"{each.connections} ({each.open} open)" if each.open else str(each.connections)
    state = f"refused ({each.reason})" if each.reason else "reached"
    return where, state, count, _show.size(each.sent), _show.size(each.received), f"{table.since(each.last, now)} ago"


def _entry(each: HostUse) -> str:
    return each.host if each.port in _WEB else f"{each.host}:{each.port}"
