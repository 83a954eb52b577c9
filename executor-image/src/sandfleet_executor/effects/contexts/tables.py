"""Moves tables between a context and a caller, between two of the context's cells.

The bytes go over a socket of their own: the interpreter sends as fast as the caller reads, and nothing is stored here.
The interpreter is hostile: what it sends is counted, and it has a time.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

from sandfleet_executor.core.contexts import tables
from sandfleet_executor.core.contexts.frames import BadFrame
from sandfleet_executor.core.contexts.tables import Moved, NoTableError, Table
from sandfleet_executor.core.errors import BadRequest
from sandfleet_executor.effects.contexts.interpreter import Interpreter, wide_pair
from sandfleet_executor.effects.contexts.interpreter_slot import ContextServices, ContextSpec
from sandfleet_executor.effects.contexts.looks import CannotLookError, ContextBusyError, NoAnswerError
from sandfleet_executor.effects.contexts.queue import CellQueue
from sandfleet_executor.effects.namespace.children import NamespaceError
from sandfleet_executor.worker.base import frames
from sandfleet_executor.worker.base.frames import Frame, FrameError
from sandfleet_executor.worker.languages import PYTHON, declared

CHUNK_BYTES = 1 << 19
# Of what says what a table is, in bytes.
MAX_WORD = 16 << 10
# How long an interpreter may take to end its part by itself where the other side has gone, and after it was
# interrupted, in seconds.
PART_SECONDS, SETTLE_SECONDS = 0.5, 2.0
# How long the end of an interpreter may be behind that of its socket, in seconds.
END_SECONDS = 0.3
# How long a context may take to hear that another one wants a table, in seconds: it may be saving its variables.
LEND_SECONDS = 5.0
# How much longer the stream of a table may be than the table itself: schema, and heads of batches.
STREAM_SLACK = 16 << 20
# Tables from this size on are compared with the memory that is left, in bytes.
LARGE_BYTES = 8 << 20
# How old a look at the session's memory may be, in seconds: a fresh one takes milliseconds. And for tables from this
# size on, in bytes.
MEMORY_AGE, FRESH_AGE, FRESH_BYTES = 1.0, 0.05, 64 << 20


@dataclass(frozen=True)
class Around:
    """What tables need of their context."""

    # The living interpreter, or a fresh one, when code may run.
    start: Callable[[], Awaitable[Interpreter]]
    # There is a new variable.
    changed: Callable[[], None]
    # The memory that the session has left for a table of so many bytes.
    room: Callable[[int], Awaitable[int]]

    @classmethod
    def of(
        cls, services: ContextServices, start: Callable[[], Awaitable[Interpreter]], changed: Callable[[], None]
    ) -> "Around":
        async def settled() -> Interpreter:
            # The packages of the template may be the libraries of tables.
            await services.session.settled(None)
            return await start()

        async def room(size: int) -> int:
            age = MEMORY_AGE if size < FRESH_BYTES else FRESH_AGE
            used = await (await services.session.namespace()).usage(age)
            return services.memory_bytes() - int(used["memory"]) - int(used["tmp"])

        return cls(settled, changed, room)


class Tables:
    """The tables of one context."""

    def __init__(self, spec: ContextSpec, queue: CellQueue, around: Around) -> None:
        self._spec = spec
        self._queue = queue
        self._around = around

    async def get(self, asked: Moved, hand: Callable[[Table | bytes], Awaitable[None]]) -> None:
        """Hands over what the table is, then its bytes.

        Raises NoTableError, CannotLookError, ContextBusyError, NoAnswerError, BadFrame, NamespaceError and BadRequest.
        """
        async with self._line(asked) as line:
            table = await line.table()
            if table.size > asked.most_bytes:
                raise BadFrame("cannot read what the interpreter says of a table: it is larger than was asked for")
            await hand(table)
            left = asked.most_bytes + STREAM_SLACK
            tail = b""
            while data := await line.read(CHUNK_BYTES):
                left -= len(data)
                if left < 0:
                    raise BadFrame("cannot get the table: the interpreter sends more than it said")
                tail = (tail + data[-len(tables.END) :])[-len(tables.END) :]
                await hand(data)
            if tail != tables.END:
                # Its reader would take what there is for a shorter table.
                raise NoAnswerError("cannot get the table: the interpreter broke off")
            line.over = True

    async def put(self, asked: Moved, data: AsyncIterator[bytes]) -> Table:
        """Makes a variable of the bytes of a table. Raises as `get`, and what `data` raises."""
        async with self._line(asked) as line:
            await line.write(frames.encode(asked.word))
            async for piece in self._fitting(asked, data):
                if not await line.write(piece):
                    break
            else:
                line.end()
            table = await line.table()
            line.over = True
            self._around.changed()
            return table

    async def _fitting(self, asked: Moved, data: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The pieces, as long as there is memory for all of them. Raises NoTableError."""
        kind = asked.kind if self._spec.language == PYTHON else ""
        size, most = asked.size, LARGE_BYTES
        come = 0
        async for piece in data:
            come += len(piece)
            size = max(size, come)
            if most == LARGE_BYTES < size:
                most = max(most, tables.most_for(await self._around.room(size), come, kind))
            if size > most:
                why = f"its {size} bytes are more than the memory that is left has room for, {most} bytes"
                raise NoTableError("OutOfMemory", f"cannot put {asked.name}: {why}")
            yield piece

    async def lend(self, name: str, descriptor: int) -> dict[str, Any]:
        """Has the interpreter send a table to the descriptor; why it does not, where it does not.

        It is asked between two cells, and blocks until the table is read; a cell that comes meanwhile waits.
        """
        if not self._queue.empty:
            return refusal("ContextBusy", f"cannot read {name}: context {self._spec.id} is busy")
        try:
            asked = replace(tables.check(tables.GIVE, name, None), lent=True)
            async with asyncio.timeout(LEND_SECONDS), self._queue.lock:
                (await self._around.start()).tell(asked.header, descriptor)
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
            async with asyncio.timeout(asked.seconds), self._queue.lock:
                interpreter = await self._around.start()
                # The memory guard looks as often as while a cell runs.
                with interpreter.busy():
                    async with Line.to(interpreter, asked) as line:
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
        # The interpreter has all of a table that it takes; it has done its part.
        self.whole = self.over = False

    @classmethod
    @contextlib.asynccontextmanager
    async def to(cls, interpreter: Interpreter, asked: Moved) -> AsyncIterator["Line"]:
        ours, theirs = wide_pair()
        with ours:
            with theirs:
                interpreter.tell(asked.header, theirs.fileno())
            line = cls(ours)
            try:
                yield line
            except NoAnswerError:
                raise await how_it_ended(interpreter, asked) from None
            finally:
                if not line.over:
                    await to_the_end(line.settle(interpreter))

    async def table(self) -> Table:
        """What the interpreter says of a table. Raises NoTableError, NoAnswerError at the end, BadFrame."""
        try:
            return tables.parse((await self.word()).header)
        except NoTableError:
            self.over = True
            raise

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

    async def write(self, data: bytes) -> bool:
        """False where the interpreter reads no further: it has refused, and says why."""
        try:
            await self._loop.sock_sendall(self._sock, data)
        except ConnectionError:
            return False
        return True

    def end(self) -> None:
        """No more data comes."""
        self.whole = True
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    async def settle(self, interpreter: Interpreter) -> None:
        """Ends the interpreter's part, so that its next cell finds it ready; kills it where it goes on."""
        if not self.whole:
            # A stream without an end is no table, and what is still sent is dropped.
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_WR)
            if await self._ends_within(PART_SECONDS):
                return
        if interpreter.alive:
            with contextlib.suppress(NamespaceError):
                # Once it is delivered: it must not reach the next cell.
                await interpreter.interrupt_now()
        if not await self._ends_within(SETTLE_SECONDS):
            interpreter.kill()

    async def _ends_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                while await self.read(CHUNK_BYTES):
                    pass
        except TimeoutError:
            return False
        return True


async def to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Awaits what must not be left half done: a cancellation that comes meanwhile is raised at its end."""
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError
    task.result()


async def how_it_ended(interpreter: Interpreter, asked: Moved) -> Exception:
    """Why an interpreter has broken off."""
    await asyncio.wait((interpreter.ended,), timeout=END_SECONDS)
    if not interpreter.ended.done():
        return NoAnswerError(f"cannot {asked.verb} {asked.name}: the interpreter broke off")
    ended = interpreter.ended.result()
    if ended.memory:
        return NoTableError("OutOfMemory", f"cannot {asked.verb} {asked.name}: the sandbox has no memory for it")
    return NoAnswerError(f"cannot {asked.verb} {asked.name}: the interpreter ended with {ended.how}")
