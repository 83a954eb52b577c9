"""Cgroups of the sandbox's own, where they are writable: one counts its processes; others, in which is user code alone,
count its memory and give it a share of the processors.

PID 1 of the session is in none of those, so that the kernel never makes it wait for memory, and code never for a
processor: it is who ends what uses too much.
"""

import contextlib
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sandfleet_executor.core.limits import Limits

ROOT = Path("/sys/fs/cgroup")
# The cgroup above user code of all sandboxes. Together they have the weight of one busy session of the machine: control
# plane and executors have their turn, however many sandboxes are busy.
EVERY = "sandfleet"
CODE = ("memory", "cpu")
# Above the limit of user code: bubblewrap, the spawner and its supervisors.
OWN_PROCESSES = 48
REMOVE_SECONDS = 2.0
# Microseconds in which code uses up its quota of the processors.
PERIOD = 100_000
Values = dict[str, int | str]
# A younger one may be about to get its first process.
UNUSED_SECONDS = 60.0
# Another executor may remove the cgroup above in the moment in which it is empty.
TRIES = 3
# What PID 1 gets of the cgroup of memory, by what it is for; the first that is there. docs.kernel.org: cgroup-v1/memory
# and cgroup-v2. Only version 1 says that its processes wait for memory.
FILES = {
    "stat": ("memory.stat",),
    "usage": ("memory.usage_in_bytes", "memory.current"),
    "oom": ("memory.oom_control",),
    "reclaim": ("memory.force_empty",),
}
MODES = {"reclaim": os.O_WRONLY, "oom": os.O_RDWR}


@dataclass(frozen=True)
class Groups:
    """Folders: of the whole session, None where none is to be had; and of user code alone."""

    processes: Path | None = None
    code: tuple[Path, ...] = ()

    def open_memory(self, opened: contextlib.ExitStack) -> dict[str, int]:
        """Descriptors of the files of the cgroup of memory (FILES); none without one."""
        fds: dict[str, int] = {}
        for purpose, names in FILES.items():
            paths = (folder / name for folder in self.code for name in names)
            path = next((path for path in paths if path.exists()), None)
            if path is not None:
                fds[purpose] = _opened(path, MODES.get(purpose, os.O_RDONLY), opened)
        return fds

    def open_doors(self, opened: contextlib.ExitStack) -> list[int]:
        """Descriptors, by each of which a process joins one of the cgroups of user code."""
        return [_opened(folder / "cgroup.procs", os.O_WRONLY, opened) for folder in self.code]

    @property
    def bounds_cpu(self) -> bool:
        """Whether a quota of the processors holds."""
        return any((folder / name).exists() for folder in self.code for name in ("cpu.cfs_quota_us", "cpu.max"))

    @property
    def weighs_cpu(self) -> bool:
        """Whether user code has a share of the processors."""
        return any((folder / name).exists() for folder in self.code for name in ("cpu.shares", "cpu.weight"))

    def limit(self, limits: Limits) -> None:
        """Sets limits that are lower than those that these were made with. Raises OSError.

        Another executor may have swept away what had no process for a while: it is made again.
        """
        if self.processes:
            _make_folder(self.processes)
            _write(self.processes, of_session(limits))
        for folder in self.code:
            _make_folder(folder)
            _write(folder, of_code(limits))

    def remove(self) -> None:
        """Waits a moment for the last process to be gone."""
        end = time.monotonic() + REMOVE_SECONDS
        for folder in (*self.code, self.processes):
            while folder is not None:
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    if time.monotonic() >= end:
                        break
                    time.sleep(0.01)
        for folder in self.code:
            # Unless others have theirs in it.
            with contextlib.suppress(OSError):
                folder.parent.rmdir()


def _opened(path: Path, mode: int, opened: contextlib.ExitStack) -> int:
    fd = os.open(path, mode)
    opened.callback(os.close, fd)
    return fd


def of_session(limits: Limits) -> Values:
    """Values by their files, for the whole session."""
    return {"pids.max": limits.processes + OWN_PROCESSES}


def of_code(limits: Limits) -> Values:
    """Values by their files in both versions, for user code alone."""
    # A process that reaches it waits until PID 1 has ended a tree (version 1), or is slowed down as long (version 2):
    # the kernel would choose another victim.
    hard = limits.hard_memory_bytes
    memory = {"memory.limit_in_bytes": hard, "memory.oom_control": 1, "memory.high": hard}
    return {**memory, **of_cpus(limits.cpus), **of_session(limits)}


def of_cpus(cpus: float) -> Values:
    """The quota of the processors: so much of each period; without one the kernel's word for none."""
    quota = round(cpus * PERIOD)
    return {"cpu.cfs_period_us": PERIOD, "cpu.cfs_quota_us": quota or -1, "cpu.max": f"{quota or 'max'} {PERIOD}"}


def make(name: str, limits: Limits) -> Groups:
    """New ones for the sandbox of this uid."""
    processes = _first((base / f"{EVERY}-{name}" for base in candidates("pids")), "pids", of_session(limits))
    places = [[base / EVERY / name for base in candidates(controller)] for controller in CODE]
    code = [_first(each, controller, of_code(limits)) for each, controller in zip(places, CODE, strict=True)]
    # In version 2 both are the same.
    return Groups(processes, tuple(dict.fromkeys(folder for folder in code if folder)))


def _first(folders: Iterable[Path], controller: str, values: Mapping[str, int | str]) -> Path | None:
    """The first of the folders that can be made as a cgroup with the controller; None where none can."""
    for folder in folders:
        try:
            _make_folder(folder)
            if not any(folder.glob(f"{controller}.*")):
                raise FileNotFoundError(controller)
            _write(folder, values)
        except OSError:
            with contextlib.suppress(OSError):
                folder.rmdir()
            continue
        return folder
    return None


def _make_folder(folder: Path) -> None:
    """With the one above it, which in version 2 has to hand the controllers on."""
    for number in range(TRIES):
        try:
            folder.parent.mkdir(exist_ok=True)
            controllers = folder.parent / "cgroup.subtree_control"
            if folder.parent.name == EVERY and controllers.exists():
                controllers.write_text(" ".join(f"+{name}" for name in ("pids", *CODE)))
            folder.mkdir(exist_ok=True)
        except FileNotFoundError:
            if number == TRIES - 1:
                raise
        else:
            return


def _write(folder: Path, values: Mapping[str, int | str]) -> None:
    """Of the files those that are there: each version and controller has others."""
    for file, value in values.items():
        if (folder / file).exists():
            (folder / file).write_text(str(value))


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
    for base in {base for controller in ("pids", *CODE) for base in candidates(controller)}:
        for folder in (*base.glob(f"{EVERY}-*"), *base.glob(f"{EVERY}/*/"), base / EVERY):
            with contextlib.suppress(OSError):
                if folder.stat().st_mtime < old:
                    folder.rmdir()
