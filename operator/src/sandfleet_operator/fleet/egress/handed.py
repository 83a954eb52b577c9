"""Sessions of one machine: an executor hands the listener of its session over, and hears of each connection."""

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from itertools import count
from typing import Any

from sandfleet_operator.cluster.tasks import readable
from sandfleet_operator.fleet.egress.peer import Peer, SocketPeer

MAX_GREETING = 4096
GREETING_SECONDS = 10.0
# Reports that an executor has not read, in bytes.
MOST_UNSAID = 1 << 20
# Programs that have connected and are not accepted yet.
BACKLOG = 128
RESET_AT_CLOSE, CLOSE = struct.pack("ii", 1, 0), struct.pack("ii", 0, 0)

Say = Callable[[Mapping[str, Any]], None]
# Serves a program of the session.
Serve = Callable[[str, Peer], Coroutine[Any, Any, None]]


class HandedPeer(SocketPeer):
    """A program's own connection. If this process ends in the middle, the program sees a reset."""

    def __init__(self, begin: Callable[[SocketPeer], None], say: Say) -> None:
        super().__init__(begin)
        self._say = say

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._linger(RESET_AT_CLOSE)

    def say(self, report: Mapping[str, Any]) -> None:
        self._say(report)

    def carried(self, sent: int, received: int) -> None:
        self._say({"carried": [sent, received]})

    async def has_ended(self) -> bool:
        self.end()
        await self.drained()
        return True

    def close(self) -> None:
        # One that was aborted is closed in the next turn, and stays a reset.
        if not self.transport.is_closing():
            self._linger(CLOSE)
            super().close()

    def _linger(self, option: bytes) -> None:
        with contextlib.suppress(OSError):
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, option)


async def serve(listener: socket.socket, serve_program: Serve) -> None:
    """Takes executors at the socket of the egress process, until it is cancelled."""
    listener.setblocking(False)
    tasks: set[asyncio.Task[None]] = set()
    while True:
        try:
            sock, _ = await asyncio.get_running_loop().sock_accept(listener)
        except OSError:
            # No descriptors are left.
            await asyncio.sleep(0.1)
            continue
        tasks.add(task := asyncio.create_task(_executor(sock, serve_program)))
        task.add_done_callback(tasks.discard)


async def _executor(sock: socket.socket, serve_program: Serve) -> None:
    """One executor, until it ends: then all of its programs' connections end, too."""
    sock.setblocking(False)
    handed: socket.socket | None = None
    close: Callable[[], None] = sock.close
    programs: set[asyncio.Task[Any]] = set()
    try:
        async with asyncio.timeout(GREETING_SECONDS):
            session_id, handed = await _greeting(sock)
        reader, writer = await asyncio.open_connection(sock=sock)
        # From here on its transport owns it, and would meet its number again at another one.
        close, numbers = writer.transport.abort, count()
        loop = asyncio.get_running_loop()

        def connected(peer: SocketPeer) -> None:
            programs.add(task := loop.create_task(serve_program(session_id, peer)))
            task.add_done_callback(programs.discard)

        def program() -> SocketPeer:
            return HandedPeer(connected, partial(_say, writer, next(numbers)))

        async with await loop.create_server(program, sock=handed, backlog=BACKLOG):
            handed = None
            # It says nothing more.
            await reader.read(1)
    except (OSError, ValueError, KeyError):
        # It has gone, or is no executor.
        pass
    finally:
        close()
        if handed is not None:
            handed.close()
        for task in tuple(programs):
            task.cancel()


def _say(writer: asyncio.StreamWriter, number: int, report: Mapping[str, Any]) -> None:
    """Tells an executor of its connection of this number. One that does not listen misses some."""
    if writer.transport.get_write_buffer_size() < MOST_UNSAID:
        writer.write(json.dumps({"id": number, **report}, separators=(",", ":")).encode("ascii") + b"\n")


async def _greeting(sock: socket.socket) -> tuple[str, socket.socket]:
    """The session of an executor, and its listener. Raises OSError, ValueError and KeyError."""
    await readable(sock)
    data, descriptors, _, _ = socket.recv_fds(sock, MAX_GREETING, 1)
    if not descriptors:
        raise ValueError("it hands nothing over")
    handed = socket.socket(fileno=descriptors[0])
    try:
        return str(json.loads(data)["session"]), handed
    except (ValueError, KeyError, TypeError):
        handed.close()
        raise
