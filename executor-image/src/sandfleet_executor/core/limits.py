"""The limits of a sandbox: this table is their only declaration in the executor.

The configuration, the API's messages and the rlimits of user processes are made from it. To add a limit: a line in
`Limits`, a field of the same name in the API's `Limits`, and the code that enforces it, unless that is one of the
kernel's rlimits.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from sandfleet_executor.core.errors import ConfigError

MIB = 1 << 20
GIB = 1 << 30
# Memory that forking a context takes at once under gVisor, which copies in large pieces (measured: 19 MB without any
# data), and the number of processes that every sandbox may have. A fork bomb is faster than the memory guard: the pod
# survives only if all of the bomb fits into its memory.
FORK_BYTES = 20 * MIB
LEAST_PROCESSES = 32
# gVisor counts the executor's own threads, the spawner and what it holds ready with the processes of user code, which
# has the same user there: about 22 at rest, and a busy node makes gRPC start more threads.
OWN_TASKS = 32
# An interpreter needs these to start at all.
LEAST_OPEN_FILES = 64
MAX_CPUS = 1024
# The largest file size that both Linux and gVisor let a process set.
MAX_DISK_BYTES = 1 << 50
# Largest output limit that one execution may ask for, in bytes of each stream.
MAX_OUTPUT_BYTES = 4 << 30
BYTES, SECONDS, COUNT, CPUS = "bytes", "seconds", "count", "cpus"
# The least share of a processor that the kernel takes as a quota, with room.
LEAST_CPUS = 0.05
# Of files in memory.
LEAST_INODES = 16_384
INODE_BYTES = 4096
# What the kernel may use for user code above the limit of its memory, at least.
KERNEL_BYTES = 256 * MIB


@dataclass(frozen=True)
class Bound:
    """What a limit may be: its unit, the least and the most. Every limit is above 0, unless 0 means none."""

    unit: str
    least: float | None = None
    most: float | None = None
    # The kernel's limit that is set to this value in every process of the user ("RLIMIT_NOFILE").
    rlimit: str = ""
    zero_is_none: bool = False


def limit(
    default: float,
    unit: str,
    *,
    least: float | None = None,
    most: float | None = None,
    rlimit: str = "",
    zero_is_none: bool = False,
) -> Any:
    return field(default=default, metadata={"bound": Bound(unit, least, most, rlimit, zero_is_none)})


@dataclass(frozen=True)
class Limits:
    memory_bytes: int = limit(2048 * MIB, BYTES)
    tmp_bytes: int = limit(256 * MIB, BYTES)
    processes: int = limit(256, COUNT, rlimit="RLIMIT_NPROC")
    output_bytes: int = limit(16 * MIB, BYTES, most=MAX_OUTPUT_BYTES)
    executions: int = limit(32, COUNT)
    # 0: an execution may ask for no deadline.
    max_timeout: float = limit(3600.0, SECONDS, zero_is_none=True)
    default_timeout: float = limit(300.0, SECONDS)
    open_files: int = limit(4096, COUNT, least=LEAST_OPEN_FILES, rlimit="RLIMIT_NOFILE")
    # Of the workspace; also of a single file, wherever it is.
    disk_bytes: int = limit(10 * GIB, BYTES, most=MAX_DISK_BYTES, rlimit="RLIMIT_FSIZE")
    # Of the processors, for all code together. 0: no quota.
    cpus: float = limit(0.0, CPUS, least=LEAST_CPUS, most=MAX_CPUS, zero_is_none=True)

    def __post_init__(self) -> None:
        for name, bound in BOUNDS.items():
            value = getattr(self, name)
            if bound.zero_is_none and value == 0 and not isinstance(value, bool):
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
                raise ConfigError(f"cannot take limit {name}={value!r}: it has to be a number above 0")
            if bound.least is not None and not value >= bound.least:
                raise ConfigError(f"cannot take limit {name}={value}: the least is {bound.least}")
            if bound.most is not None and not value <= bound.most:
                raise ConfigError(f"cannot take limit {name}={value}: the most is {bound.most}")

    @property
    def longest_timeout(self) -> float:
        """The longest deadline in seconds, infinite without one."""
        return self.max_timeout or math.inf

    @property
    def tmpfs_bytes(self) -> int:
        """The size of /tmp and of /dev/shm, each: together at most half of the memory.

        Files cannot be killed: if they filled the memory, every process started to remove them would be killed.
        """
        return min(self.tmp_bytes, self.memory_bytes // 4)

    @property
    def tmpfs_inodes(self) -> int:
        """The most files in /tmp, and in /dev/shm: an empty one takes about a kibibyte of the kernel's memory."""
        return max(LEAST_INODES, self.tmpfs_bytes // INODE_BYTES)

    @property
    def hard_memory_bytes(self) -> int:
        """What the kernel gives user code at most, with what it needs for itself (buffers, page tables, files read)."""
        return self.memory_bytes + max(KERNEL_BYTES, self.memory_bytes // 4)

    @property
    def rlimits(self) -> dict[str, int]:
        """The kernel's limits of every process of the user, by their names in the module `resource`."""
        return {bound.rlimit: getattr(self, name) for name, bound in BOUNDS.items() if bound.rlimit}

    @property
    def gvisor_rlimits(self) -> dict[str, int]:
        """The same under gVisor: the executor's own tasks take nothing from what user code may have."""
        return self.rlimits | {"RLIMIT_NPROC": self.processes + OWN_TASKS}

    def fitting_gvisor(self) -> Self:
        """These limits, with only as many processes as the memory has room for: a fork under gVisor takes much."""
        return replace(self, processes=min(self.processes, max(LEAST_PROCESSES, self.memory_bytes // FORK_BYTES)))

    def lowered(self, wish: Mapping[str, Any]) -> Self:
        """These limits, lowered to the values of `wish` that are not 0. Raises ConfigError for a higher value."""
        for name, value in wish.items():
            if value > (getattr(self, name) or math.inf):
                raise ConfigError(f"cannot raise limit {name} to {value}: the template allows {getattr(self, name)}")
        lowered = replace(self, **{name: value for name, value in wish.items() if value})
        if lowered.default_timeout > lowered.longest_timeout:
            lowered = replace(lowered, default_timeout=lowered.max_timeout)
        return lowered


# Name → what it may be.
BOUNDS: Mapping[str, Bound] = {each.name: each.metadata["bound"] for each in fields(Limits)}
