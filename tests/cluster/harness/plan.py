"""What a cluster is on disk: its plan, its lock, and the record of its first process."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .layout import ClusterError, Layout
from .processes import Process, alive, kill, wait_until

Say = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """What a cluster is, in its directory; a cluster with another digest is ended and made anew."""

    digest: str
    block: str
    made_directories: tuple[str, ...]
    """Mount points that this machine did not have; `down` removes them."""
    python: str
    """Of the clone whose files run on the node: a cluster that has lost them is made anew."""

    def is_whole(self) -> bool:
        return Path(self.python).exists()


def read_plan(layout: Layout) -> Plan | None:
    try:
        value = json.loads(layout.plan.read_text())
        return Plan(value["digest"], value["block"], tuple(value["made_directories"]), value["python"])
    except (FileNotFoundError, ValueError, KeyError):
        return None


def write(path: Path, content: str) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_text(content)
    partial.replace(path)


def refuse_foreign(layout: Layout) -> None:
    """Raises ClusterError when the directory has contents that are no cluster's."""
    names = [path.name for path in layout.root.iterdir()] if layout.root.is_dir() else []
    if layout.plan.name not in names and (
        foreign := [name for name in names if not name.startswith(("lock", layout.plan.name))]
    ):
        raise ClusterError(f"cannot start a cluster in {layout.root}: it holds something else ({foreign[0]})")


@contextmanager
def alone(layout: Layout) -> Iterator[None]:
    """One `up` or `down` of a cluster at a time; the directory may be removed while another one waits."""
    while True:
        layout.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = layout.root / "lock"
        with path.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if path.exists() and path.stat().st_ino == os.fstat(lock.fileno()).st_ino:
                yield
                return


def recorded(layout: Layout) -> Process | None:
    """The node's first process, as this machine numbers it, if it still lives."""
    try:
        process = Process(**json.loads(layout.record.read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return process if alive(process) else None


def end_node(layout: Layout) -> None:
    """The kernel ends all that the node has started with it."""
    if process := recorded(layout):
        kill(process)
        if not wait_until(lambda: not alive(process), 30):
            raise ClusterError(f"cannot end the node: process {process.pid} does not go away")
    layout.record.unlink(missing_ok=True)
