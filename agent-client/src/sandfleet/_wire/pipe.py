"""Bytes between sockets of this machine and streams of gRPC: for forwarded ports, and for relays to executors."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from sandfleet._wire import api
from sandfleet._wire.link import receive
from sandfleet._wire.status import to_error
from sandfleet.errors import ProtocolError

# Size of one read; a connection holds one such piece in each direction.
_PIECE = 256 * 1024
# Pause after accept() failed for lack of descriptors or memory, in seconds.
_PAUSE = 0.1
# How long data may take to arrive after the program that sent it has gone, in seconds.
_LINGER = 5.0
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)


class Listener:
    """Accepts connections, at most so many at once: more wait in the kernel. `serve` has each until it returns."""

    def __init__(self, sock: socket.socket, serve: Callable[[socket.socket], Awaitable[None]], most: int) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._serve = serve
        self._room = asyncio.Semaphore(most)
        self._connections: set[asyncio.Task[None]] = set()
        self._accepting = asyncio.ensure_future(self._accept())

    def stop(self) -> None:
        """Accept no more; connections that are open go on."""
        self._accepting.cancel()
        self._accepting.add_done_callback(lambda _: self._sock.close())

    async def close(self) -> None:
        """Accept no more, and reset open connections. Closing twice is no error."""
        self.stop()
        tasks = [self._accepting, *self._connections]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._sock.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._room.acquire()
            try:
                sock, _ = await loop.sock_accept(self._sock)
            except OSError:
                self._room.release()
                await asyncio.sleep(_PAUSE)
                continue
            sock.setblocking(False)
            task = asyncio.ensure_future(self._serve(sock))
            self._connections.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._connections.discard(task)
        self._room.release()


async def connect(sock: socket.socket, pipe: Callable[[], Awaitable[Pipe]]) -> None:
    """Carry a connection to its end, and close its socket. Raises SandfleetError, and OSError for the local end."""
    whole = False
    try:
        await (await pipe()).carry(sock)
        whole = True
    finally:
        if not whole:
            # A reset tells the program that the data it received is incomplete.
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
        sock.close()


class Pipe:
    """A tunnel's RPC that is open. `request` makes its messages."""

    def __init__(self, call: Any, request: Callable[..., Any]) -> None:
        self._call = call
        self._request = request
        # gRPC takes one message at a time.
        self._turn = asyncio.Lock()

    @classmethod
    async def open(cls, call: Any, request: Callable[..., Any], first: Any, patience: float) -> Pipe:
        """Open a tunnel with its first message. Raises AioRpcError, ProtocolError, TimeoutError."""
        made = cls(call, request)
        try:
            async with asyncio.timeout(patience):
                await made.send(open=first)
                answer = await receive(call)
        except BaseException:  # Also a cancellation: no other code can cancel the call.
            call.cancel()
            raise
        if answer is None or answer.WhichOneof("message") != "opened":
            call.cancel()
            raise ProtocolError("cannot use the tunnel: it does not say that it is open", reason="NotOpened")
        return made

    async def send(self, **message: Any) -> None:
        """Send a message. Raises AioRpcError if the call has failed."""
        try:
            async with self._turn:
                await self._call.write(self._request(**message))
        except asyncio.InvalidStateError:
            # The call has ended; its status says how.
            await self._call.code()
            raise ProtocolError("cannot go on with the connection: its other end is gone", reason="NoEnd") from None

    async def carry(self, sock: socket.socket) -> None:
        """Carry both directions to their ends. Raises SandfleetError, and OSError for the local end."""
        tasks = {asyncio.ensure_future(self._up(sock)), asyncio.ensure_future(self._down(sock))}
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

    async def _up(self, sock: socket.socket) -> None:
        while data := await asyncio.get_running_loop().sock_recv(sock, _PIECE):
            await self.send(data=data)
        await self.send(end=api.port.TunnelEnd())

    async def _down(self, sock: socket.socket) -> None:
        """Read to the end of the call, not only of the bytes: its end confirms that the uploaded bytes have arrived."""
        ended = False
        while (message := await receive(self._call)) is not None:
            kind = message.WhichOneof("message")
            if ended or kind == "opened":
                raise ProtocolError(f"cannot take {kind!r} here: out of order", reason="BadOrder")
            ended = kind == "end"
            try:
                await asyncio.get_running_loop().sock_sendall(sock, message.data)
                if ended:
                    sock.shutdown(socket.SHUT_WR)
            except OSError:
                # The local program has gone or stopped reading. The data that it sent before must still arrive.
                await self._discard()
                raise
        if not ended:
            raise ProtocolError("cannot go on with the connection: it ended without its end", reason="NoEnd")

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
