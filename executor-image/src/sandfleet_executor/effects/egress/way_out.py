"""Carries the session's connections to the egress process and says whose they are. It reads none of their bytes."""

import asyncio
import contextlib
import json
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

from sandfleet_executor.effects.egress import authorities
from sandfleet_executor.effects.network.tunnels import ResetByPeer, Tunnel

# More than the egress process takes of one session: it refuses in words.
MOST = 160
CONNECT_SECONDS = 10.0
# The egress process ends what is idle for much less.
IDLE_SECONDS = 86_400.0


class WayOut:
    """One sandbox's. Until `open` or `shut` nothing is accepted: no user code runs before."""

    def __init__(self, path: str | None, tmp_fd: Callable[[], int | None]) -> None:
        """`path` is the socket of the egress process; None: there is none. `tmp_fd`: of the namespace's /tmp."""
        self._tmp_fd = tmp_fd
        self._path = path or ""
        self._listener: socket.socket | None = None
        self._session_id = ""
        self._is_shut = path is None
        self._serving: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        # Of hosts with credentials; each namespace has it in a file.
        self._authority = b""

    @property
    def is_open(self) -> bool:
        return bool(self._session_id)

    def listen(self, listener: socket.socket) -> None:
        """The listening socket of a new session namespace, in the place of an earlier one. Owns it."""
        self._end()
        if self._is_shut:
            listener.close()
            return
        listener.setblocking(False)
        self._listener = listener
        if self.is_open:
            self._begin()

    def open(self, session_id: str, authority: bytes) -> None:
        """From now on the session's connections are carried. `authority`: what it trusts beside the machine's."""
        self._session_id, self._authority = session_id, authority
        self._begin()

    def _begin(self) -> None:
        """In a namespace in which no code has run yet."""
        if self._listener is None or self._serving is not None:
            return
        if self._authority and (tmp_fd := self._tmp_fd()) is not None:
            authorities.write(tmp_fd, self._authority)
        self._serving = asyncio.ensure_future(self._accept(self._listener))

    def shut(self) -> None:
        """The session has no way out: its port is closed."""
        self._is_shut = True
        self._end()

    def _end(self) -> None:
        for task in (self._serving, *self._tasks):
            if task is not None:
                task.cancel()
        self._serving = None
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def _accept(self, listener: socket.socket) -> None:
        room = asyncio.Semaphore(MOST)
        while True:
            await room.acquire()
            try:
                sock, _ = await asyncio.get_running_loop().sock_accept(listener)
            except OSError:
                # No descriptors are left: they come back as connections end.
                room.release()
                await asyncio.sleep(0.1)
                continue
            task = asyncio.ensure_future(self._carried(sock))
            self._tasks.add(task)
            task.add_done_callback(partial(self._over, room))

    def _over(self, room: asyncio.Semaphore, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        room.release()

    async def _carried(self, sock: socket.socket) -> None:
        inner = Tunnel(sock, _unused, IDLE_SECONDS)
        try:
            # Where the egress process is away, the program sees a reset.
            with contextlib.suppress(OSError, ResetByPeer):
                outer = Tunnel(await self._connected(), _unused, IDLE_SECONDS)
                try:
                    await outer.write(json.dumps({"session": self._session_id}).encode("ascii") + b"\n")
                    await _both(inner, outer)
                finally:
                    outer.close()
        finally:
            inner.close()

    async def _connected(self) -> socket.socket:
        """A connection to the egress process. Raises OSError."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await asyncio.get_running_loop().sock_connect(sock, self._path)
        except BaseException:  # Also a cancellation: no other code would close it.
            sock.close()
            raise
        return sock


async def _both(inner: Tunnel, outer: Tunnel) -> None:
    """Carries both ways. Raises ResetByPeer."""
    out = asyncio.ensure_future(_out(inner, outer))
    back = asyncio.ensure_future(_back(outer, inner))
    try:
        await asyncio.gather(out, back)
    finally:
        out.cancel()
        back.cancel()
        await asyncio.gather(out, back, return_exceptions=True)


async def _out(inner: Tunnel, outer: Tunnel) -> None:
    async for data in inner.read():
        # The egress process takes no more, but what it has said last is still on the way back.
        with contextlib.suppress(ResetByPeer):
            await outer.write(data)
    with contextlib.suppress(ResetByPeer):
        outer.end()


async def _back(outer: Tunnel, inner: Tunnel) -> None:
    async for data in outer.read():
        await inner.write(data)
    inner.end()


def _unused() -> None:
    """What is carried out of a session is no use of the sandbox by its caller."""
