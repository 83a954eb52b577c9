"""What a sandbox uses, read from messages and watched."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING

from sandfleet import _api as api
from sandfleet import _convert as convert
from sandfleet._status import to_error
from sandfleet.errors import SandboxEnded
from sandfleet.transport import receive_within
from sandfleet.usage_values import ExecutionUsage, SandboxUsage

if TYPE_CHECKING:
    from sandfleet.transport import Connection, Link

# What an executor may say of itself at most: its limit of executions is no higher.
_MOST_EXECUTIONS = 1024
_LONGEST_NAME = 64
# An executor speaks after so many seconds even if it has nothing new to say.
_HEARTBEAT = 5.0
_LONGEST_INTERVAL = 60.0

_Call = api.aio.UnaryStreamCall[api.session.WatchUsageRequest, api.session.WatchUsageResponse]


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
        limits=convert.limits(message.limits),
    )


def _execution_usage(message: api.session.ExecutionUsage) -> ExecutionUsage:
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
    """Return 0 for what is no number: an executor can say anything."""
    return value if math.isfinite(value) else 0.0


async def ask(link: Link) -> SandboxUsage:
    """Ask what the sandbox uses now."""
    request = api.session.UsageRequest()
    return sandbox_usage(await link.unary(lambda c: c.session.Usage, request, idempotent=True))


async def watch(link: Link, interval: float) -> AsyncIterator[SandboxUsage]:
    """Yield what the sandbox uses until it ends; goes on with the new executor where the old one was replaced."""
    request = api.session.WatchUsageRequest(interval=convert.seconds(interval))
    patience = min(max(interval, _HEARTBEAT), _LONGEST_INTERVAL) + link.rpc_timeout

    async def attempt(connection: Connection) -> tuple[Connection, _Call, api.session.WatchUsageResponse | None]:
        call = connection.session.WatchUsage(request, metadata=connection.metadata())
        return connection, call, await receive_within(patience, call)

    while True:
        try:
            connection, call, message = await link.run(attempt, resend=True)
        except SandboxEnded:
            return
        try:
            while message is not None:
                running = tuple(_execution_usage(one) for one in message.executions[:_MOST_EXECUTIONS])
                yield replace(sandbox_usage(message.usage), running=running)
                message = await receive_within(patience, call)
        except api.aio.AioRpcError as error:
            if error.code().name not in ("UNAVAILABLE", "CANCELLED"):
                raise to_error(error, "watch the usage") from error
            try:
                await link.recover(connection)
            except SandboxEnded:
                return
        else:
            return
        finally:
            call.cancel()
