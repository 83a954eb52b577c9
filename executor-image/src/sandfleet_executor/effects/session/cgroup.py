"""A pids cgroup of the sandbox's own, where cgroups are writable."""

import contextlib
import time
from pathlib import Path

V1 = Path("/sys/fs/cgroup/pids")
V2 = Path("/sys/fs/cgroup")
# Above the limit of user code: bubblewrap, the spawner and its supervisors.
OWN_PROCESSES = 48
REMOVE_SECONDS = 2.0
# A younger one may be about to get its first process.
UNUSED_SECONDS = 60.0


def make(name: str, processes: int) -> str | None:
    """The folder of a new cgroup, None where none is to be had."""
    for base in candidates():
        folder = base / f"sandfleet-{name}"
        try:
            folder.mkdir(exist_ok=True)
            (folder / "pids.max").write_text(str(processes + OWN_PROCESSES))
        except OSError:
            with contextlib.suppress(OSError):
                folder.rmdir()
            continue
        return str(folder)
    return None


def candidates() -> list[Path]:
    """Folders below which a cgroup with a pids controller may be made: version 1, then version 2."""
    found = [V1] if (V1 / "cgroup.procs").exists() else []
    controllers = V2 / "cgroup.subtree_control"
    with contextlib.suppress(OSError):
        if "pids" in controllers.read_text().split():
            found.append(V2)
    return found


def sweep() -> None:
    """Removes the empty cgroups of executors that were killed before they could."""
    old = time.time() - UNUSED_SECONDS
    for base in candidates():
        for folder in base.glob("sandfleet-*"):
            with contextlib.suppress(OSError):
                if folder.stat().st_mtime < old:
                    folder.rmdir()


def remove(folder: str) -> None:
    """Waits a moment for its last process to be gone."""
    end = time.monotonic() + REMOVE_SECONDS
    while True:
        try:
            Path(folder).rmdir()
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() >= end:
                return
            time.sleep(0.01)
        else:
            return
