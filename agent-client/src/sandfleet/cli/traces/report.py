"""`sandfleet report`: write one page of HTML about a session or a run."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path

from sandfleet.cli import FAILED, OK, refuse
from sandfleet.cli.traces.trace import add_spans, listed
from sandfleet.observe.report import journal
from sandfleet.observe.report.model import report
from sandfleet.observe.report.page import html
from sandfleet.observe.spans.store import read


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument(
        "id", metavar="ID", nargs="?", default="", help="a sandbox, a run or a trace; without it the newest are listed"
    )
    add_spans(parser)
    parser.add_argument(
        "--journal", type=Path, action="append", default=[], metavar="FILE",
        help="the journal of a session: its code and output; may be given several times",
    )  # fmt: skip
    parser.add_argument("--compare", default="", metavar="RUN", help="an earlier run of the same tasks")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="where to write it (report-ID.html)")
    parser.add_argument("--json", action="store_true", help="print what the page says as a JSON object instead")


def run(options: argparse.Namespace) -> int:
    """Write it; return 1 when nothing of that name was traced."""
    if not options.id:
        return listed(options.spans, as_json=options.json)
    recorded = journal.read(options.journal)
    found = report(options.id, read(options.spans, options.id), recorded)
    if not found.sessions:
        refuse(f"no session of {options.id} was traced in {options.spans}", as_json=False)
        return FAILED
    if options.compare:
        found = replace(found, other=report(options.compare, read(options.spans, options.compare), recorded))
    if options.json:
        print(json.dumps(asdict(found)))
        return OK
    name = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in options.id)[:100]
    path = options.output or Path(f"report-{name}.html")
    path.write_text(html(found), encoding="utf-8")
    print(path)
    return OK
