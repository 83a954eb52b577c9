"""A proxy in front of an executor that cuts connections at a word."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path
from typing import Self

_CHUNK_BYTES = 64 * 1024


class Cutter:
    """Passes on what comes to a unix socket ("unix:/path"), or to a port ("host:port") where the executor has one."""

    def __init__(self, target: str) -> None:
        """Use it as an asynchronous context manager."""
        self._target = target
        self._folder = tempfile.TemporaryDirectory(prefix="cut-")
        self._writers: set[asyncio.StreamWriter] = set()
        self._deaf = False
        # Bytes of answers that still get through before everything is cut; None: no cut is due.
        self._left: int | None = None
        self._server: asyncio.Server | None = None
        # Made so far.
        self.connections = 0
        # Where to connect instead of the target.
        self.address = ""

    async def __aenter__(self) -> Self:
        if self._target.startswith("unix:"):
            path = Path(self._folder.name) / "s"
            self._server = await asyncio.start_unix_server(self._serve, path)
            self.address = f"unix:{path}"
        else:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
            self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server:
            self._server.close()
        self.cut()
        self._folder.cleanup()

    def cut(self) -> None:
        """End every connection there is, in the middle of whatever it is at."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    def cut_after(self, answers: int) -> None:
        """Cut once, when so many more bytes of what the executor says have got through."""
        self._left = answers

    def deafen(self) -> None:
        """From now on nothing that the executor says gets through, until `cut_and_heal`."""
        self._deaf = True

    def cut_and_heal(self) -> None:
        """Let new connections hear again."""
        self._deaf = False
        self.cut()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._target.startswith("unix:"):
            return await asyncio.open_unix_connection(self._target.removeprefix("unix:"))
        host, _, port = self._target.rpartition(":")
        return await asyncio.open_connection(host, int(port))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await self._connect()
        except OSError:
            writer.transport.abort()
            return
        self.connections += 1
        pair = {writer, far_writer}
        self._writers |= pair
        try:
            await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer, answers=True))
        finally:
            self._writers -= pair
            for each in pair:
                each.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool = False) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK_BYTES):
                if answers and self._left is not None:
                    await self._say_the_last(writer, data)
                elif not (answers and self._deaf):
                    writer.write(data)
                    await writer.drain()
        writer.transport.abort()

    async def _say_the_last(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        """As much as gets through of it before the cut."""
        assert self._left is not None
        said, self._left = data[: self._left], self._left - len(data)
        writer.write(said)
        await writer.drain()
        if self._left < 0:
            self._left = None
            # What is in the socket is heard; what an abort would drop is not.
            await asyncio.sleep(0)
            self.cut()
