"""`make bench`: one JSON line a figure on standard output, a table for people on standard error.

`--only NAME` runs one of: cells, languages, commands, footprint, sessions, pods, operator, claims, warm.
"""

import argparse
import sys

import cells
import claims
import commands
import figures
import footprint
import languages
import pods
import reconciler
import sessions
import warm

PARTS = {
    "cells": cells,
    "languages": languages,
    "commands": commands,
    "footprint": footprint,
    "sessions": sessions,
    "pods": pods,
    "operator": reconciler,
    "claims": claims,
    "warm": warm,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS, action="append")
    chosen = parser.parse_args().only or list(PARTS)
    found: list[figures.Figure] = []
    for name in chosen:
        for figure in PARTS[name].figures():
            found.append(figure)
            print(figures.line(figure), flush=True)
    print(f"\n{figures.table(found)}\n\nmachine: {footprint.environment()}", file=sys.stderr)


if __name__ == "__main__":
    main()
