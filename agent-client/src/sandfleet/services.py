"""Services: programs that are declared, started, watched, and started again when they end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, overload

from sandfleet import _api as api
from sandfleet import _late as late
from sandfleet.errors import InvalidArgument, ProtocolError, ServiceNotReadyError, UnavailableError

if TYPE_CHECKING:
    from sandfleet.service_values import Applied, LogPiece, Probe, RestartPolicy, Service, ServiceSpec
    from sandfleet.transport import Connection, Link

# What an executor holds of a log is less.
_MOST_HELD = 16 << 20
# The longest grace that a service has.
_LONGEST_STOP = 3600.0
_MARGIN = 30.0
# Codes by which a connection that broke shows itself.
_BROKEN = {"UNAVAILABLE", "INTERNAL", "UNKNOWN", "CANCELLED"}


class AsyncServices:
    """Programs that go on without their client, in one sandbox. They end with it."""

    def __init__(self, link: Link) -> None:
        """Use `sandbox.services`."""
        self._link = link

    async def start(
        self,
        name: str,
        cmd: str | Sequence[str | bytes] | None = None,
        *,
        cwd: str = "",
        envs: Mapping[str, str] | None = None,
        ready: Probe | None = None,
        live: Probe | None = None,
        restart: RestartPolicy = "on-failure",
        after: Sequence[str] = (),
        grace: float | None = None,
    ) -> None:
        """Declare one service beside the others and start it; without `cmd`, start one that is declared.

        `cmd` is as in `commands.run`, the rest as in `ServiceSpec`. Returns when that is decided: `wait_ready` waits. What runs as
        it is declared is left alone; declared otherwise it is restarted.

        Raises InvalidArgument (also for an unknown name in `after`, and for services that wait for each other), NotFoundError,
        AlreadyExistsError (the template has one of that name), LimitReached.
        """
        if cmd is not None:
            spec = late.service_values.ServiceSpec(
                name=name,
                cmd=cmd,
                cwd=cwd,
                envs=dict(envs or {}),
                ready=ready,
                live=live,
                restart=restart,
                after=after,
                grace=grace,
            )
            applied = await self.apply([spec], keep_others=True)
            if name not in applied.unchanged:
                # It may have come to its end by now, and is not to be started again.
                return
        request = api.service.ServiceManagerServiceStartRequest(names=[name])
        await self._link.unary(lambda c: c.services.Start, request, idempotent=True)

    async def apply(self, services: Iterable[ServiceSpec], *, keep_others: bool = False) -> Applied:
        """Declare all services of the session: start what is new, restart what has changed, stop what is not among them.

        keep_others  leave what was declared before and is not among them. The template's own always stay.

        The same twice changes nothing. Raises as `start` does; nothing has changed then.
        """
        messages = [late.serviceconvert.spec_message(spec) for spec in services]
        request = api.service.ApplyRequest(services=messages, keep_others=keep_others)
        return late.serviceconvert.applied(await self._link.unary(lambda c: c.services.Apply, request, idempotent=True))

    async def list(self) -> tuple[Service, ...]:
        """List the services, in the order of their start."""
        request = api.service.ServiceManagerServiceListRequest()
        answer = await self._link.unary(lambda c: c.services.List, request, idempotent=True)
        return tuple(map(late.serviceconvert.service, answer.services))

    async def wait_ready(self, name: str, timeout: float = 60.0) -> Service:
        """Wait until a service is ready.

        Raises ServiceNotReadyError when it is not within `timeout` seconds, or sooner when it is clear that it will not be (it has
        failed, was stopped, or waits for one that has): with why, and the last lines of its log. Raises NotFoundError.
        """
        request = api.service.WaitReadyRequest(name=name, timeout=late.convert.seconds(timeout))
        answer = await self._link.unary(
            lambda c: c.services.WaitReady, request, idempotent=True, timeout=timeout + _MARGIN
        )
        found = late.serviceconvert.service(answer.service)
        if answer.ready:
            return found
        raise ServiceNotReadyError(found, answer.log_tail[-_MOST_HELD:].decode("utf-8", "replace"))

    async def stop(self, *names: str) -> None:
        """Stop services, in the reverse order of their start, and wait until they have ended. They stay declared.

        Raises NotFoundError.
        """
        if not names:
            raise InvalidArgument("cannot stop services: name them, or call stop_all")
        await self._stop(names)

    async def stop_all(self) -> None:
        """Stop all services, the template's as well, and wait until they have ended. They stay declared."""
        await self._stop(())

    async def restart(self, name: str) -> None:
        """Stop a service and start it again, also one that had ended. Returns when that is decided. Raises NotFoundError."""
        await self._link.unary(lambda c: c.services.Restart, api.service.RestartRequest(name=name))

    @overload
    async def logs(
        self, name: str, *, follow: Literal[False] = False, tail: int | None = None, offset: int | None = None
    ) -> str: ...
    @overload
    async def logs(
        self, name: str, *, follow: Literal[True], tail: int | None = None, offset: int | None = None
    ) -> AsyncIterator[LogPiece]: ...
    async def logs(
        self, name: str, *, follow: bool = False, tail: int | None = None, offset: int | None = None
    ) -> str | AsyncIterator[LogPiece]:
        """Read what a service wrote, both of its streams in the order of writing.

        follow  instead of a text give its pieces, and go on with what comes until the service is forgotten; what the sandbox does
                not hold any more is a piece that says how much. A connection that breaks is taken up again where it broke.
        tail    only so many of the last lines.
        offset  go on from here: `LogPiece.end`.

        Raises NotFoundError; while it follows, UnavailableError when the executor was replaced.
        """
        if tail is not None and not 1 <= tail <= _MOST_HELD:
            raise InvalidArgument(f"cannot read the last {tail} lines: it has to be 1 to {_MOST_HELD}")
        if offset is not None and not 0 <= offset < 1 << 64:
            raise InvalidArgument(f"cannot read from {offset}: no log has that place")
        request = api.service.LogsRequest(name=name, follow=follow, tail_lines=tail or 0, offset=offset)
        pieces = self._pieces(request)
        if follow:
            return pieces
        held = bytearray()
        async for piece in pieces:
            held += piece.data
            if len(held) > _MOST_HELD:
                raise ProtocolError(
                    f"cannot read the log of {name}: it is longer than any that is held", reason="TooLong"
                )
        return held.decode("utf-8", "replace")

    async def _stop(self, names: Sequence[str]) -> None:
        request = api.service.StopRequest(names=names)
        # How long it takes is the services' grace.
        await self._link.unary(lambda c: c.services.Stop, request, idempotent=True, timeout=_LONGEST_STOP + _MARGIN)

    async def _pieces(self, request: api.service.LogsRequest) -> AsyncIterator[LogPiece]:
        uid = ""
        while True:
            connection = await self._link.connection()
            if uid not in {"", connection.uid}:
                raise UnavailableError(
                    f"cannot follow the log of {request.name}: the executor was replaced, and its services with it",
                    reason="ExecutorReplaced",
                )
            uid = connection.uid
            try:
                async for piece in _read(connection, request):
                    yield piece
                    # From now on by offset: lines are counted from the end.
                    request.offset = piece.end
                    request.tail_lines = 0
            except api.aio.AioRpcError as error:
                if error.code().name not in _BROKEN or late.status.detail(error) is not None:
                    raise late.status.to_error(error) from error
                await self._link.recover(connection)
            else:
                return


async def _read(connection: Connection, request: api.service.LogsRequest) -> AsyncIterator[LogPiece]:
    """Raises AioRpcError, and ProtocolError where the offsets make no sense."""
    expected = request.offset if request.HasField("offset") else None
    call = connection.services.Logs(request, metadata=connection.metadata())
    try:
        while (message := await late.transport.receive(call)) is not None:
            piece = late.serviceconvert.log_piece(message)
            if piece is None:
                continue
            if expected is not None and piece.offset != expected:
                raise ProtocolError(f"cannot follow the log of {request.name}: it jumps", reason="LogOffset")
            expected = piece.end
            yield piece
    finally:
        call.cancel()
