"""Usage and health of a sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sandfleet.values import _show
from sandfleet.values.execution import Usage
from sandfleet.values.sandbox import Limits


@dataclass(frozen=True, slots=True)
class ExecutionUsage:
    """What a running execution uses: bytes and processes now, and its `usage` so far. `context` is "" for a command."""

    execution_id: str
    context: str = ""
    memory_bytes: int = 0
    processes: int = 0
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class LanguageUsage:
    """What the cells of one language have used that ended: their number, sums of seconds, and the highest memory."""

    executions: int = 0
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    peak_memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SandboxUsage:
    """What all processes of a sandbox use: bytes, seconds, counts.

    memory_bytes … running_executions   now.
    disk_bytes                          of the workspace, as the limit counts them, at the last measurement; None
                                        before.
    wall_seconds … executions           since the executor's start; `total_cpu_seconds` and `written_bytes` of all
                                        executions, running ones included. `written_bytes` is None if the kernel does
                                        not report it.
    languages                           of the cells that ended since then, by language: a `LanguageUsage` each.
    limits                              the sandbox's limits.
    cpus                                processors that its code may keep busy: those of its limit, else of the machine.
    running                             the running executions, in the order of their start; only from `watch_usage`.
    """

    memory_bytes: int
    tmp_bytes: int
    processes: int
    cpu_seconds: float
    running_executions: int
    disk_bytes: int | None = None
    wall_seconds: float = 0.0
    total_cpu_seconds: float = 0.0
    peak_memory_bytes: int = 0
    peak_processes: int = 0
    written_bytes: int | None = None
    executions: int = 0
    languages: Mapping[str, LanguageUsage] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    running: tuple[ExecutionUsage, ...] = ()
    cpus: float = 0.0

    def __repr__(self) -> str:
        memory = f"{self.memory_bytes >> 20:,} MiB now, {self.peak_memory_bytes >> 20:,} MiB at most"
        cpu = f"{self.total_cpu_seconds:.2f} s of {self.cpus:g} CPUs"
        return _show.short("SandboxUsage", memory, cpu, f"{self.processes} processes", f"{self.executions} executions")


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a sandbox can run code now, and if not, why not."""

    ready: bool
    message: str = ""

    def __bool__(self) -> bool:
        """Say whether it can run code now."""
        return self.ready
