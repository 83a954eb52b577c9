"""A TCP proxy that can delay, cut and swallow: what networks do, at the word of a test."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

Answer = TypeVar("Answer")
CHUNK_BYTES = 64 * 1024
CONNECT_SECONDS = 5


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close at once and with a reset, as a machine does that knows of no such connection."""
    line = writer.get_extra_info("socket")
    if line is not None and not writer.transport.is_closing():
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@dataclass(eq=False)
class _Pair:
    """One connection through the proxy."""

    writers: tuple[asyncio.StreamWriter, asyncio.StreamWriter]

    def abort(self) -> None:
        for writer in self.writers:
            _reset(writer)


@dataclass
class Proxy:
    """Listens on one address and forwards to another. Commands take effect at once, on open connections too."""

    target: tuple[str, int]
    host: str = "127.0.0.1"
    port: int = 0
    _delay: float = 0.0
    _refuse: bool = False
    _pairs: set[_Pair] = field(default_factory=set, repr=False)
    _open: asyncio.Event = field(default_factory=asyncio.Event, repr=False)
    _server: asyncio.Server | None = field(default=None, repr=False)
    _call: Callable[[Coroutine[Any, Any, Any]], Any] | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def delay(self, seconds: float) -> None:
        """Hold every piece of data back for so long, in both directions; order is kept."""
        self._delay = seconds

    def black_hole(self) -> None:
        """From now on nothing gets through, without an error: sent bytes wait until `heal`."""
        self._do(self._close())

    def cut(self, *, refuse: bool = False) -> None:
        """Reset every connection there is; with `refuse` new ones are reset as well, until `heal`."""
        self._refuse = refuse
        self._do(self._cut())

    def heal(self) -> None:
        self._delay, self._refuse = 0.0, False
        self._do(self._reopen())

    @property
    def connections(self) -> int:
        return len(self._pairs)

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        if self._call is None:
            raise RuntimeError("cannot disturb a proxy that does not run")
        self._call(work)

    async def _close(self) -> None:
        self._open.clear()

    async def _reopen(self) -> None:
        self._open.set()

    async def _cut(self) -> None:
        for pair in tuple(self._pairs):
            pair.abort()

    async def _listen(self) -> None:
        self._open.set()
        self._server = await asyncio.start_server(self._serve, self.host, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuse:
            _reset(writer)
            return
        try:
            onward = asyncio.open_connection(*self.target)
            far_reader, far_writer = await asyncio.wait_for(onward, CONNECT_SECONDS)
        except (OSError, TimeoutError):
            _reset(writer)
            return
        pair = _Pair((writer, far_writer))
        self._pairs.add(pair)
        try:
            await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer))
        finally:
            self._pairs.discard(pair)
            pair.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                if self._delay:
                    await asyncio.sleep(self._delay)
                await self._open.wait()
                writer.write(data)
                await writer.drain()
            writer.write_eof()


class Chaos:
    """Proxies on a thread of their own, so that synchronous and asynchronous tests use them alike."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chaos", daemon=True)
        self._thread.start()
        self._proxies: list[Proxy] = []

    def _call(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=10)

    def proxy(self, host: str, port: int, listen: str = "127.0.0.1") -> Proxy:
        """A new proxy in front of `host:port`; `listen` is the machine's address for pods, if they use it."""
        one = Proxy((host, port), listen)
        one._call = self._call
        self._call(one._listen())
        self._proxies.append(one)
        return one

    async def _stop(self) -> None:
        for proxy in self._proxies:
            await proxy._cut()
            if proxy._server:
                proxy._server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def close(self) -> None:
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)
        self._loop.close()
