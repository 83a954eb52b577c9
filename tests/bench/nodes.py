"""What a pod's node knows of it, read on this machine: the node is a set of its namespaces."""

import os
import time
from pathlib import Path

from processes import command_line

CGROUPS = Path("/sys/fs/cgroup")


def _gvisor(words: str, wanted: str) -> int:
    """The pid of a gVisor process of this kind whose command line names `wanted`."""
    lines = ((int(folder.name), command_line(int(folder.name))) for folder in Path("/proc").glob("[0-9]*"))
    return next(pid for pid, line in lines if line.startswith(words) and wanted in line)


def pod_memory(uid: str) -> int:
    """Bytes that the pod's cgroup holds, sentry and gofers included, without files that the kernel keeps for later."""
    sentry = _gvisor("runsc-sandbox", uid)
    groups = dict(line.split(":", 2)[1:] for line in Path(f"/proc/{sentry}/cgroup").read_text().splitlines())
    if "memory" in groups:
        folder, total, cached = (
            CGROUPS / "memory" / groups["memory"][1:],
            "memory.usage_in_bytes",
            "total_inactive_file",
        )
    else:
        folder, total, cached = CGROUPS / groups[""][1:], "memory.current", "inactive_file"
    counts = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    return int((folder / total).read_text()) - int(counts[cached])


def container_age(container: str) -> float:
    """Seconds since the container's gofer, its first process of its own, was started."""
    gofer = _gvisor("runsc-gofer", container)
    ticks = int(Path(f"/proc/{gofer}/stat").read_text().rpartition(") ")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
