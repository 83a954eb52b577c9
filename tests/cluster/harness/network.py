"""The one pair of links between the machine and the node, and the routes over it."""

from __future__ import annotations

import json
import subprocess

from .layout import Addresses, ClusterError, Layout
from .node import UPLINK


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"cannot set up the network: {' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def routes_in_use(own_link: str) -> list[str]:
    """The destinations of this machine's routes, but for the default one and the cluster's own."""
    routes = json.loads(run("ip", "-4", "-json", "route", "show", "table", "all") or "[]")
    return [
        route["dst"]
        for route in routes
        if route["dst"] != "default"
        and route.get("dev") != own_link
        and route.get("type") not in {"broadcast", "local"}
    ]


def has_link(name: str) -> bool:
    return subprocess.run(["ip", "link", "show", name], capture_output=True, check=False).returncode == 0


def remove(layout: Layout) -> None:
    """It goes with the node's namespace; this is for what a cut-off start left behind."""
    if has_link(layout.machine_link):
        subprocess.run(["ip", "link", "delete", layout.machine_link], capture_output=True, check=False)


def connect(layout: Layout, addresses: Addresses, node: int) -> None:
    """Join the machine with the network namespace of process `node`."""
    link, prefix = layout.machine_link, addresses.link.split("/")[1]
    remove(layout)
    run("ip", "link", "add", link, "type", "veth", "peer", "name", UPLINK, "netns", str(node))
    for address in (addresses.machine, *addresses.outside):
        run("ip", "address", "add", f"{address}/{prefix}", "dev", link)
    run("ip", "link", "set", link, "up")
    inside = ("nsenter", "--target", str(node), "--net")
    run(*inside, "ip", "link", "set", UPLINK, "up")
    for network in (addresses.pods, addresses.services):
        run("ip", "route", "add", network, "via", addresses.node, "dev", link, "src", addresses.machine)
    run(*inside, "ip", "address", "add", f"{addresses.node}/{prefix}", "dev", UPLINK)
