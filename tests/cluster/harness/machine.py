"""What a machine has to have, what is installed on it from Debian, and what it cannot be helped with."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .layout import ClusterError

# The command (or file) that is looked for, and the Debian package that brings it.
PACKAGES: Mapping[str, str] = {
    "runc": "runc",
    "/usr/lib/cni/ptp": "containernetworking-plugins",
    "iptables": "iptables",
    "nft": "nftables",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "/bin/busybox": "busybox-static",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "mount": "mount",
}
CAP_SYS_RESOURCE = 24
CLONE_NEWNET = 0x40000000


@dataclass(frozen=True)
class Machine:
    """What the cluster adapts to."""

    cgroups: int
    cgroup_roots: tuple[Path, ...]
    may_raise_limits: bool


def _present(thing: str) -> bool:
    return Path(thing).exists() if thing.startswith("/") else shutil.which(thing) is not None


def missing_packages() -> list[str]:
    return sorted({package for thing, package in PACKAGES.items() if not _present(thing)})


def _installing(packages: list[str]) -> str:
    return f"installing from Debian: {' '.join(packages)}"


def planned() -> dict[str, float]:
    """What `install_packages` will say of the cluster's packages, with its usual seconds."""
    return {_installing(packages): 30 for packages in [missing_packages()] if packages}


def install_packages(say: Callable[[str], None], packages: list[str]) -> None:
    """As root, from Debian; raises ClusterError with the list where that is not possible."""
    if not packages:
        return
    if shutil.which("apt-get") is None:
        raise ClusterError(
            f"cannot start a cluster: {', '.join(packages)} missing, and there is no apt-get to install them"
        )
    say(_installing(packages))
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages],
    ):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ClusterError(f"cannot start a cluster: {' '.join(command)}: {done.stderr.strip()[-1000:]}")


def cgroups(mountinfo: str) -> tuple[int, tuple[Path, ...]]:
    """The version that the kubelet will use, and where it wants its groups: one place, or each v1 hierarchy."""
    first: list[tuple[Path, bool]] = []
    second: list[Path] = []
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(" - ")
        kind, path = rest.split()[0], fields.split()[4]
        if kind == "cgroup2":
            second.append(Path(path))
        elif kind == "cgroup":
            first.append((Path(path), "name=" in rest.split()[2]))
    # A named hierarchy counts no resources: where it is the only one beside version 2, that is what is in use.
    if not all(named for _, named in first):
        # Also in the hierarchy of version 2 that may be there beside them: runtimes use that one too.
        return 1, tuple(dict.fromkeys([*(path for path, _ in first), *second]))
    if second:
        return 2, (second[0],)
    raise ClusterError("cannot start a cluster: no cgroups are mounted on this machine")


def _has_capability(number: int) -> bool:
    lines = Path("/proc/self/status").read_text().splitlines()
    effective = next(line.split()[1] for line in lines if line.startswith("CapEff"))
    return bool(int(effective, 16) >> number & 1)


def _can_make_namespaces() -> bool:
    """Tried in a child, which is gone right after."""
    child = os.fork()
    if child == 0:
        os._exit(0 if ctypes.CDLL(None).unshare(CLONE_NEWNET) == 0 else 1)
    return os.waitpid(child, 0)[1] == 0


# Tried in a network namespace that is gone right after, once the programs are there.
_ABILITIES = (
    ("nftables (CONFIG_NF_TABLES_INET)", "nft add table inet probe"),
    ("iptables with NAT (CONFIG_IP_NF_NAT or CONFIG_NFT_NAT)", "iptables -t nat -A POSTROUTING -j MASQUERADE"),
    ("a readable connection table (CONFIG_NF_CT_NETLINK)", "conntrack --dump"),
    ("pairs of virtual links (CONFIG_VETH)", "ip link add probe0 type veth peer name probe1"),
)


def try_network() -> None:
    """Raises ClusterError that names what the kernel cannot do."""
    for ability, command in _ABILITIES:
        done = subprocess.run(["unshare", "--net", *command.split()], capture_output=True, text=True, check=False)
        if done.returncode:
            raise ClusterError(f"cannot start a cluster: this kernel has no {ability}: {done.stderr.strip()[-300:]}")


def examine() -> Machine:
    """Raises ClusterError, which says what is missing and what to do, when no cluster can run here."""
    if os.uname().sysname != "Linux":
        raise ClusterError("cannot start a cluster: this is not Linux (use kind: make kind-up)")
    if os.geteuid() != 0:
        raise ClusterError("cannot start a cluster: not root (run it with sudo, or use kind: make kind-up)")
    if not _can_make_namespaces():
        raise ClusterError("cannot start a cluster: this root may not make namespaces (CAP_SYS_ADMIN is missing)")
    if (
        "overlay" not in Path("/proc/filesystems").read_text()
        and subprocess.run(["modprobe", "overlay"], check=False).returncode
    ):
        raise ClusterError("cannot start a cluster: the kernel has no overlayfs, on which containerd puts images")
    version, roots = cgroups(Path("/proc/self/mountinfo").read_text())
    return Machine(version, roots, _has_capability(CAP_SYS_RESOURCE))
