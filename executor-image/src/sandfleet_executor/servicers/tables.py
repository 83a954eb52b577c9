"""Tables of contexts: the part of InterpreterService that moves them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc
from sandfleet_api.executor.v1 import interpreter_pb2 as pb

from sandfleet_executor.core.contexts import tables
from sandfleet_executor.core.contexts.tables import Table
from sandfleet_executor.core.errors import BusyError
from sandfleet_executor.core.requests import DEFAULT_CONTEXT
from sandfleet_executor.servicers.convert import common as convert
from sandfleet_executor.servicers.errors import ApiError, about, invalid

if TYPE_CHECKING:
    from sandfleet_executor.effects.contexts.tables import Tables
    from sandfleet_executor.effects.session.session import Session

# Tables that are moved at once.
MAX_MOVES = 4
# Pieces that wait for a slow reader.
PIECES = 4
Code = grpc.StatusCode
Piece: TypeAlias = "Table | bytes"


class TableMethods:
    """GetTable and PutTable."""

    _session: Session
    _moving = 0

    async def GetTable(self, request: pb.GetTableRequest, context: Any) -> AsyncIterator[pb.GetTableResponse]:
        with self._move(request.context_id) as found:
            seconds = convert.seconds(request, "timeout")
            asked = tables.check(tables.GIVE, request.name, seconds, request.max_bytes)
            async for piece in flowing(lambda hand: found.get(asked, hand)):
                if isinstance(piece, Table):
                    yield pb.GetTableResponse(info=describe(piece))
                else:
                    yield pb.GetTableResponse(data=piece)

    async def PutTable(self, request_iterator: AsyncIterator[pb.PutTableRequest], context: Any) -> pb.PutTableResponse:
        first = await anext(aiter(request_iterator), None)
        if first is None or first.WhichOneof("part") != "header":
            raise invalid("InvalidStream", "cannot put a table: the stream has to begin with a header")
        header = first.header
        with about(header.name), self._move(header.context_id) as found:
            seconds = convert.seconds(header, "timeout")
            asked = tables.check(tables.TAKE, header.name, seconds, kind=header.kind, size=header.size_bytes)
            most = asked.size or asked.most_bytes
            return pb.PutTableResponse(info=describe(await found.put(asked, pieces(request_iterator, most))))

    @contextmanager
    def _move(self, context_id: str) -> Iterator[Tables]:
        """The tables of a context. Raises BusyError and NotFoundError."""
        if self._moving >= MAX_MOVES:
            raise BusyError(f"cannot move a table: {MAX_MOVES} are being moved")
        self._moving += 1
        try:
            self._session.touch()
            yield self._session.contexts.find_or_default(context_id or DEFAULT_CONTEXT).tables
        finally:
            self._moving -= 1


async def pieces(requests: AsyncIterator[pb.PutTableRequest], most: int) -> AsyncIterator[bytes]:
    """The data up to the client's explicit end: grpc.aio ends a broken stream in the same way. Raises ApiError.

    The last piece comes when the end has come: an interpreter that has all of a table makes a variable of it.
    """
    size, last = 0, b""
    async for request in requests:
        match request.WhichOneof("part"):
            case "data":
                data = request.data
                size += len(data)
                if size > most:
                    raise ApiError(Code.RESOURCE_EXHAUSTED, "TooLarge", f"cannot put a table of more than {most} bytes")
                if data:
                    if last:
                        yield last
                    last = data
            case "end" if request.end.size == size:
                yield last
                return
            case "end":
                raise invalid("InvalidStream", f"cannot put a table: {size} bytes came of {request.end.size}")
            case _:
                raise invalid("InvalidStream", "cannot put a table: after the header only data may come, then an end")
    raise ApiError(Code.CANCELLED, "StreamBroken", "cannot put a table: the stream ended before its end was said")


async def flowing(work: Callable[[Callable[[Piece], Awaitable[None]]], Awaitable[None]]) -> AsyncIterator[Piece]:
    """What `work` hands over. It runs in a task of its own, so that a reader who takes nothing cannot hold it up."""
    queue: asyncio.Queue[Piece] = asyncio.Queue(PIECES)
    task = asyncio.ensure_future(work(queue.put))
    try:
        while not (task.done() and queue.empty()):
            if not queue.empty():
                yield queue.get_nowait()
                continue
            getting = asyncio.ensure_future(queue.get())
            await asyncio.wait((getting, task), return_when=asyncio.FIRST_COMPLETED)
            if getting.done():
                yield getting.result()
            else:
                # What was put meanwhile stays in the queue.
                getting.cancel()
        await task
    finally:
        task.cancel()
        await asyncio.wait((task,))


def describe(table: Table) -> pb.TableInfo:
    return pb.TableInfo(kind=table.kind, rows=table.rows, columns=table.columns, size_bytes=table.size)
