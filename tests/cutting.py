"""A proxy in front of an executor that cuts connections at the word of a test, or of a show."""

import asyncio
import contextlib
import tempfile
from pathlib import Path

CHUNK_BYTES = 64 << 10


class Cutter:
    """Passes on what comes to a unix socket, or to a port of this machine where the executor has one."""

    def __init__(self, target):
        self._target = target
        self._folder = tempfile.TemporaryDirectory(prefix="cut-")
        self._pairs = set()
        self._deaf = False
        self.connections = 0
        self.address = ""

    async def __aenter__(self):
        if self._target.startswith("unix:"):
            path = Path(self._folder.name) / "s"
            self._server = await asyncio.start_unix_server(self._serve, path)
            self.address = f"unix:{path}"
        else:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
            self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        self.cut()
        self._folder.cleanup()

    def cut(self):
        """Ends every connection there is, in the middle of whatever it is at."""
        for writer in [each for pair in self._pairs for each in pair]:
            writer.transport.abort()

    def deafen(self):
        """From now on nothing that the executor says gets through, until the next `cut_and_heal`."""
        self._deaf = True

    def cut_and_heal(self):
        self._deaf = False
        self.cut()

    async def _connect(self):
        if self._target.startswith("unix:"):
            return await asyncio.open_unix_connection(self._target.removeprefix("unix:"))
        host, port = self._target.rsplit(":", 1)
        return await asyncio.open_connection(host, int(port))

    async def _serve(self, reader, writer):
        try:
            far_reader, far_writer = await self._connect()
        except OSError:
            writer.transport.abort()
            return
        self.connections += 1
        pair = (writer, far_writer)
        self._pairs.add(pair)
        try:
            await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer, answers=True))
        finally:
            self._pairs.discard(pair)
            for each in pair:
                each.transport.abort()

    async def _pass(self, reader, writer, *, answers=False):
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                if not (answers and self._deaf):
                    writer.write(data)
                    await writer.drain()
        writer.transport.abort()
