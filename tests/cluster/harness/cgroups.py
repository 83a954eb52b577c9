"""The cluster's own control groups, made before the kubelet needs them and removed when all in them has ended."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from .layout import ClusterError
from .machine import Machine
from .processes import wait_until

PATIENCE_SECONDS = 10
# What the kubelet needs to be handed down in version 2, where a parent has to allow each controller.
CONTROLLERS = ("cpuset", "cpu", "io", "memory", "hugetlb", "pids")


def make(machine: Machine, name: str) -> None:
    for root in machine.cgroup_roots:
        if machine.cgroups == 2:
            _hand_down(root)
        (root / name).mkdir(exist_ok=True)
        if machine.cgroups == 2:
            _hand_down(root / name)


def _hand_down(group: Path) -> None:
    available = (group / "cgroup.controllers").read_text().split()
    already = (group / "cgroup.subtree_control").read_text().split()
    wanted = [f"+{name}" for name in CONTROLLERS if name in available and name not in already]
    if wanted:
        (group / "cgroup.subtree_control").write_text(" ".join(wanted))


def remove(machine: Machine, name: str) -> None:
    """Raises ClusterError when something still runs in them."""
    for group in (root / name for root in machine.cgroup_roots):
        if not wait_until(functools.partial(_removed, group), PATIENCE_SECONDS):
            raise ClusterError(f"cannot remove the control group {group}: something in it does not end")


def _removed(group: Path) -> bool:
    for directory, _, _ in os.walk(group, topdown=False):
        try:
            Path(directory).rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return not group.exists()
