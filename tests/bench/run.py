"""`make bench`: one JSON line a figure on standard output, a table for people on standard error.

`--only NAME` runs that part alone, and may be given again.
"""

import argparse
import sys

import agents
import cadence
import cells
import claims
import commands
import drivers
import egress
import egress_cluster
import figures
import files
import flood
import footprint
import gateway
import journals
import languages
import parking
import parking_cluster
import pods
import preload
import queues
import reconciler
import rollback
import scale
import scale_cluster
import services
import sessions
import short
import snapshots
import state
import streams
import terminals
import traces
import tunnels
import warm

import tools

PARTS = {
    "cells": cells,
    "cadence": cadence,
    "languages": languages,
    "commands": commands,
    "files": files,
    "tools": tools,
    "traces": traces,
    "tunnel": tunnels,
    "egress": egress,
    "egress-cluster": egress_cluster,
    "gateway": gateway,
    "pty": terminals,
    "footprint": footprint,
    "journal": journals,
    "services": services,
    "preload": preload,
    "sessions": sessions,
    "driver": drivers,
    "agents": agents,
    "streams": streams,
    "state": state,
    "snapshots": snapshots,
    "parking": parking,
    "parking-cluster": parking_cluster,
    "pods": pods,
    "operator": reconciler,
    "queues": queues,
    "flood": flood,
    "claims": claims,
    "short": short,
    "scale": scale,
    "scale-cluster": scale_cluster,
    "warm": warm,
    "rollback": rollback,
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
