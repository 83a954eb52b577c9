"""Ports of a sandbox, forwarded to ports of this machine."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from sandfleet._wire import api
from sandfleet._wire.pipe import Listener, Pipe, connect
from sandfleet.errors import InvalidArgument, SandfleetError

if TYPE_CHECKING:
    from sandfleet._wire.link import Connection, Link

OnError = Callable[[SandfleetError], object]

_LOCALHOST = "127.0.0.1"
_MOST_PORT = 65535
# Of one forward: more connections wait in the kernel. The executor allows fewer in total.
_MOST_CONNECTIONS = 128
_BACKLOG = 128


async def tunnel(link: Link, port: int) -> Pipe:
    """Open a connection to a port in the sandbox. Raises SandfleetError."""

    async def attempt(connection: Connection) -> Pipe:
        # The stubs expect the requests here; they are written to the call instead.
        call = connection.port.Tunnel(None, metadata=connection.metadata())
        return await Pipe.open(call, api.port.TunnelRequest, api.port.TunnelOpen(port=port), link.rpc_timeout)

    return await link.run(attempt, resend=False)


class AsyncForward:
    """A port of this machine that leads to a port of the sandbox. Each connection opens a new one in the sandbox."""

    def __init__(self, link: Link, port: int, listener: socket.socket, on_error: OnError | None) -> None:
        """Use `sandbox.forward`."""
        self._closed = False
        self._link = link
        self._port = port
        self._on_error = on_error
        self._local_port: int = listener.getsockname()[1]
        self._listener = Listener(listener, self._serve, _MOST_CONNECTIONS)

    @property
    def port(self) -> int:
        """The port in the sandbox."""
        return self._port

    @property
    def local_port(self) -> int:
        """The port on this machine."""
        return self._local_port

    @property
    def address(self) -> str:
        """The address to connect to: "127.0.0.1:PORT"."""
        return f"{_LOCALHOST}:{self._local_port}"

    @property
    def url(self) -> str:
        """The address of a web server that listens there: "http://127.0.0.1:PORT"."""
        return f"http://{self.address}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address} to port {self._port})"

    @property
    def closed(self) -> bool:
        """Whether the forward is closed."""
        return self._closed

    async def close(self) -> None:
        """Stop listening and reset open connections. Closing twice is no error."""
        await self._listener.close()
        self._closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _serve(self, sock: socket.socket) -> None:
        try:
            with suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await connect(sock, self._open)
        except (SandfleetError, OSError) as error:
            await self._tell(error)

    async def _tell(self, error: Exception) -> None:
        # The local program knows what it did to its own connection.
        if self._on_error is not None and isinstance(error, SandfleetError):
            said = self._on_error(error)
            if isinstance(said, Awaitable):
                await said

    async def _open(self) -> Pipe:
        return await tunnel(self._link, self._port)


class Forwards:
    """All forwards of one sandbox object."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._open: list[AsyncForward] = []
        self._hosts: dict[int, asyncio.Task[AsyncForward]] = {}

    async def open(self, port: int, *, local_port: int = 0, on_error: OnError | None = None) -> AsyncForward:
        """Listen on this machine. Raises InvalidArgument and OSError."""
        for one, least in ((port, 1), (local_port, 0)):
            if not least <= one <= _MOST_PORT:
                raise InvalidArgument(f"cannot forward port {one}: it has to be {least} to {_MOST_PORT}")
        self._link.check_home()
        listener = socket.create_server((_LOCALHOST, local_port), backlog=_BACKLOG)
        made = AsyncForward(self._link, port, listener, on_error)
        self._open = [one for one in self._open if not one.closed] + [made]
        return made

    async def host(self, port: int) -> str:
        """Return the address of the forward that is kept for a port."""
        if port not in self._hosts:
            self._hosts[port] = asyncio.ensure_future(self.open(port))
        try:
            return (await asyncio.shield(self._hosts[port])).address
        except (SandfleetError, OSError):
            self._hosts.pop(port, None)
            raise

    async def close(self) -> None:
        """Close all."""
        opened, self._open, self._hosts = self._open, [], {}
        for one in opened:
            await one.close()
