"""Services: programs that the sandbox starts, watches and restarts as declared."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, overload

from sandfleet._arguments import check_request, checked
from sandfleet._wire import api
from sandfleet._wire.convert import common as convert
from sandfleet._wire.convert import services as convert_services
from sandfleet._wire.link import receive
from sandfleet._wire.status import detail, to_error
from sandfleet.errors import InvalidArgument, ProtocolError, ServiceNotReadyError, UnavailableError
from sandfleet.values.options import AnyNumber
from sandfleet.values.services import ServiceSpec

if TYPE_CHECKING:
    from sandfleet._wire.link import Connection, Link
    from sandfleet.resources.commands import Command
    from sandfleet.values.services import Applied, LogPiece, Probe, RestartPolicy, Service

# An executor stores less of a log than this, in bytes.
_MOST_HELD = 16 << 20
# The longest grace that a service has.
_LONGEST_STOP = 3600.0
_MARGIN = 30.0
# Codes of a broken connection.
_BROKEN = {"UNAVAILABLE", "INTERNAL", "UNKNOWN", "CANCELLED"}


class AsyncServices:
    """Programs of one sandbox that keep running after their client has gone. They end with the sandbox."""

    def __init__(self, link: Link) -> None:
        """Use `sandbox.services`."""
        self._link = link

    @checked
    async def start(
        self,
        name: str,
        cmd: Command | None = None,
        *,
        cwd: str = "",
        envs: Mapping[str, str] | None = None,
        ready: Probe | None = None,
        live: Probe | None = None,
        restart: RestartPolicy = "on-failure",
        after: Sequence[str] = (),
        grace: float | None = None,
    ) -> None:
        """Declare one more service and start it; without `cmd`, start a declared service.

        `cmd` is as in `commands.run`, the rest as in `ServiceSpec`. Returns without waiting for the start: `wait_ready`
        waits. A running service is restarted if its declaration changed, and left alone otherwise.

        Raises InvalidArgument (also for an unknown name in `after`, and for services that wait for each other),
        NotFoundError, AlreadyExistsError (the template declares a service of this name), LimitReached.
        """
        if cmd is not None:
            spec = ServiceSpec(
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
                # It may have ended by now, and must not be started again.
                return
        request = api.service.ServiceManagerServiceStartRequest(names=[name])
        await self._link.unary(lambda c: c.services.Start, request, idempotent=True)

    @checked
    async def apply(self, services: Iterable[ServiceSpec], *, keep_others: bool = False) -> Applied:
        """Declare all services of the session: start new ones, restart changed ones, stop and forget all others.

        keep_others  keep services that were declared before and are not in `services`. The template's always stay.

        Applying the same services twice changes nothing. Raises the errors of `start`, after which nothing has changed.
        """
        wished = list(services)
        for spec in wished:
            check_request(spec, ServiceSpec, "apply")
        messages = [convert_services.spec_message(spec) for spec in wished]
        request = api.service.ApplyRequest(services=messages, keep_others=keep_others)
        return convert_services.applied(await self._link.unary(lambda c: c.services.Apply, request, idempotent=True))

    async def list(self) -> tuple[Service, ...]:
        """List the services, in the order of their start."""
        request = api.service.ServiceManagerServiceListRequest()
        answer = await self._link.unary(lambda c: c.services.List, request, idempotent=True)
        return tuple(map(convert_services.service, answer.services))

    @checked
    async def wait_ready(self, name: str, timeout: float = 60.0) -> Service:
        """Wait until a service is ready.

        Raises ServiceNotReadyError, with the reason and the last lines of its log, after `timeout` seconds, or as soon
        as the service cannot become ready: it, or a service that it waits for, has failed or was stopped. Raises
        NotFoundError.
        """
        request = api.service.WaitReadyRequest(name=name, timeout=convert.seconds(timeout))
        answer = await self._link.unary(
            lambda c: c.services.WaitReady, request, idempotent=True, timeout=timeout + _MARGIN
        )
        found = convert_services.service(answer.service)
        if answer.ready:
            return found
        raise ServiceNotReadyError(found, answer.log_tail[-_MOST_HELD:].decode("utf-8", "replace"))

    @checked
    async def stop(self, *names: str) -> None:
        """Stop services, in the reverse order of their start, and wait until they have ended. They stay declared.

        Raises NotFoundError.
        """
        if not names:
            raise InvalidArgument("cannot stop services: name them, or call stop_all")
        await self._stop(names)

    async def stop_all(self) -> None:
        """Stop all services, the template's too, and wait until they have ended. They stay declared."""
        await self._stop(())

    @checked
    async def restart(self, name: str) -> None:
        """Stop a service and start it again, also an ended one. Returns without waiting for it.

        Raises NotFoundError.
        """
        await self._link.unary(lambda c: c.services.Restart, api.service.RestartRequest(name=name))

    @overload
    async def logs(
        self, name: str, *, follow: Literal[False] = False, tail: int | None = None, offset: int | None = None
    ) -> str: ...
    @overload
    async def logs(
        self, name: str, *, follow: Literal[True], tail: int | None = None, offset: int | None = None
    ) -> AsyncIterator[LogPiece]: ...
    @overload
    async def logs(
        self, name: str, *, follow: bool, tail: int | None = None, offset: int | None = None
    ) -> str | AsyncIterator[LogPiece]: ...
    @checked
    async def logs(
        self, name: str, *, follow: bool = False, tail: AnyNumber | None = None, offset: AnyNumber | None = None
    ) -> str | AsyncIterator[LogPiece]:
        """Read the log of a service: its standard output and error in the order of writing.

        follow  yield pieces instead of returning a text, and continue with new output until the service is forgotten.
                Output that the sandbox no longer stores is a piece with `dropped_bytes`. After a broken connection it
                continues where it was.
        tail    read only so many of the last lines.
        offset  continue from here: `LogPiece.end`.

        Raises NotFoundError; while following, UnavailableError when the executor was replaced.
        """
        if tail is not None and not 1 <= tail <= _MOST_HELD:
            raise InvalidArgument(f"cannot read the last {tail} lines: it has to be 1 to {_MOST_HELD}")
        if offset is not None and not 0 <= offset < 1 << 64:
            raise InvalidArgument(f"cannot read from {offset}: no log has this offset")
        request = api.service.LogsRequest(name=name, follow=follow, tail_lines=tail or 0, offset=offset)
        pieces = self._pieces(request)
        if follow:
            return pieces
        held = bytearray()
        async for piece in pieces:
            held += piece.data
            if len(held) > _MOST_HELD:
                raise ProtocolError(f"cannot read the log of {name}: it is longer than a log can be", reason="TooLong")
        return held.decode("utf-8", "replace")

    async def _stop(self, names: Sequence[str]) -> None:
        request = api.service.StopRequest(names=names)
        # The services' grace says how long this takes.
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
                if error.code().name not in _BROKEN or detail(error) is not None:
                    raise to_error(error) from error
                await self._link.recover(connection)
            else:
                return


async def _read(connection: Connection, request: api.service.LogsRequest) -> AsyncIterator[LogPiece]:
    """Read a log over one connection. Raises AioRpcError, and ProtocolError if the offsets make no sense."""
    expected = request.offset if request.HasField("offset") else None
    call = connection.services.Logs(request, metadata=connection.metadata())
    try:
        while (message := await receive(call)) is not None:
            piece = convert_services.log_piece(message)
            if piece is None:
                continue
            if expected is not None and piece.offset != expected:
                raise ProtocolError(f"cannot follow the log of {request.name}: it jumps", reason="LogOffset")
            expected = piece.end
            yield piece
    finally:
        call.cancel()
