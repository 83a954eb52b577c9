"""Follows one execution from its request to its end, whatever happens to the executor in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Protocol, TypeVar

from sandfleet import _api as api
from sandfleet._status import detail, never_sent
from sandfleet.collect import Collector, Piece
from sandfleet.errors import ProtocolError, SandboxEnded, SandfleetError
from sandfleet.transport import receive

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from sandfleet.transport import Connection, Link

# The longest deadline that an execution has where none is given, and the longest wait for an earlier one, in seconds.
_LONGEST = 3600.0
# How long after its deadline an execution may take to say that it ended.
_MARGIN = 30.0
EVERYTHING = ("variables", "processes", "tmp")
# Codes by which a connection that broke shows itself; any other is an answer of the server.
_BROKEN = {"UNAVAILABLE", "INTERNAL", "UNKNOWN", "CANCELLED", "ABORTED", "DATA_LOSS", "DEADLINE_EXCEEDED"}
_UNKNOWN_EXTENT = "Whether and how far it ran is not known."


class Envelope(Protocol):
    """What the streams of cells and of commands have in common."""

    @property
    def events(self) -> Iterable[api.common.ExecutionEvent]: ...


Request = TypeVar("Request", bound="Message")
Reply = TypeVar("Reply", bound="Message")


class Follower:
    """One execution that was accepted, or that was sent and never heard of."""

    def __init__(self, link: Link, collector: Collector, timeout: float | None) -> None:
        self._link = link
        self.patience = (timeout or _LONGEST) + _MARGIN
        self._silent_after = 0.0
        self._connection: Connection | None = None
        # What came with the start.
        self._first: tuple[Piece, ...] = ()
        self._call: api.aio.UnaryStreamCall[Message, Envelope] | None = None
        self.collector = collector

    @property
    def running(self) -> bool:
        """Whether it began and did not end, as far as is known."""
        return self.collector.started is not None and self.collector.ending is None

    @property
    def uid(self) -> str:
        """Of the incarnation of the executor that it was given to."""
        return self._connection.uid if self._connection else ""

    async def open(
        self, method: Callable[[Connection], api.aio.UnaryStreamMultiCallable[Request, Reply]], request: Request
    ) -> None:
        """Send it and wait until it begins. Raises where it was certainly not accepted."""

        async def attempt(connection: Connection) -> None:
            self._connection = connection
            self._call = method(connection)(request, metadata=connection.metadata())  # type: ignore[assignment]  # Reply has an event
            self._silent_after = asyncio.get_running_loop().time() + _LONGEST + _MARGIN
            try:
                self._first = await self._read()
            except api.aio.AioRpcError as error:
                if detail(error) is not None or never_sent(error) or error.code().name not in _BROKEN:
                    raise
                await self._lose_connection()

        await self._link.run(attempt, resend=False)
        self._silent_after = asyncio.get_running_loop().time() + self.patience

    async def pieces(self) -> AsyncIterator[Piece]:
        """Yield what it shows until it ends; after that `collector.ending` is set."""
        first, self._first = self._first, ()
        for piece in first:
            yield piece
        while self.collector.ending is None:
            for piece in await self._next():
                yield piece

    async def _next(self) -> tuple[Piece, ...]:
        try:
            return await self._read()
        except ProtocolError as error:
            self._cancel()
            return self._lose(error.reason, f"The executor broke the protocol ({error.message}). {_UNKNOWN_EXTENT}")
        except TimeoutError:
            self._cancel()
            return self._lose("ExecutorSilent", f"The executor says nothing any more. {_UNKNOWN_EXTENT}")
        except api.aio.AioRpcError:
            return await self._lose_connection()
        except asyncio.CancelledError:
            if self._link.was_closed_under():
                return self._lose("Closed", f"The connection was closed by its user. {_UNKNOWN_EXTENT}")
            raise

    async def _read(self) -> tuple[Piece, ...]:
        assert self._call is not None
        async with asyncio.timeout_at(self._silent_after):
            envelope = await receive(self._call)
        if envelope is None:
            raise ProtocolError("cannot follow the execution: its stream ended before it did", reason="NoEnd")
        return tuple(piece for event in envelope.events for piece in self.collector.feed(event))

    def _cancel(self) -> None:
        if self._call is not None:
            self._call.cancel()

    def _lose(self, reason: str, message: str, lost: tuple[str, ...] = ()) -> tuple[Piece, ...]:
        return self.collector.lose(reason, message, lost)

    async def _lose_connection(self) -> tuple[Piece, ...]:
        """Find out what is left of the session. The next call finds the new executor ready."""
        assert self._connection is not None
        try:
            await self._link.recover(self._connection)
        except SandboxEnded as error:
            return self._lose("SandboxEnded", f"The sandbox ended while it ran: {error.message}", EVERYTHING)
        except SandfleetError as error:
            return self._lose("ExecutorGone", f"The executor is gone: {error.message}. {_UNKNOWN_EXTENT}", EVERYTHING)
        if self._link.uid == self.uid:
            message = f"The connection broke, the executor is there. {_UNKNOWN_EXTENT} It may still be running."
            return self._lose("ConnectionLost", message)
        message = f"The executor was lost and replaced; the files of the workspace are kept. {_UNKNOWN_EXTENT}"
        return self._lose("ExecutorReplaced", message, EVERYTHING)
