"""End a cluster and leave nothing of it; only what its own plan and records name is touched."""

from __future__ import annotations

import shutil
from pathlib import Path

from . import cgroups, machine, network
from .layout import Layout
from .plan import Say, alone, end_node, read_plan


def clear(layout: Layout, here: machine.Machine) -> None:
    """All but the lock; can be repeated after having been cut off, since the plan goes last."""
    end_node(layout)
    network.remove(layout)
    cgroups.remove(here, layout.cgroup)
    plan = read_plan(layout)
    for entry in layout.root.iterdir():
        if entry.name in {"lock", layout.plan.name}:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    for path in plan.made_directories if plan else ():
        if not _is_mounted_somewhere(path):
            _remove_if_empty(Path(path))
    layout.plan.unlink(missing_ok=True)


def _is_mounted_somewhere(path: str) -> bool:
    """By another cluster: the kernel would take its mount away together with the directory."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            lines = (process / "mountinfo").read_text().splitlines()
        except OSError:
            continue
        if any(line.split()[4] == path for line in lines):
            return True
    return False


def _remove_if_empty(path: Path) -> None:
    try:
        path.rmdir()
    except OSError:
        # Another program uses it by now.
        return


def down(layout: Layout, say: Say) -> None:
    """A cluster that is not there is already down."""
    if not layout.plan.exists():
        say("no cluster is there")
        _remove_if_empty(layout.root)
        return
    here = machine.examine()
    with alone(layout):
        say("ending the node")
        clear(layout, here)
        (layout.root / "lock").unlink()
        _remove_if_empty(layout.root)
