"""What a sandbox uses, asked for once or watched."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING

from sandfleet._wire import api
from sandfleet._wire.convert import common as convert
from sandfleet._wire.convert import usage as convert_usage
from sandfleet._wire.link import looking, receive_within
from sandfleet._wire.status import to_error
from sandfleet.errors import SandboxEnded, SandboxSuspended
from sandfleet.values.usage import SandboxUsage

if TYPE_CHECKING:
    from sandfleet._wire.link import Connection, Link

# An executor's limit of executions is not higher.
_MOST_EXECUTIONS = 1024
# An executor reports after so many seconds even without a change.
_HEARTBEAT = 5.0
_LONGEST_INTERVAL = 60.0

_Call = api.aio.UnaryStreamCall[api.session.WatchUsageRequest, api.session.WatchUsageResponse]


async def ask(link: Link) -> SandboxUsage:
    """Ask what the sandbox uses now."""
    request = api.session.UsageRequest()
    return convert_usage.sandbox_usage(await link.unary(lambda c: c.session.Usage, request, idempotent=True))


async def watch(link: Link, interval: float) -> AsyncIterator[SandboxUsage]:
    """Yield what the sandbox uses until it ends or sleeps; continue with the new executor after a replacement."""
    request = api.session.WatchUsageRequest(interval=convert.seconds(interval))
    patience = min(max(interval, _HEARTBEAT), _LONGEST_INTERVAL) + link.rpc_timeout

    async def attempt(connection: Connection) -> tuple[Connection, _Call, api.session.WatchUsageResponse | None]:
        call = connection.session.WatchUsage(request, metadata=connection.metadata())
        return connection, call, await receive_within(patience, call)

    while True:
        try:
            with looking():
                connection, call, message = await link.run(attempt, resend=True)
        except SandboxEnded:
            return
        try:
            while message is not None:
                running = tuple(convert_usage.execution_usage(one) for one in message.executions[:_MOST_EXECUTIONS])
                yield replace(convert_usage.sandbox_usage(message.usage), running=running)
                message = await receive_within(patience, call)
        except api.aio.AioRpcError as error:
            if error.code().name not in ("UNAVAILABLE", "CANCELLED"):
                raise to_error(error, "watch the usage") from error
            try:
                with looking():
                    await link.recover(connection)
            except (SandboxEnded, SandboxSuspended):
                return
        else:
            return
        finally:
            call.cancel()
