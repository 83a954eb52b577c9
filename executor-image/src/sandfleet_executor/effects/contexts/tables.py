"""Moves tables between a context and a caller, between two of the context's cells.

The bytes go over a socket of their own: the interpreter sends as fast as the caller reads, and nothing is stored here.
The interpreter is hostile: what it sends is counted, and it has a time.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from sandfleet_executor.core.contexts import tables
from sandfleet_executor.core.contexts.frames import BadFrame
from sandfleet_executor.core.contexts.tables import Moved, NoTableError, Table
from sandfleet_executor.core.errors import BadRequest
from sandfleet_executor.effects.contexts.interpreter import Interpreter
from sandfleet_executor.effects.contexts.interpreter_slot import ContextSpec
from sandfleet_executor.effects.contexts.looks import CannotLookError, ContextBusyError, NoAnswerError
from sandfleet_executor.effects.contexts.queue import CellQueue
from sandfleet_executor.effects.namespace.children import NamespaceError
from sandfleet_executor.worker.base import frames
from sandfleet_executor.worker.base.frames import Frame, FrameError
from sandfleet_executor.worker.languages import declared

CHUNK_BYTES = 1 << 20
# Of what says what a table is, in bytes.
MAX_WORD = 16 << 10
# How long an interpreter may take to end its part after it was interrupted, in seconds.
SETTLE_SECONDS = 2.0
# How long a context may take to hear that another one wants a table, in seconds: it may be saving its variables.
LEND_SECONDS = 5.0
# How much longer the stream of a table may be than the table itself: schema, and heads of batches.
STREAM_SLACK = 16 << 20


class Tables:
    """The tables of one context."""

    def __init__(
        self,
        spec: ContextSpec,
        queue: CellQueue,
        start: Callable[[], Awaitable[Interpreter]],
        changed: Callable[[], None],
    ) -> None:
        """`start` gives the living interpreter, or a fresh one; `changed` hears of a new variable."""
        self._spec = spec
        self._queue = queue
        self._start = start
        self._changed = changed

    async def get(self, asked: Moved, hand: Callable[[Table | bytes], Awaitable[None]]) -> None:
        """Hands over what the table is, then its bytes.

        Raises NoTableError, CannotLookError, ContextBusyError, NoAnswerError, BadFrame, NamespaceError and BadRequest.
        """
        async with self._line(asked) as line:
            table = tables.parse((await line.word()).header)
            if table.size > asked.most_bytes:
                raise BadFrame("cannot read what the interpreter says of a table: it is larger than was asked for")
            await hand(table)
            left = asked.most_bytes + STREAM_SLACK
            while data := await line.read(CHUNK_BYTES):
                left -= len(data)
                if left < 0:
                    raise BadFrame("cannot get the table: the interpreter sends more than it said")
                await hand(data)
            line.over = True

    async def put(self, asked: Moved, data: AsyncIterator[bytes]) -> Table:
        """Makes a variable of the bytes of a table. Raises as `get`, and what `data` raises."""
        async with self._line(asked) as line:
            await line.write(frames.encode({"event": "table", "kind": asked.kind}))
            with contextlib.suppress(ConnectionError):
                # An interpreter that has refused reads no further, and says why.
                async for piece in data:
                    await line.write(piece)
                line.end()
            table = tables.parse((await line.word()).header)
            line.over = True
            self._changed()
            return table

    async def lend(self, name: str, descriptor: int) -> dict[str, Any]:
        """Has the interpreter send a table to the descriptor; why it does not, where it does not.

        It is asked between two cells, and blocks until the table is read; a cell that comes meanwhile waits.
        """
        if not self._queue.empty:
            return refusal("ContextBusy", f"cannot read {name}: context {self._spec.id} is busy")
        try:
            asked = tables.check(tables.GIVE, name, None)
            async with asyncio.timeout(LEND_SECONDS), self._queue.lock:
                (await self._start()).tell(asked.header, descriptor)
        except (TimeoutError, NamespaceError, BadRequest) as error:
            return refusal("NoTable", f"cannot read {name}: {error or 'there was no answer'}")
        return {}

    @contextlib.asynccontextmanager
    async def _line(self, asked: Moved) -> AsyncIterator["Line"]:
        """To the interpreter, whose turn is held meanwhile."""
        language = self._spec.language
        if not declared(language).tables:
            raise CannotLookError(f"cannot {asked.verb} {asked.name}: contexts of {language} have no tables")
        busy = ContextBusyError(
            f"cannot {asked.verb} {asked.name}: context {self._spec.id} is busy; ask again after its cell"
        )
        if not self._queue.empty:
            raise busy
        try:
            async with (
                asyncio.timeout(asked.seconds),
                self._queue.lock,
                Line.to(await self._start(), asked) as line,
            ):
                yield line
        except TimeoutError:
            raise NoAnswerError(
                f"cannot {asked.verb} {asked.name}: it was not done within {asked.seconds:g} s"
            ) from None


def refusal(reason: str, message: str) -> dict[str, Any]:
    return {"reason": reason, "message": message}


class Line:
    """The executor's end of the socket."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        # The interpreter has done its part.
        self.over = False

    @classmethod
    @contextlib.asynccontextmanager
    async def to(cls, interpreter: Interpreter, asked: Moved) -> AsyncIterator["Line"]:
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                interpreter.tell(asked.header, theirs.fileno())
            line = cls(ours)
            try:
                yield line
            except NoTableError:
                line.over = True
                raise
            finally:
                if not line.over:
                    await asyncio.shield(line.settle(interpreter))

    async def word(self) -> Frame:
        """Raises NoAnswerError at the end, BadFrame."""
        try:
            header, payload = frames.PREFIX.unpack(await self._exactly(frames.PREFIX.size))
            if header > MAX_WORD or payload:
                raise BadFrame("cannot read what the interpreter says of a table: it is too long")
            return Frame(frames.decode_header(await self._exactly(header)))
        except FrameError as error:
            raise BadFrame(str(error)) from error

    async def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = await self.read(size - len(data))
            if not piece:
                raise NoAnswerError("cannot move the table: the interpreter broke off")
            data += piece
        return data

    async def read(self, most: int) -> bytes:
        """Empty at the end."""
        try:
            return await self._loop.sock_recv(self._sock, most)
        except OSError:
            return b""

    async def write(self, data: bytes) -> None:
        """Raises ConnectionError where the interpreter reads no further."""
        await self._loop.sock_sendall(self._sock, data)

    def end(self) -> None:
        """No more data comes. The order counts: an end before that would be half a table."""
        self._sock.shutdown(socket.SHUT_WR)

    async def settle(self, interpreter: Interpreter) -> None:
        """Ends the interpreter's part, so that its next cell finds it ready; kills it where it goes on."""
        interpreter.interrupt()
        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                while await self.read(CHUNK_BYTES):
                    pass
        except TimeoutError:
            interpreter.kill()
