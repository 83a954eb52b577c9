"""Where everything of one cluster is: its directory and its addresses."""

from __future__ import annotations

import hashlib
import ipaddress
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
SOURCES = REPOSITORY / "tests" / "cluster" / "go"
DEFAULT_DIRECTORY = Path("/var/lib/sandfleet-cluster")
NODE_NAME = "sandfleet-node"
PROVISIONER = "sandfleet.test/volumes"
DOMAIN = "cluster.local"
TESTKIT_IMAGE = "localhost/sandfleet-testkit:1"


class ClusterError(Exception):
    """The cluster cannot be started, used or ended; the message says why."""


@dataclass(frozen=True)
class Addresses:
    """All networks lie in one /14; the machine and the node are the two ends of a pair of links."""

    block: str

    def _network(self, index: int) -> ipaddress.IPv4Network:
        return list(ipaddress.IPv4Network(self.block).subnets(new_prefix=16))[index]

    @property
    def link(self) -> str:
        return str(self._network(0))

    @property
    def machine(self) -> str:
        return str(self._network(0)[1])

    @property
    def node(self) -> str:
        return str(self._network(0)[2])

    @property
    def outside(self) -> tuple[str, str]:
        """Two more addresses of the machine that count as strangers, not as the node."""
        return str(self._network(0)[0x0102]), str(self._network(0)[0x0202])

    @property
    def pods(self) -> str:
        return str(self._network(1))

    @property
    def services(self) -> str:
        return str(self._network(2))

    @property
    def kubernetes_service(self) -> str:
        return str(self._network(2)[1])

    @property
    def dns_service(self) -> str:
        return str(self._network(2)[10])


CANDIDATES = tuple(f"10.{second}.0.0/14" for second in (212, 204, 196, 188, 180, 172))


def choose_addresses(routes: Iterable[str]) -> Addresses:
    """The first block that no route of the machine touches; raises ClusterError when there is none."""
    taken = [ipaddress.IPv4Network(route, strict=False) for route in routes]
    for block in CANDIDATES:
        if not any(ipaddress.IPv4Network(block).overlaps(network) for network in taken):
            return Addresses(block)
    raise ClusterError(f"cannot start a cluster: each of {', '.join(CANDIDATES)} is in use by a route of this machine")


@dataclass(frozen=True)
class Layout:
    """The files of a cluster. Everything that it writes is below `root`, but for the cgroups that carry its name."""

    root: Path

    @property
    def identity(self) -> str:
        """Short and stable, for names outside of the directory: links and cgroups."""
        return hashlib.sha256(str(self.root).encode()).hexdigest()[:8]

    @property
    def cgroup(self) -> str:
        return f"sandfleet-cluster-{self.identity}"

    @property
    def machine_link(self) -> str:
        return f"sf-{self.identity}"

    @property
    def kubeconfig(self) -> Path:
        return self.root / "kubeconfig"

    @property
    def plan(self) -> Path:
        return self.root / "cluster.json"

    @property
    def record(self) -> Path:
        return self.root / "supervisor.json"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def pki(self) -> Path:
        return self.root / "pki"

    @property
    def etc(self) -> Path:
        return self.root / "etc"

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def containerd_socket(self) -> Path:
        return self.run / "containerd.sock"

    @property
    def enforcer_socket(self) -> Path:
        return self.run / "enforcer.sock"


def directory(environment: dict[str, str] | None = None) -> Path:
    value = (os.environ if environment is None else environment).get("SANDFLEET_CLUSTER_DIR")
    return Path(value).resolve() if value else DEFAULT_DIRECTORY


def cache(environment: dict[str, str] | None = None) -> Path:
    """The cache of binaries and images: `$SANDFLEET_CACHE`, `$XDG_CACHE_HOME/sandfleet` or `~/.cache/sandfleet`."""
    values = os.environ if environment is None else environment
    if value := values.get("SANDFLEET_CACHE"):
        return Path(value).resolve()
    return Path(values.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sandfleet"
