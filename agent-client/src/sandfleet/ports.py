"""Ports of a sandbox as ports of this machine."""

from __future__ import annotations

import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from sandfleet import _api as api
from sandfleet import _late as late
from sandfleet.errors import InvalidArgument, ProtocolError, SandfleetError

if TYPE_CHECKING:
    import asyncio

    from sandfleet.transport import Connection, Link

OnError = Callable[[SandfleetError], object]

_LOCALHOST = "127.0.0.1"
_MOST_PORT = 65535
# Of one forward: what connects beyond waits in the kernel. The executor allows fewer in all.
_MOST_CONNECTIONS = 128
_BACKLOG = 128
# What is read at once; a connection holds one such piece each way.
_PIECE = 256 * 1024
# After accept() failed for want of descriptors or memory, in seconds.
_PAUSE = 0.1
# How long what a program sent may take to arrive after it has gone, in seconds.
_LINGER = 5.0
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)


class AsyncForward:
    """A port of this machine that leads to one of the sandbox. Each connection to it is one there, made anew."""

    def __init__(self, link: Link, port: int, listener: socket.socket, on_error: OnError | None) -> None:
        """Use `sandbox.forward`."""
        self._closed = False
        self._link = link
        self._port = port
        self._listener = listener
        self._on_error = on_error
        self._local_port: int = listener.getsockname()[1]
        self._room = late.asyncio.Semaphore(_MOST_CONNECTIONS)
        self._connections: set[asyncio.Task[None]] = set()
        self._accepting = late.asyncio.ensure_future(self._accept())

    @property
    def port(self) -> int:
        """In the sandbox."""
        return self._port

    @property
    def local_port(self) -> int:
        """On this machine."""
        return self._local_port

    @property
    def address(self) -> str:
        """Where to connect: "127.0.0.1:PORT"."""
        return f"{_LOCALHOST}:{self._local_port}"

    @property
    def closed(self) -> bool:
        """Whether it listens no more."""
        return self._closed

    async def close(self) -> None:
        """Listen no more and reset the connections that are open. Closing twice is no error."""
        tasks = [self._accepting, *self._connections]
        for task in tasks:
            task.cancel()
        await late.asyncio.gather(*tasks, return_exceptions=True)
        self._listener.close()
        self._closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _accept(self) -> None:
        loop = late.asyncio.get_running_loop()
        while True:
            await self._room.acquire()
            try:
                sock, _ = await loop.sock_accept(self._listener)
            except OSError:
                self._room.release()
                await late.asyncio.sleep(_PAUSE)
                continue
            task = late.asyncio.ensure_future(self._serve(sock))
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
                # Whoever connected must not take what came for all there was.
                with suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
            sock.close()

    async def _tell(self, error: Exception) -> None:
        # What the local program did to its own connection is no news.
        if self._on_error is not None and isinstance(error, SandfleetError):
            said = self._on_error(error)
            if isinstance(said, Awaitable):
                await said

    async def _open(self) -> Any:
        """A call whose connection is open. Raises SandfleetError."""

        async def attempt(connection: Connection) -> Any:
            # The stubs want the requests here; they are written to the call.
            call = connection.port.Tunnel(None, metadata=connection.metadata())
            try:
                async with late.asyncio.timeout(self._link.rpc_timeout):
                    await _write(call, api.port.TunnelRequest(open=api.port.TunnelOpen(port=self._port)))
                    answer = await late.transport.receive(call)
            except BaseException:  # Also a cancellation: nobody else knows of the call.
                call.cancel()
                raise
            if answer is None or answer.WhichOneof("message") != "opened":
                call.cancel()
                raise ProtocolError("cannot use the tunnel: it does not say that it is open", reason="NotOpened")
            return call

        return await self._link.run(attempt, resend=False)


class _Tunnel:
    """One connection: `sock` on this side, an RPC on the other."""

    def __init__(self, sock: socket.socket, call: Any) -> None:
        self._sock = sock
        self._call = call
        self._loop = late.asyncio.get_running_loop()

    async def carry(self) -> None:
        """Take both directions to their ends. Raises SandfleetError, and OSError of the local end."""
        tasks = {late.asyncio.ensure_future(self._up()), late.asyncio.ensure_future(self._down())}
        try:
            await _all(tasks)
        except api.aio.AioRpcError as error:
            raise late.status.to_error(error, "go on with the connection") from error
        finally:
            self._call.cancel()
            for task in tasks:
                task.cancel()
            # Before the descriptor is closed, and perhaps somebody else's.
            await late.asyncio.gather(*tasks, return_exceptions=True)

    async def _up(self) -> None:
        while data := await self._loop.sock_recv(self._sock, _PIECE):
            await _write(self._call, api.port.TunnelRequest(data=data))
        await _write(self._call, api.port.TunnelRequest(end=api.port.TunnelEnd()))

    async def _down(self) -> None:
        """To the end of the call, not of the bytes: it says that what went up has arrived."""
        ended = False
        while (message := await late.transport.receive(self._call)) is not None:
            kind = message.WhichOneof("message")
            if ended or kind == "opened":
                raise ProtocolError(f"cannot take {kind!r} here: out of order", reason="BadOrder")
            ended = kind == "end"
            try:
                await self._deliver(message.data, ended=ended)
            except OSError:
                # The program here has gone, or reads no more. What it sent before is still to arrive.
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
            async with late.asyncio.timeout(_LINGER):
                while await late.transport.receive(self._call) is not None:
                    pass


async def _all(tasks: set[asyncio.Task[None]]) -> None:
    """Wait for all of them. Raises what the first that fails raises."""
    while tasks:
        done, tasks = await late.asyncio.wait(tasks, return_when=late.asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()


async def _write(call: Any, message: api.port.TunnelRequest) -> None:
    """Send a message. Raises AioRpcError where the call has failed."""
    try:
        await call.write(message)
    except late.asyncio.InvalidStateError:
        # It is over: how, its status says.
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
        listener = socket.create_server((_LOCALHOST, local_port), backlog=_BACKLOG)
        listener.setblocking(False)
        made = AsyncForward(self._link, port, listener, on_error)
        self._open = [one for one in self._open if not one.closed] + [made]
        return made

    async def host(self, port: int) -> str:
        """Return the address of the one that is kept for a port."""
        if port not in self._hosts:
            self._hosts[port] = late.asyncio.ensure_future(self.open(port))
        try:
            return (await late.asyncio.shield(self._hosts[port])).address
        except (SandfleetError, OSError):
            self._hosts.pop(port, None)
            raise

    async def close(self) -> None:
        """Close all."""
        opened, self._open, self._hosts = self._open, [], {}
        for one in opened:
            await one.close()
