"""`sandfleet pool ls`: list the pools of a cluster."""

from __future__ import annotations

import argparse
import os

from sandfleet import Fleet
from sandfleet._fleets import cluster
from sandfleet.cli import table
from sandfleet.values.fleet import PoolInfo

_COLUMNS = ("POOL", "TEMPLATE", "WARM", "TARGET", "STARTING", "CLAIMED", "WAITING", "HIT RATE", "REASON")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("ls", help="list pools", description="List pools, by name.")
    add_namespaces(listing, "pools")
    listing.add_argument("--json", action="store_true", help="print a JSON array")


def add_namespaces(parser: argparse.ArgumentParser, what: str) -> None:
    """Declare of which namespaces `what` is listed."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("-n", "--namespace", metavar="NS", help=f"namespace of the {what}")
    where.add_argument(
        "-A",
        "--all-namespaces",
        action="store_const",
        const="",
        dest="namespace",
        help=f"list the {what} of all namespaces",
    )


def connect(namespace: str | None) -> Fleet:
    """Connect to the fleet that the environment names, else the cluster's: an embedded one would tell nothing."""
    return Fleet.connect(os.environ.get("SANDFLEET_ADDRESS") or cluster.KUBERNETES, namespace=namespace)


def run(options: argparse.Namespace) -> int:
    """List the pools."""
    with connect(options.namespace) as fleet:
        found = fleet.pools(namespace=options.namespace)
    less = ("TEMPLATE", "STARTING", "TARGET")
    return table.listing(found, _COLUMNS, _row, as_json=options.json, drop=less, none="there are no pools")


def _row(pool: PoolInfo) -> tuple[str, ...]:
    counts = (pool.warm, pool.target_warm, pool.starting, pool.claimed, pool.waiting)
    rate = "-" if pool.hit_rate is None else f"{pool.hit_rate:.0%}"
    return (pool.pool_id, pool.template, *map(str, counts), rate, pool.reason or "-")
