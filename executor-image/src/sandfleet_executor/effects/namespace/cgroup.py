"""Cgroups of the sandbox's own, where they are writable: one counts its processes, one counts the memory of user code.

PID 1 of the session is in the first alone, so that the kernel never makes it wait for memory: it is who frees some.
"""

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

from sandfleet_executor.core.limits import Limits

ROOT = Path("/sys/fs/cgroup")
# Above the limit of user code: bubblewrap, the spawner and its supervisors.
OWN_PROCESSES = 48
REMOVE_SECONDS = 2.0
# A younger one may be about to get its first process.
UNUSED_SECONDS = 60.0
# What PID 1 gets of the cgroup of memory, by what it is for; the first that is there. docs.kernel.org: cgroup-v1/memory
# and cgroup-v2. Only version 1 says that its processes wait for memory.
FILES = {
    "procs": ("cgroup.procs",),
    "stat": ("memory.stat",),
    "usage": ("memory.usage_in_bytes", "memory.current"),
    "oom": ("memory.oom_control",),
    "reclaim": ("memory.force_empty",),
}
MODES = {"procs": os.O_WRONLY, "reclaim": os.O_WRONLY, "oom": os.O_RDWR}


@dataclass(frozen=True)
class Groups:
    """Folders; None where none is to be had."""

    processes: Path | None = None
    memory: Path | None = None

    def open_memory(self, opened: contextlib.ExitStack) -> dict[str, int]:
        """Descriptors of the files of the cgroup of memory (FILES); none without one."""
        fds: dict[str, int] = {}
        if self.memory is None:
            return fds
        for purpose, names in FILES.items():
            path = next((path for name in names if (path := self.memory / name).exists()), None)
            if path is not None:
                fds[purpose] = os.open(path, MODES.get(purpose, os.O_RDONLY))
                opened.callback(os.close, fds[purpose])
        return fds

    def remove(self) -> None:
        """Waits a moment for the last process to be gone."""
        end = time.monotonic() + REMOVE_SECONDS
        for folder in (self.memory, self.processes):
            while folder is not None:
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    if time.monotonic() >= end:
                        break
                    time.sleep(0.01)


def make(name: str, limits: Limits) -> Groups:
    """New ones for the sandbox of this uid."""
    processes = _made("pids", f"sandfleet-{name}", {"pids.max": limits.processes + OWN_PROCESSES})
    hard = limits.hard_memory_bytes
    # A process that reaches it waits until PID 1 has ended a tree (version 1), or is slowed down as long (version 2):
    # the kernel would choose another victim.
    memory = _made("memory", f"sandfleet-{name}-memory", {"memory.limit_in_bytes": hard, "memory.oom_control": 1})
    memory = memory or _made("memory", f"sandfleet-{name}-memory", {"memory.high": hard})
    return Groups(processes, memory)


def _made(controller: str, name: str, values: dict[str, int]) -> Path | None:
    for base in candidates(controller):
        folder = base / name
        try:
            folder.mkdir(exist_ok=True)
            for file, value in values.items():
                if not (folder / file).exists():
                    raise FileNotFoundError(file)
                (folder / file).write_text(str(value))
        except OSError:
            with contextlib.suppress(OSError):
                folder.rmdir()
            continue
        return folder
    return None


def candidates(controller: str) -> list[Path]:
    """Folders below which a cgroup with the controller may be made: version 1, then version 2."""
    found = []
    of_v1 = ROOT / controller
    if (of_v1 / "cgroup.procs").exists():
        # Below that of this process, whose own limit holds for it too.
        here = of_v1 / _own_place(controller)
        found.append(here if (here / "cgroup.procs").exists() else of_v1)
    controllers = ROOT / "cgroup.subtree_control"
    with contextlib.suppress(OSError):
        if controller in controllers.read_text().split():
            found.append(ROOT)
    return found


def _own_place(controller: str) -> str:
    """The path of this process's cgroup of version 1; empty if there is none."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controller in controllers.split(","):
                return path.lstrip("/")
    return ""


def sweep() -> None:
    """Removes the empty cgroups of executors that were killed before they could."""
    old = time.time() - UNUSED_SECONDS
    for base in {*candidates("pids"), *candidates("memory")}:
        for folder in base.glob("sandfleet-*"):
            with contextlib.suppress(OSError):
                if folder.stat().st_mtime < old:
                    folder.rmdir()
