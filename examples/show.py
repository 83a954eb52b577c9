"""Runs a short show of one thing, on sandboxes of this machine: `python examples/show.py NAME`."""

import argparse
from collections.abc import Sequence
from importlib import import_module

from sandfleet.cli import carried_out

SHOWS = {
    "fork": "one loaded dataset, many attempts at once, each in a copy of the interpreter",
    "resume": "a stream survives its connection and its executor; every step runs once",
    "rollback": "cells that are killed, and variables that are still there",
    "services": "a web application and its database: built, tried through a tunnel, broken, repaired from its log",
    "tools": "code calls tools of its host: twelve in one step, an MCP server, an injection that is stopped, a huge text",
}


def main(words: Sequence[str] | None = None) -> int:
    """Run a show: 0 when it went as it should, 1 when not, and the exit codes of the command `sandfleet`."""
    parser = argparse.ArgumentParser("show.py", description=__doc__)
    parser.add_argument("name", choices=SHOWS, metavar="NAME", help="; ".join(f'"{n}": {s}' for n, s in SHOWS.items()))
    parser.add_argument("--json", action="store_true", help="print only what the show found, as JSON")
    options = parser.parse_args(words)
    show = import_module(f"shows.{options.name}")
    return carried_out(lambda: int(show.main(as_json=options.json)), as_json=options.json)


if __name__ == "__main__":
    raise SystemExit(main())
