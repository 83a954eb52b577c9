"""The executors of a fleet on this machine, seen from outside."""

import os
import signal
from pathlib import Path

from sandfleet._fleets.embedded import Process


def children(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text().rpartition(") ")[2].split()
        except OSError:
            continue
        if int(words[1]) == parent:
            found.append(int(stat.parent.name))
    return found


def kill_executors(served: Process) -> None:
    """Kill every executor of the fleet: the children of their host, which is a child of the fleet."""
    (host,) = [
        pid for pid in children(served.pid) if b"sandfleet_executor" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    executors = children(host)
    assert executors
    for pid in executors:
        os.kill(pid, signal.SIGKILL)
