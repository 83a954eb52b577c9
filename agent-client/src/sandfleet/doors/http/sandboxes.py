"""Connections to sandboxes, found by their ids and shared by requests; the least recently used idle ones are closed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from sandfleet._fleets.discovery import find_awake
from sandfleet._wire.link import Link
from sandfleet._wire.pipe import Pipe, connect
from sandfleet.errors import LimitReached, SandboxEnded, SandboxSuspended, SandfleetError, UnavailableError
from sandfleet.resources.ports import tunnel
from sandfleet.resources.services import AsyncServices
from sandfleet.values.options import DEFAULT_RPC_TIMEOUT

_MOST = 256
_LOG_LINES = 20
# Seconds in which a connection that the sandbox has ended confirms that all has arrived.
_CONFIRM = 5.0


class Stream:
    """A connection to a port of a sandbox."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, carrying: asyncio.Task[None]
    ) -> None:
        """Use `Sandboxes.dialled`."""
        self.reader = reader
        self.writer = writer
        self._carrying = carrying
        self._ended = False

    async def send(self, data: bytes) -> None:
        """Send, as fast as the sandbox reads; what comes after the end of the sandbox's side is dropped."""
        if not self._ended:
            self.writer.write(data)
            await self.writer.drain()

    async def confirm(self) -> None:
        """Make sure after the last byte that none is missing. Raises SandfleetError, TimeoutError."""
        self._ended = True
        self.writer.write_eof()
        async with asyncio.timeout(_CONFIRM):
            await asyncio.shield(self._carrying)

    async def close(self) -> None:
        """End both directions."""
        self.writer.close()
        self._carrying.cancel()
        await asyncio.gather(self._carrying, return_exceptions=True)


class _Entry:
    def __init__(self, link: asyncio.Task[Link]) -> None:
        self.link = link
        self.uses = 0

    @property
    def failed(self) -> bool:
        """Whether there is no link."""
        return self.link.done() and (self.link.cancelled() or self.link.exception() is not None)


class Sandboxes:
    """All sandboxes to which requests go."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    @asynccontextmanager
    async def linked(self, sandbox_id: str) -> AsyncIterator[Link]:
        """Use the link to a sandbox. Raises SandfleetError."""
        entry = await self._entry(sandbox_id)
        entry.uses += 1
        try:
            yield await asyncio.shield(entry.link)
        except SandfleetError as error:
            # The next request looks for it again, and wakes it if it sleeps.
            is_lost = isinstance(error, SandboxEnded | SandboxSuspended | UnavailableError) or entry.failed
            if is_lost and self._entries.get(sandbox_id) is entry:
                del self._entries[sandbox_id]
            raise
        finally:
            entry.uses -= 1
            if not entry.uses and self._entries.get(sandbox_id) is not entry:
                await _closed(entry)

    @asynccontextmanager
    async def dialled(self, sandbox_id: str, port: int) -> AsyncIterator[Stream]:
        """Connect to a port. Raises SandfleetError."""
        async with self.linked(sandbox_id) as link:
            stream = await _stream(await tunnel(link, port))
            try:
                yield stream
            finally:
                await stream.close()

    async def log_end(self, sandbox_id: str) -> str:
        """Return the last lines of the service that is not ready, or of the only one; "" without such a service."""
        with suppress(SandfleetError):
            services = AsyncServices(await asyncio.shield((await self._entry(sandbox_id)).link))
            listed = await services.list()
            waiting = [one for one in listed if not one.is_ready] or listed[: len(listed) == 1]
            if waiting:
                log = await services.logs(waiting[0].name, tail=_LOG_LINES)
                return f"The end of the log of the service {waiting[0].name}:\n\n{log}"
        return ""

    async def close(self) -> None:
        """Close all connections."""
        entries = self._entries
        self._entries = {}
        await asyncio.gather(*map(_closed, entries.values()))

    async def _entry(self, sandbox_id: str) -> _Entry:
        entry = self._entries.pop(sandbox_id, None)
        if entry is None:
            await self._make_room()
            entry = _Entry(asyncio.ensure_future(_found(sandbox_id)))
        # The last one is the most recently used.
        self._entries[sandbox_id] = entry
        return entry

    async def _make_room(self) -> None:
        if len(self._entries) < _MOST:
            return
        idle = next((sandbox_id for sandbox_id, entry in self._entries.items() if not entry.uses), None)
        if idle is None:
            raise LimitReached(f"cannot connect to another sandbox: {_MOST} are in use", reason="LimitReached")
        await _closed(self._entries.pop(idle))


async def _found(sandbox_id: str) -> Link:
    link, _ = await find_awake(sandbox_id, fleet=None, rpc_timeout=DEFAULT_RPC_TIMEOUT)
    return link


async def _closed(entry: _Entry) -> None:
    entry.link.cancel()
    with suppress(SandfleetError, asyncio.CancelledError):
        await (await entry.link).close()


async def _stream(pipe: Pipe) -> Stream:
    far, near = socket.socketpair()
    far.setblocking(False)

    async def opened() -> Pipe:
        return pipe

    carrying = asyncio.ensure_future(connect(far, opened))
    reader, writer = await asyncio.open_connection(sock=near)
    return Stream(reader, writer, carrying)
