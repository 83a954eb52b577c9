"""What this host still has to write on its stream: gRPC takes one message at a time, and answers go together."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from sandfleet._wire import api

# Answers in one message, or until they have so many bytes.
MOST_TOGETHER, _MOST_BYTES = 64, 256 << 10


class Outbox:
    """The messages of one server, and its stream of the moment."""

    def __init__(self) -> None:
        self.waiting: deque[api.tools.ServeRequest] = deque()
        self._stream: Any = None
        self._takes_many = False
        # A write that was cancelled would cancel the stream: it has a task of its own.
        self._writing: asyncio.Task[None] | None = None

    def use(self, stream: Any, *, takes_many: bool) -> None:
        """Write on this stream from now on; None: on none. What was told before is asked for again on the next one."""
        self._stream, self._takes_many = stream, takes_many
        self.waiting.clear()

    def tell(self, message: api.tools.ServeRequest) -> None:
        """Write it in its turn; without a stream it is dropped."""
        if self._stream is None:
            return
        self.waiting.append(message)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.ensure_future(self._write())

    async def written(self) -> None:
        """Wait until all is written, or dropped."""
        if self._writing is not None:
            await asyncio.wait((self._writing,))

    async def close(self) -> None:
        """Drop what is not written."""
        self.use(None, takes_many=False)
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)

    async def _write(self) -> None:
        while self.waiting:
            stream = self._stream
            try:
                await stream.write(self._next())
            except (api.aio.AioRpcError, asyncio.InvalidStateError, ConnectionResetError, asyncio.CancelledError):
                # It broke, which the server learns from its reads. A stream that was cancelled shows it in this way.
                if (task := asyncio.current_task()) is None or task.cancelling():
                    raise
                if self._stream is stream:
                    self.use(None, takes_many=False)

    def _next(self) -> api.tools.ServeRequest:
        message = self.waiting.popleft()
        if not (self._takes_many and message.HasField("answer")):
            return message
        size = message.ByteSize()
        while self.waiting and self.waiting[0].HasField("answer") and size < _MOST_BYTES:
            if len(message.more_answers) + 1 >= MOST_TOGETHER:
                break
            another = self.waiting.popleft()
            size += another.ByteSize()
            message.more_answers.append(another.answer)
        return message
