"""What a sandbox uses: messages as values. Executors are hostile: no number is trusted."""

from __future__ import annotations

import math
from dataclasses import replace

from sandfleet._wire import api
from sandfleet._wire.convert import common as convert
from sandfleet.values.usage import ExecutionUsage, LanguageUsage, SandboxUsage

# Names of kernels may have 100 characters.
_LONGEST_NAME = 128
_MOST_LANGUAGES = 65


def sandbox_usage(message: api.session.UsageResponse) -> SandboxUsage:
    """Read what a sandbox uses."""
    return SandboxUsage(
        memory_bytes=message.memory_bytes,
        tmp_bytes=message.tmp_bytes,
        processes=message.processes,
        cpu_seconds=_finite(message.cpu_seconds),
        running_executions=message.running_executions,
        disk_bytes=message.disk_bytes if message.HasField("disk_bytes") else None,
        wall_seconds=_finite(message.wall_seconds),
        total_cpu_seconds=_finite(message.total_cpu_seconds),
        peak_memory_bytes=message.peak_memory_bytes,
        peak_processes=message.peak_processes,
        written_bytes=message.written_bytes if message.HasField("written_bytes") else None,
        executions=message.executions,
        languages={
            each.language[:_LONGEST_NAME]: LanguageUsage(
                executions=each.executions,
                cpu_seconds=_finite(each.cpu_seconds),
                wall_seconds=_finite(each.wall_seconds),
                peak_memory_bytes=each.peak_memory_bytes,
            )
            for each in message.languages[:_MOST_LANGUAGES]
        },
        limits=convert.limits(message.limits),
        cpus=_finite(message.cpus),
    )


def execution_usage(message: api.session.ExecutionUsage) -> ExecutionUsage:
    """Read what one execution uses."""
    used = convert.usage(message.usage)
    used = replace(used, wall_seconds=_finite(used.wall_seconds), cpu_seconds=_finite(used.cpu_seconds))
    return ExecutionUsage(
        execution_id=message.execution_id[:_LONGEST_NAME],
        context=message.context_id[:_LONGEST_NAME],
        memory_bytes=message.memory_bytes,
        processes=message.processes,
        usage=used,
    )


def _finite(value: float) -> float:
    """Return 0 for NaN and infinity, which a hostile executor may send."""
    return value if math.isfinite(value) else 0.0
