"""Connections of the session's code to the broker. The other side is hostile.

A connection has one call at a time; its end cancels the call. Frames are those of worker/base/frames.py:
  {"op":"list","key"}                        → {"event":"tools"}, with the tools as JSON
  {"op":"call","key","tool","sizes":[n,…]}   → {"event":"value","sizes"}
                                             or {"event":"failed","kind","reason","message","may_have_run"}
`sizes` are those of the value's JSON and of its byte strings, which follow one another in the payload.
"""

import asyncio
import contextlib
import json
import socket
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Protocol

from sandfleet_executor.core.tools.values import MAX_BLOBS, MAX_VALUE, Answer, Failure, Tool, Value
from sandfleet_executor.worker.base import frames
from sandfleet_executor.worker.base.frames import Frame, FrameError

MAX_LINES = 1024
# Together, of the arguments that all lines hold. Who asks for more waits.
MAX_HELD = 64 << 20
MAX_HEADER = 64 << 10
# Together, of the answers that the session's code has not read. While there are more, the host's are not read either.
MAX_UNREAD = 64 << 20
# How long a request that has begun may take to arrive, in seconds.
REQUEST_SECONDS = 30.0
READ_AHEAD = 64 << 10


class Broker(Protocol):
    def tools(self) -> Mapping[str, Tool]: ...
    async def call(self, key: str, tool: str, arguments: Value) -> Answer: ...
    def record(self) -> None: ...


class Room:
    """Bytes that may be held together."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._changed = asyncio.Condition()
        self._waiting = 0

    @contextlib.asynccontextmanager
    async def of(self, size: int) -> Any:
        """Waits until there is room for so many."""
        await self._until(lambda: self._left >= size)
        self.take(size)
        try:
            yield
        finally:
            await self.give(size)

    @property
    def is_full(self) -> bool:
        return self._left <= 0

    async def some(self) -> None:
        """Waits until there is any room."""
        await self._until(lambda: not self.is_full)

    async def _until(self, holds: Callable[[], bool]) -> None:
        if holds():
            return
        self._waiting += 1
        try:
            async with self._changed:
                await self._changed.wait_for(holds)
        finally:
            self._waiting -= 1

    def take(self, size: int) -> None:
        """Takes room that may not be there."""
        self._left -= size

    async def give(self, size: int) -> None:
        self._left += size
        if self._waiting:
            async with self._changed:
                self._changed.notify_all()


class Lines:
    """All connections of one session namespace."""

    def __init__(self, listener: socket.socket, broker: Broker) -> None:
        """Owns the listening socket."""
        listener.setblocking(False)
        self._broker = broker
        self._room = Room(MAX_HELD)
        self.unread = Room(MAX_UNREAD)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._serving = asyncio.ensure_future(self._accept(listener))

    def close(self) -> None:
        """Ends all, with their calls."""
        for task in (self._serving, *self._tasks):
            task.cancel()

    async def _accept(self, listener: socket.socket) -> None:
        with listener:
            server = await asyncio.start_unix_server(self._begin, sock=listener, limit=READ_AHEAD)
            async with server:
                await server.serve_forever()

    async def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if len(self._tasks) <= MAX_LINES:
                await self._serve(reader, writer)
        except (
            OSError,
            FrameError,
            KeyError,
            TypeError,
            ValueError,
            asyncio.IncompleteReadError,
            asyncio.CancelledError,
        ):
            # It broke the protocol, or has gone, or the session ends. TimeoutError is an OSError.
            pass
        finally:
            self._tasks.discard(task)
            self._broker.record()
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # While a call runs, the first byte of the next request, or the end, says that the caller does not wait.
        first = _first_byte(reader)
        try:
            while prefix := await first:
                prefix += await reader.readexactly(frames.PREFIX.size - 1)
                header, payload = frames.PREFIX.unpack(prefix)
                if header > MAX_HEADER or payload > MAX_VALUE:
                    raise FrameError("cannot take a request: it is too large")
                async with self._room.of(header + payload):
                    async with asyncio.timeout(REQUEST_SECONDS):
                        body = await reader.readexactly(header + payload)
                    answering = self._answer(Frame(frames.decode_header(body[:header]), body[header:]))
                    del body
                    first = _first_byte(reader)
                    answer = await self._unless_gone(first, answering)
                if answer is None:
                    return
                try:
                    writer.write(answer)
                    self._broker.record()
                    await writer.drain()
                finally:
                    await self.unread.give(len(answer))
        finally:
            first.cancel()

    async def _answer(self, request: Frame) -> bytes:
        """The frame, which is unread."""
        key = str(request.header["key"])
        if request.header["op"] == "list":
            text = json.dumps([asdict(tool) for tool in self._broker.tools().values()])
            frame = frames.encode({"event": "tools"}, text.encode())
        else:
            tool, arguments = str(request.header["tool"]), value_of(request)
            del request
            frame = encoded(await self._broker.call(key, tool, arguments))
        self.unread.take(len(frame))
        return frame

    async def _unless_gone(self, first: asyncio.Task[bytes], work: Any) -> bytes | None:
        """What the work gives, unless the other side goes or speaks out of turn: then it is cancelled."""
        working, is_wanted = asyncio.ensure_future(work), False
        try:
            await asyncio.wait((working, first), return_when=asyncio.FIRST_COMPLETED)
            is_wanted = not first.done()
            return working.result() if is_wanted else None
        finally:
            if not is_wanted:
                working.cancel()
                answer = (await asyncio.gather(working, return_exceptions=True))[0]
                if isinstance(answer, bytes):
                    await self.unread.give(len(answer))


def _first_byte(reader: asyncio.StreamReader) -> asyncio.Task[bytes]:
    """Of the next request; empty: there is none."""
    reading = asyncio.ensure_future(reader.read(1))
    # That the other side has gone is no news where nobody waits for it.
    reading.add_done_callback(lambda done: done.cancelled() or done.exception())
    return reading


def value_of(frame: Frame) -> Value:
    """The value in a frame. Raises FrameError and ValueError."""
    sizes = frame.header["sizes"]
    if not 1 <= len(sizes) <= 1 + MAX_BLOBS:
        raise ValueError("cannot read a value: it has too many parts")
    text, *blobs = frames.split(sizes, frame.payload)
    return Value(text, tuple(blobs))


def encoded(answer: Answer) -> bytes:
    """The frame of an answer."""
    if isinstance(answer, Failure):
        return frames.encode({"event": "failed", **asdict(answer)})
    sizes, payload = frames.joined([answer.json, *answer.blobs])
    return frames.encode({"event": "value", "sizes": sizes}, payload)
