"""The snapshotter of this machine: one process, started at the first snapshot, with the store."""

import asyncio
import contextlib
import json
import logging
import sys
from collections.abc import Sequence

from sandfleet_operator.fleet.snapshots.jobs import Event, Jobs, Send, failure, gone
from sandfleet_operator.plan.snapshots.reasons import SnapshotReason

COMMAND = (sys.executable, "-P", "-m", "sandfleet_operator.snapshots.worker")
MAX_LINE_BYTES = 4 << 20
# Seconds that it has to end.
CLOSE_SECONDS = 2.0

_LOG = logging.getLogger(__name__)


class Snapshotter(Jobs):
    """Jobs for the process. A process that has ended fails its jobs; the next job starts another one."""

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        super().__init__()
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self._send: Send = lambda _: None
        self._starting = asyncio.Lock()
        self._reading: asyncio.Task[None] | None = None

    async def close(self) -> None:
        async with self._starting:
            process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), CLOSE_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()
        if self._reading:
            await asyncio.wait([self._reading], timeout=CLOSE_SECONDS)

    async def reach(self) -> Send:
        async with self._starting:
            if self._process is None or self._process.returncode is not None:
                self._process = await self._launch()
            return self._send

    async def _launch(self) -> asyncio.subprocess.Process:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                limit=MAX_LINE_BYTES,
                # As the executor host: it ends when its owner does.
                start_new_session=True,
            )
        except OSError as error:
            why = f"cannot start the snapshotter: {error.strerror}"
            raise SnapshotReason.SNAPSHOT_STORE_UNAVAILABLE.error(why) from error
        hello = await self._event(process)
        if hello is None or hello["event"] != "ready":
            process.kill()
            raise failure(hello) if hello else gone()
        self._send = _line_of(process)
        self._reading = asyncio.create_task(self._read(process, self._send))
        return process

    async def _read(self, process: asyncio.subprocess.Process, send: Send) -> None:
        while (event := await self._event(process)) is not None:
            self.heard(event)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        self.lost(send)

    @staticmethod
    async def _event(process: asyncio.subprocess.Process) -> Event | None:
        assert process.stdout is not None
        try:
            line = await process.stdout.readline()
            found = json.loads(line) if line else None
        except ValueError:
            _LOG.warning("cannot understand the snapshotter")
            return None
        return found if isinstance(found, dict) and "event" in found else None


def _line_of(process: asyncio.subprocess.Process) -> Send:
    def send(message: Event) -> None:
        assert process.stdin is not None
        with contextlib.suppress(OSError, RuntimeError):
            process.stdin.write(json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n")

    return send
