"""The event stream of one execution, from its request to its end, over as many connections as it takes."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from sandfleet._wire import api
from sandfleet._wire.doubt import Doubt, ExecutorGoneError, ended_of_memory, until_ended_of_memory
from sandfleet._wire.events import OUT_OF_MEMORY, EventCollector, Piece
from sandfleet._wire.heads import hear_later
from sandfleet._wire.lease import LEASE_EXPIRED, lease_was_over
from sandfleet._wire.link import receive, was_cancelled
from sandfleet._wire.retry import Retries, RetryBudget
from sandfleet._wire.status import detail, never_sent
from sandfleet.errors import AccessDenied, ProtocolError, SandboxEnded, SandfleetError
from sandfleet.observe import tracing
from sandfleet.values.execution import Outcome

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from sandfleet._wire.link import AnyMetadata, Connection, Link

# The longest default deadline of an execution, and the longest wait for an earlier one, in seconds.
_LONGEST = 3600.0
# Seconds after its deadline within which an execution reports its end.
_MARGIN = 30.0
# How long persons may take over the calls of one execution, in seconds.
_PERSON = 3600.0
EVERYTHING = ("variables", "processes", "tmp")
# Codes of a broken connection; any other code is an answer of the server.
_BROKEN = {"UNAVAILABLE", "INTERNAL", "UNKNOWN", "CANCELLED", "ABORTED", "DATA_LOSS", "DEADLINE_EXCEEDED"}
_UNKNOWN_EXTENT = "Whether and how far it ran is not known."


class Envelope(Protocol):
    """A message of the stream of a cell or of a command."""

    @property
    def events(self) -> Iterable[api.common.ExecutionEvent]: ...


Request = TypeVar("Request", bound="Message")


@dataclass(frozen=True)
class Service(Generic[Request]):
    """The two RPCs of an execution: start it, and attach to it."""

    begin: Callable[[Connection], api.aio.UnaryStreamMultiCallable[Request, Any]]
    attach: Callable[[Connection, str, int, int, AnyMetadata], Any]


def _attach_cell(connection: Connection, execution_id: str, after: int, seen: int, metadata: AnyMetadata) -> Any:
    request = api.interpreter.InterpreterServiceAttachRequest(
        execution_id=execution_id, after_sequence=after, seen_bytes=seen
    )
    return connection.interpreter.Attach(request, metadata=metadata)


def _attach_command(connection: Connection, execution_id: str, after: int, seen: int, metadata: AnyMetadata) -> Any:
    request = api.process.ProcessServiceAttachRequest(execution_id=execution_id, after_sequence=after, seen_bytes=seen)
    return connection.process.Attach(request, metadata=metadata)


CELLS: Service[api.interpreter.ExecuteRequest] = Service(lambda c: c.interpreter.Execute, _attach_cell)
COMMANDS: Service[api.process.StartRequest] = Service(lambda c: c.process.Start, _attach_command)


class ExecutionStream:
    """The stream of one execution, over as many connections as it takes."""

    def __init__(
        self,
        link: Link,
        collector: EventCollector,
        timeout: float | None,
        service: Service[Any],
        budget: RetryBudget | None = None,
    ) -> None:
        self._link = link
        # 0 means no deadline. A person may decide about calls of tools, which the deadline does not count.
        people = _PERSON if link.is_brokered else 0.0
        self.patience = math.inf if timeout == 0 else (timeout or _LONGEST) + _MARGIN + people
        self._silent_after = 0.0
        self._connection: Connection | None = None
        # The execution was given to this executor; the connection may be another one by now.
        self._given_to: Connection | None = None
        self._service = service
        # The request to send again if no answer came; None for an execution that another client started.
        self._request: Message | None = None
        self._attempts = Retries(budget or RetryBudget())
        # The pieces that came with the start.
        self._first: tuple[Piece, ...] = ()
        self._call: api.aio.UnaryStreamCall[Message, Envelope] | None = None
        self.collector = collector

    @property
    def running(self) -> bool:
        """Whether the execution has started and not ended, as far as the client knows."""
        return self.collector.started is not None and self.collector.ending is None

    @property
    def ended(self) -> bool:
        """Whether the execution has ended, or will never be followed to its end."""
        return self.collector.ending is not None

    @property
    def lost_executor(self) -> bool:
        """Whether the execution ended with its executor, as far as the client knows."""
        ending = self.collector.ending
        return ending is not None and (ending.outcome is Outcome.LOST or ending.message.reason == OUT_OF_MEMORY)

    @property
    def uid(self) -> str:
        """The uid of the executor that the execution was given to."""
        return self._given_to.uid if self._given_to is not None else ""

    @property
    def resumed(self) -> int:
        """How often the stream was resumed."""
        return self._attempts.total

    async def open(self, request: Message) -> None:
        """Send the request and wait for the start. Raises if it was certainly not accepted."""
        self._request = request
        self._link.lease.run(self)
        await self._link.run(self._begin, resend=False)
        self._silent_after = asyncio.get_running_loop().time() + self.patience

    async def attach(self) -> None:
        """Read an execution that another call started, from its first event. Raises NotFoundError."""
        self._link.lease.run(self)
        await self._link.run(self._begin, resend=True)
        self._silent_after = asyncio.get_running_loop().time() + self.patience

    async def _begin(self, connection: Connection) -> None:
        self._connection = connection
        # An executor that had the request before has certainly not started it.
        self._given_to = connection
        # Where a person has to approve it first, it may take any time to begin.
        patience = math.inf if self._link.is_reviewed else _LONGEST + _MARGIN
        self._silent_after = asyncio.get_running_loop().time() + patience
        self._call = self._send(connection)
        try:
            self._first = await self._read()
        except api.aio.AioRpcError as error:
            if not _broke(error) or never_sent(error):
                raise
            self._first = await self._take_up(error)
        except ExecutorGoneError:
            self._first = await self._take_up(None)
        except asyncio.CancelledError:
            if self._request is None or not self._link.was_closed_under():
                raise
            # The request is on its way, and has perhaps arrived.
            self._first = self._lose_closed()

    def _send(self, connection: Connection) -> Any:
        """Open the call that gives the events not received yet.

        A request without an answer is sent again: its id keeps it from running twice. But it is not sent to a
        replacement of the first executor, which may not know the id.
        """
        collector, metadata = self.collector, connection.metadata()
        if self._request is not None and not collector.position and connection.uid == self.uid:
            return self._service.begin(connection)(self._request, metadata=metadata)
        return self._service.attach(
            connection, collector.execution_id, collector.position, collector.seen_bytes, metadata
        )

    async def pieces(self) -> AsyncIterator[Piece]:
        """Yield output and results until the execution ends; after that `collector.ending` is set."""
        first, self._first = self._first, ()
        for piece in first:
            yield piece
        while self.collector.ending is None:
            for piece in await self._next():
                yield piece

    async def _next(self) -> tuple[Piece, ...]:
        try:
            return await self._read_on()
        except ProtocolError as error:
            self._cancel()
            return self._lose(error.reason, f"The executor broke the protocol ({error.message}). {_UNKNOWN_EXTENT}")
        except TimeoutError:
            self._cancel()
            return self._lose("ExecutorSilent", f"The executor says nothing any more. {_UNKNOWN_EXTENT}")
        except asyncio.CancelledError:
            if self._link.was_closed_under():
                return self._lose_closed()
            raise

    async def _read_on(self) -> tuple[Piece, ...]:
        try:
            return await self._read()
        except api.aio.AioRpcError as error:
            return await self._take_up(error)
        except ExecutorGoneError:
            return await self._take_up(None)

    async def _read(self) -> tuple[Piece, ...]:
        assert self._call is not None
        assert self._connection is not None
        self._link.check_home()
        doubt = Doubt(self._link, self._connection, self._call)
        try:
            async with asyncio.timeout_at(self._silent_after):
                envelope = await receive(self._call)
        except asyncio.CancelledError:
            if doubt.gone and not was_cancelled():
                raise ExecutorGoneError from None
            raise
        finally:
            doubt.end()
        if envelope is None:
            raise ProtocolError("cannot follow the execution: its stream ended before it did", reason="NoEnd")
        pieces = tuple(piece for event in envelope.events for piece in self.collector.feed(event))
        if (ending := self.collector.ending) is not None:
            self._link.spawn(hear_later(self._link.heads, self._connection.uid, self._call))
            if ending.message.reason == LEASE_EXPIRED:
                ending.message.message = lease_was_over(self._link.sandbox_id)
        return pieces

    def _cancel(self) -> None:
        if self._call is not None:
            self._call.cancel()

    def _lose_closed(self) -> tuple[Piece, ...]:
        return self._lose("Closed", f"The connection was closed by its user. {_UNKNOWN_EXTENT}")

    def _lose(self, reason: str, message: str, lost: tuple[str, ...] = ()) -> tuple[Piece, ...]:
        return self.collector.lose(reason, message, lost)

    async def _take_up(self, error: api.aio.AioRpcError | None) -> tuple[Piece, ...]:
        """Resume the stream after its connection broke (None: its executor is gone), while the retry budget lasts."""
        while error is None or _broke(error) or _passing(error):
            pause = self._attempts.pause(asyncio.get_running_loop().time(), self.collector.position)
            if pause is None:
                break
            await asyncio.sleep(pause)
            rest = await self._reconnect(found_gone=error is None)
            if self.collector.ending is not None:
                return rest
            assert self._connection is not None
            tracing.event("sandfleet.stream.resumed", {"sandfleet.stream.after": str(self.collector.position)})
            self._call = self._send(self._connection)
            try:
                return await self._explained(await self._read())
            except api.aio.AioRpcError as again:
                error = again
            except ExecutorGoneError:
                error = None
        return await self._explained(self._give_up())

    async def _reconnect(self, *, found_gone: bool) -> tuple[Piece, ...]:
        """Find the current executor, and end the execution if there is none."""
        assert self._connection is not None
        try:
            # A channel reconnects by itself; the fleet is asked if that does not help.
            again = found_gone or not self._attempts.first
            if again and await self._recover(self._connection):
                return self._end_of_memory()
            self._connection = await self._link.connection()
        except SandboxEnded as error:
            return self._lose("SandboxEnded", f"The sandbox ended while it ran: {error.message}", EVERYTHING)
        except AccessDenied as error:
            message = f"The connection was ended: {error.message}. {_UNKNOWN_EXTENT} It may still be running."
            return self._lose(error.reason, message)
        except SandfleetError as error:
            return self._lose("ExecutorGone", f"The executor is gone: {error.message}. {_UNKNOWN_EXTENT}", EVERYTHING)
        return ()

    async def _recover(self, broken: Connection) -> bool:
        """Find the current executor. Return True, without it, as soon as the fleet says that memory ended the first."""
        assert self._given_to is not None
        recovering = asyncio.ensure_future(self._link.recover(broken))
        told = asyncio.ensure_future(until_ended_of_memory(self._link, self._given_to))
        try:
            await asyncio.wait((recovering, told), return_when=asyncio.FIRST_COMPLETED)
            if not recovering.done():
                return True
            recovering.result()
        finally:
            recovering.cancel()
            told.cancel()
        return False

    async def _explained(self, pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
        """Ask the fleet for the cause where the next executor can only say that the execution was lost."""
        ending = self.collector.ending
        if ending is None or ending.outcome is not Outcome.LOST or self._given_to is None:
            return pieces
        with suppress(SandfleetError):
            if await ended_of_memory(self._link, self._given_to):
                return (*pieces, *self._end_of_memory())
        return pieces

    def _end_of_memory(self) -> tuple[Piece, ...]:
        message = f"The sandbox used all of its memory, and its executor ended with it. {_UNKNOWN_EXTENT}"
        return self.collector.end_of_memory(message, EVERYTHING)

    def _give_up(self) -> tuple[Piece, ...]:
        if self._connection is not None and self._connection.uid != self.uid:
            message = f"The executor was lost and replaced; the files of the workspace are kept. {_UNKNOWN_EXTENT}"
            return self._lose("ExecutorReplaced", message, EVERYTHING)
        message = f"The connection broke, the executor is there. {_UNKNOWN_EXTENT} It may still be running."
        return self._lose("ConnectionLost", message)


def _broke(error: api.aio.AioRpcError) -> bool:
    """Return whether the transport failed: the server gave no answer."""
    return detail(error) is None and error.code().name in _BROKEN


def _passing(error: api.aio.AioRpcError) -> bool:
    """Return whether the server refused it for now."""
    said = detail(error)
    return said is not None and said.retryable
