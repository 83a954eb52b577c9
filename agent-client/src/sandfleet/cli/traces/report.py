"""`sandfleet report`: write one page of HTML about a session or a run."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path

from sandfleet.cli import FAILED, OK, refuse
from sandfleet.cli.traces.trace import add_spans, listed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument(
        "id", metavar="ID", nargs="?", default="",
        help="a sandbox, a run or a trace, or a file: a run's checkpoint, or a journal; without it the newest are listed",
    )  # fmt: skip
    add_spans(parser)
    parser.add_argument(
        "--journal", type=Path, action="append", default=[], metavar="FILE",
        help="the exported journal of a session; may be given several times; no sandbox is asked for its own then",
    )  # fmt: skip
    parser.add_argument(
        "--compare", default="", metavar="RUN", help="an earlier run of the same tasks, by its id or its checkpoint"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="where to write it (report-ID.html)")
    parser.add_argument("--json", action="store_true", help="print what the page says as a JSON object instead")


def run(options: argparse.Namespace) -> int:
    """Write it; return 1 when nothing is known of that name."""
    if not options.id:
        return listed(options.spans, as_json=options.json)
    from sandfleet.cli.traces.sources import report_of
    from sandfleet.observe.report.page import html

    found = report_of(options.id, options.spans, options.journal)
    if not found.sessions:
        why = " ".join(found.missing[:2])
        refuse(f"nothing is known of {options.id}: {why}", as_json=False)
        return FAILED
    if options.compare:
        found = replace(found, other=report_of(options.compare, options.spans, options.journal))
    if options.json:
        print(json.dumps(asdict(found)))
        return OK
    name = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in options.id)[:100]
    path = options.output or Path(f"report-{name}.html")
    path.write_text(html(found), encoding="utf-8")
    print(path)
    return OK
