"""`sandfleet simulate`: what a fleet and its queues would do under a load."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from importlib.util import find_spec

from sandfleet.errors import UnavailableError

POLICIES = ("fair", "fifo", "priority")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument(
        "load",
        nargs="?",
        default="office-day",
        metavar="LOAD",
        help="a YAML file, or the name of a load that comes with sandfleet (default: office-day)",
    )
    parser.add_argument("--list", action="store_true", help="print the names of the loads that come with sandfleet")
    parser.add_argument(
        "--policy",
        action="append",
        choices=POLICIES,
        help="simulate this policy; may be repeated (default: all, the fleet's own, fair, first)",
    )
    parser.add_argument("--draw", default="", metavar="FILE", help="draw shares and waits into this .svg or .png")
    parser.add_argument(
        "--fit",
        type=float,
        metavar="SECONDS",
        help="find the smallest fleet and quotas with which each team's p99 wait is within this time",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object")


def run(options: argparse.Namespace) -> int:
    """Run the simulation in a process of its own: it is a part of the fleet. Raises UnavailableError."""
    if find_spec("sandfleet_operator") is None:
        raise UnavailableError("cannot simulate: install sandfleet[local]", reason="LocalNotInstalled")
    said = {
        "load": options.load,
        "list": options.list,
        "policies": options.policy or POLICIES,
        "draw": options.draw,
        "fit": options.fit,
        "json": options.json,
    }
    # The kernel closes our end when this process ends, in any way, and with it ends the simulation.
    lifeline, own = os.pipe()
    command = [sys.executable, "-P", "-m", "simulation", json.dumps({**said, "lifeline": lifeline})]
    try:
        return subprocess.run(command, pass_fds=(lifeline,), check=False).returncode
    finally:
        os.close(lifeline)
        os.close(own)
