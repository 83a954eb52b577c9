"""A watch on a directory of a sandbox."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from sandfleet._arguments import checked
from sandfleet._wire import api
from sandfleet._wire.convert.enums import values_of
from sandfleet._wire.link import receive, receive_within
from sandfleet._wire.status import to_error
from sandfleet.errors import ProtocolError
from sandfleet.values.files import FileEvent, FileEventType

if TYPE_CHECKING:
    from sandfleet._wire.link import Connection, Link

# Of one message: an executor sends 256.
_EVENTS_LIMIT = 10_000
# What the executor has sent arrives within this time, in seconds.
_ARRIVED = 0.05
# Codes of a broken connection.
_BROKEN = {"UNAVAILABLE", "INTERNAL", "UNKNOWN", "CANCELLED"}


class AsyncFileWatch:
    """The changes below a directory since `watch_dir` returned. Iterate over it, or poll it; `stop` it in the end.

    An iteration waits for the next change, `get_new_events` returns those that are there.

    When the connection breaks, the watch reconnects and gives an OVERFLOW event: changes in between may be missing.
    """

    def __init__(self, link: Link, path: bytes, *, recursive: bool) -> None:
        """Use `files.watch_dir(…)`."""
        self._link = link
        self._request = api.filesystem.WatchRequest(path=path, recursive=recursive)
        self._connection: Connection | None = None
        self._call: api.aio.UnaryStreamCall[api.filesystem.WatchRequest, api.filesystem.WatchResponse] | None = None
        self._events: deque[FileEvent] = deque()
        self._reading: asyncio.Task[api.filesystem.WatchResponse | None] | None = None
        self._stopped = False
        self._sequence = 0
        self._path = ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._path}, {'stopped' if self._stopped else 'watching'})"

    @property
    def path(self) -> str:
        """The absolute path of the directory, with its symlinks resolved."""
        return self._path

    async def begin(self) -> None:
        """Open the stream: changes after this are reported."""

        async def attempt(connection: Connection) -> None:
            self._connection = connection
            self._call = connection.filesystem.Watch(self._request, metadata=connection.metadata())
            first = await receive_within(self._link.rpc_timeout, self._call)
            if first is None or first.WhichOneof("part") != "started":
                raise ProtocolError("cannot watch: the executor did not say that it began")
            self._path = os.fsdecode(first.started.path)

        await self._link.run(attempt, resend=True)

    def __aiter__(self) -> AsyncIterator[FileEvent]:
        return self

    async def __anext__(self) -> FileEvent:
        while not self._events:
            if self._stopped:
                raise StopAsyncIteration
            await self._fill()
        return self._events.popleft()

    @checked
    async def get_new_events(self, timeout: float = 0.0) -> list[FileEvent]:
        """Return the changes since the last call or iteration; waits at most `timeout` seconds for the first one."""
        # Without a timeout: what has arrived is read, and the rest is not waited for.
        with suppress(TimeoutError):
            async with asyncio.timeout(max(timeout, _ARRIVED)):
                while not self._events and not self._stopped:
                    await self._fill()
        found = list(self._events)
        self._events.clear()
        return found

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """End the watch; an iteration over it ends."""
        self._stopped = True
        if self._call is not None:
            self._call.cancel()

    async def _fill(self) -> None:
        self._link.check_home()
        try:
            message = await self._next()
        except api.aio.AioRpcError as error:
            if error.code().name not in _BROKEN:
                raise to_error(error, "watch the directory") from error
            message = None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._stopped and task is not None and not task.cancelling():
                return
            raise
        if message is not None:
            for event, _ in zip(message.events.events, range(_EVENTS_LIMIT), strict=False):
                self._add(event)
        elif not self._stopped:
            await self._begin_again()

    async def _next(self) -> api.filesystem.WatchResponse | None:
        """Read one message. A reader may be cancelled, and the watch continues."""
        assert self._call is not None
        if self._reading is None:
            self._reading = asyncio.ensure_future(_read(self._call))
        reading = self._reading
        try:
            return await asyncio.shield(reading)
        finally:
            if reading.done():
                self._reading = None

    async def _begin_again(self) -> None:
        assert self._connection is not None
        await self._link.recover(self._connection)
        await self.begin()
        self._add(api.filesystem.FileEvent(type=api.filesystem.FILE_EVENT_TYPE_OVERFLOW))

    def _add(self, event: api.filesystem.FileEvent) -> None:
        kind = values_of(api.filesystem.FileEventType, FileEventType).get(event.type)
        if kind is None:
            # An event of a newer API: all that is known is that something changed.
            kind = FileEventType.OVERFLOW
        self._sequence += 1
        self._events.append(
            FileEvent(
                kind,
                os.fsdecode(event.path),
                os.fsdecode(event.old_path),
                event.directory,
                self._sequence,
                event.dropped,
            )
        )


async def _read(
    call: api.aio.UnaryStreamCall[api.filesystem.WatchRequest, api.filesystem.WatchResponse],
) -> api.filesystem.WatchResponse | None:
    message: api.filesystem.WatchResponse | None = await receive(call)
    return message
