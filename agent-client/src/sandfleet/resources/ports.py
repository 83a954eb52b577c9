"""Ports of a sandbox, forwarded to ports of this machine."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from sandfleet._wire import api
from sandfleet._wire.link import receive
from sandfleet._wire.status import to_error
from sandfleet.errors import InvalidArgument, ProtocolError, SandfleetError

if TYPE_CHECKING:
    from sandfleet._wire.link import Connection, Link

OnError = Callable[[SandfleetError], object]

_LOCALHOST = "127.0.0.1"
_MOST_PORT = 65535
# Of one forward: more connections wait in the kernel. The executor allows fewer in total.
_MOST_CONNECTIONS = 128
_BACKLOG = 128
# Size of one read; a connection holds one such piece in each direction.
_PIECE = 256 * 1024
# Pause after accept() failed for lack of descriptors or memory, in seconds.
_PAUSE = 0.1
# How long data may take to arrive after the program that sent it has gone, in seconds.
_LINGER = 5.0
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)


class AsyncForward:
    """A port of this machine that leads to a port of the sandbox. Each connection opens a new one in the sandbox."""

    def __init__(self, link: Link, port: int, listener: socket.socket, on_error: OnError | None) -> None:
        """Use `sandbox.forward`."""
        self._closed = False
        self._link = link
        self._port = port
        self._listener = listener
        self._on_error = on_error
        self._local_port: int = listener.getsockname()[1]
        self._room = asyncio.Semaphore(_MOST_CONNECTIONS)
        self._connections: set[asyncio.Task[None]] = set()
        self._accepting = asyncio.ensure_future(self._accept())

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
    def closed(self) -> bool:
        """Whether the forward is closed."""
        return self._closed

    async def close(self) -> None:
        """Stop listening and reset open connections. Closing twice is no error."""
        tasks = [self._accepting, *self._connections]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listener.close()
        self._closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._room.acquire()
            try:
                sock, _ = await loop.sock_accept(self._listener)
            except OSError:
                self._room.release()
                await asyncio.sleep(_PAUSE)
                continue
            task = asyncio.ensure_future(self._serve(sock))
            self._connections.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._connections.discard(task)
        self._room.release()

    async def _serve(self, sock: socket.socket) -> None:
        whole = False
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await _Tunnel(sock, await self._open()).carry()
            whole = True
        except (SandfleetError, OSError) as error:
            await self._tell(error)
        finally:
            if not whole:
                # A reset tells the program that the data it received is incomplete.
                with suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
            sock.close()

    async def _tell(self, error: Exception) -> None:
        # The local program knows what it did to its own connection.
        if self._on_error is not None and isinstance(error, SandfleetError):
            said = self._on_error(error)
            if isinstance(said, Awaitable):
                await said

    async def _open(self) -> Any:
        """Open a call with a connection in the sandbox. Raises SandfleetError."""

        async def attempt(connection: Connection) -> Any:
            # The stubs expect the requests here; they are written to the call instead.
            call = connection.port.Tunnel(None, metadata=connection.metadata())
            try:
                async with asyncio.timeout(self._link.rpc_timeout):
                    await _write(call, api.port.TunnelRequest(open=api.port.TunnelOpen(port=self._port)))
                    answer = await receive(call)
            except BaseException:  # Also a cancellation: no other code can cancel the call.
                call.cancel()
                raise
            if answer is None or answer.WhichOneof("message") != "opened":
                call.cancel()
                raise ProtocolError("cannot use the tunnel: it does not say that it is open", reason="NotOpened")
            return call

        return await self._link.run(attempt, resend=False)


class _Tunnel:
    """One connection: `sock` here, an RPC to the sandbox."""

    def __init__(self, sock: socket.socket, call: Any) -> None:
        self._sock = sock
        self._call = call
        self._loop = asyncio.get_running_loop()

    async def carry(self) -> None:
        """Carry both directions to their ends. Raises SandfleetError, and OSError for the local end."""
        tasks = {asyncio.ensure_future(self._up()), asyncio.ensure_future(self._down())}
        try:
            await _all(tasks)
        except api.aio.AioRpcError as error:
            raise to_error(error, "go on with the connection") from error
        finally:
            self._call.cancel()
            for task in tasks:
                task.cancel()
            # Before the descriptor is closed and possibly reused.
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _up(self) -> None:
        while data := await self._loop.sock_recv(self._sock, _PIECE):
            await _write(self._call, api.port.TunnelRequest(data=data))
        await _write(self._call, api.port.TunnelRequest(end=api.port.TunnelEnd()))

    async def _down(self) -> None:
        """Read to the end of the call, not only of the bytes: its end confirms that the uploaded bytes have arrived."""
        ended = False
        while (message := await receive(self._call)) is not None:
            kind = message.WhichOneof("message")
            if ended or kind == "opened":
                raise ProtocolError(f"cannot take {kind!r} here: out of order", reason="BadOrder")
            ended = kind == "end"
            try:
                await self._deliver(message.data, ended=ended)
            except OSError:
                # The local program has gone or stopped reading. The data that it sent before must still arrive.
                await self._discard()
                raise
        if not ended:
            raise ProtocolError("cannot go on with the connection: it ended without its end", reason="NoEnd")

    async def _deliver(self, data: bytes, *, ended: bool) -> None:
        await self._loop.sock_sendall(self._sock, data)
        if ended:
            self._sock.shutdown(socket.SHUT_WR)

    async def _discard(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_LINGER):
                while await receive(self._call) is not None:
                    pass


async def _all(tasks: set[asyncio.Task[None]]) -> None:
    """Wait for all tasks. Raises the exception of the first one that fails."""
    while tasks:
        done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()


async def _write(call: Any, message: api.port.TunnelRequest) -> None:
    """Send a message. Raises AioRpcError if the call has failed."""
    try:
        await call.write(message)
    except asyncio.InvalidStateError:
        # The call has ended; its status says how.
        await call.code()
        raise ProtocolError("cannot go on with the connection: its other end is gone", reason="NoEnd") from None


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
        listener.setblocking(False)
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
