"""The executor host: one process that starts all executors of this machine. JSON lines over a socket pair."""

import asyncio
import contextlib
import json
import logging
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any, Self

# -P: what lies in the current directory is not ours to import.
HOST_COMMAND = (sys.executable, "-P", "-m", "sandfleet_executor", "host")
MAX_LINE_BYTES = 64 << 10
STDERR_TAIL_BYTES = 4096
# Seconds from the end of its control socket to its own; it has ended its executors by then.
CLOSE_TIMEOUT = 6.0
# Seconds from its end to the end of its standard error, which its executors have too.
LAST_WORDS_TIMEOUT = 0.5

_LOG = logging.getLogger(__name__)


class ExecutorHost:
    """A running host. The end of its events is the end of the host."""

    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._stderr = b""
        self._draining = asyncio.create_task(self._drain_stderr())

    @classmethod
    async def launch(cls, command: Sequence[str]) -> Self:
        """Raises OSError where the program cannot be started."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *command,
                "--control-fd",
                str(theirs.fileno()),
                pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                # Ctrl-C in a terminal is the owner's business; the host ends when its owner does.
                start_new_session=True,
            )
        reader, writer = await asyncio.open_connection(sock=ours, limit=MAX_LINE_BYTES)
        return cls(process, reader, writer)

    def send(self, message: dict[str, Any]) -> None:
        """Never blocks: a host that is gone shows by the end of its events."""
        self._writer.write(json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n")

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        with contextlib.suppress(ConnectionError):
            while line := await self._line():
                try:
                    event = json.loads(line)
                except ValueError:
                    event = None
                if isinstance(event, dict):
                    yield event
                else:
                    _LOG.warning("cannot understand the executor host: %r", line[:200])

    async def _line(self) -> bytes:
        try:
            return await self._reader.readline()
        except ValueError:
            _LOG.warning("cannot understand the executor host: a line of more than %d bytes", MAX_LINE_BYTES)
            return b""

    async def last_words(self) -> str:
        """The last line that it or an executor wrote to standard error, or empty. For when they have ended."""
        await asyncio.wait([self._draining], timeout=LAST_WORDS_TIMEOUT)
        lines = self._stderr.decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:500] if lines else ""

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def close(self) -> None:
        """Takes the control socket away, and returns when the host has ended."""
        self._writer.close()
        try:
            await asyncio.wait_for(self._process.wait(), CLOSE_TIMEOUT)
        except TimeoutError:
            _LOG.warning("the executor host did not end by itself and was killed")
            self.kill()
            await self._process.wait()
        await asyncio.wait([self._draining], timeout=LAST_WORDS_TIMEOUT)
        self._draining.cancel()

    async def _drain_stderr(self) -> None:
        assert self._process.stderr is not None
        while chunk := await self._process.stderr.read(STDERR_TAIL_BYTES):
            self._stderr = (self._stderr + chunk)[-STDERR_TAIL_BYTES:]
