"""`sandfleet pool ls`: how the pools of a cluster stand."""

from __future__ import annotations

import argparse
import json
import os

from sandfleet import _show, cluster
from sandfleet.cli import OK, table
from sandfleet.fleet_values import PoolInfo
from sandfleet.sync import Fleet

_COLUMNS = ("POOL", "TEMPLATE", "WARM", "TARGET", "STARTING", "CLAIMED", "WAITING", "HIT RATE", "REASON")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("ls", help="list them", description="List pools, by name.")
    where = listing.add_mutually_exclusive_group()
    where.add_argument("-n", "--namespace", metavar="NS", help="of this namespace")
    where.add_argument(
        "-A", "--all-namespaces", action="store_const", const="", dest="namespace", help="of all of them"
    )
    listing.add_argument("--json", action="store_true", help="print a JSON array")


def run(options: argparse.Namespace) -> int:
    """List them."""
    # Only a cluster has pools that people make, so a fleet of our own is not started for this.
    named = os.environ.get("SANDFLEET_ADDRESS") or cluster.KUBERNETES
    with Fleet.connect(named, namespace=options.namespace) as fleet:
        found = fleet.pools(namespace=options.namespace)
    if options.json:
        print(json.dumps(_show.to_json(found)))
    else:
        table.show(_COLUMNS, map(_row, found))
    return OK


def _row(pool: PoolInfo) -> tuple[str, ...]:
    counts = (pool.warm, pool.target_warm, pool.starting, pool.claimed, pool.waiting)
    rate = "-" if pool.hit_rate is None else f"{pool.hit_rate:.0%}"
    return (pool.pool_id, pool.template, *map(str, counts), rate, pool.reason or "-")
