"""The snapshotter of this machine: one process, started at the first snapshot, with the store."""

import asyncio
import contextlib
import json
import logging
import sys
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.reasons import CallReason, ClaimReason, SuspendReason
from sandfleet_operator.executors.client import IN_THE_WAY
from sandfleet_operator.plan.snapshots.reasons import SnapshotReason

COMMAND = (sys.executable, "-P", "-m", "sandfleet_operator.snapshots.worker")
MAX_LINE_BYTES = 4 << 20
# Seconds that it has to end.
CLOSE_SECONDS = 2.0
OF_STORE = {
    "NotFound": SnapshotReason.SNAPSHOT_NOT_FOUND,
    "Exists": SnapshotReason.SNAPSHOT_INVALID,
    "Corrupt": SnapshotReason.SNAPSHOT_DAMAGED,
    "Foreign": SnapshotReason.SNAPSHOT_DAMAGED,
    "Changed": SnapshotReason.SNAPSHOT_DAMAGED,
    "Hostile": SnapshotReason.SNAPSHOT_INVALID,
    "TooLarge": SnapshotReason.SNAPSHOT_TOO_LARGE,
    "Widened": SnapshotReason.SNAPSHOT_WIDENED,
    "Full": SnapshotReason.SNAPSHOT_STORE_FULL,
    "Denied": SnapshotReason.SNAPSHOT_STORE_DENIED,
}
OF_EXECUTOR: dict[str, CallReason] = {
    "SnapshotRunning": SnapshotReason.SNAPSHOT_RUNNING,
    "SandboxSuspended": ClaimReason.SANDBOX_SUSPENDED,
    "NoSpace": SnapshotReason.SNAPSHOT_TOO_LARGE,
    "TooManyEntries": SnapshotReason.SNAPSHOT_TOO_LARGE,
    "TooManyStates": SnapshotReason.SNAPSHOT_TOO_LARGE,
    "InvalidEntry": SnapshotReason.SNAPSHOT_INVALID,
    "InvalidStream": SnapshotReason.SNAPSHOT_INVALID,
    "InvalidArgument": SnapshotReason.SNAPSHOT_INVALID,
    "StateDamaged": SnapshotReason.SNAPSHOT_INVALID,
}

Event = dict[str, Any]
# A job: what it was, its end (done, failed or left), how long it took in seconds, and the snapshot of its last event.
Ended = Callable[[str, str, float, Event | None], None]

_LOG = logging.getLogger(__name__)


class Snapshotter:
    """Jobs for the process. A process that has ended fails its jobs; the next job starts another one."""

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self._starting = asyncio.Lock()
        self._jobs: dict[int, asyncio.Queue[Event | None]] = {}
        self._next_id = 0
        self._reading: asyncio.Task[None] | None = None
        self.ended: Ended = lambda *_: None

    async def run(self, op: str, **request: Any) -> AsyncGenerator[Event, None]:
        """The events of a job, up to the one that ends it. Leaving it early ends the job. Raises FleetError."""
        began, end, last = time.monotonic(), "left", dict[str, Any]()
        try:
            async with aclosing(self._run(op, request)) as events:
                async for event in events:
                    last = event
                    yield event
            end = "done"
        except FleetError:
            end = "failed"
            raise
        finally:
            self.ended(op, end, time.monotonic() - began, last.get("snapshot"))

    async def _run(self, op: str, request: dict[str, Any]) -> AsyncGenerator[Event, None]:
        process = await self._running()
        self._next_id += 1
        number, events = self._next_id, asyncio.Queue[Event | None]()
        self._jobs[number] = events
        done = False
        try:
            self._send(process, {"id": number, "op": op, **request})
            while not done:
                event = await events.get()
                if event is None:
                    done = True
                    raise _ended()
                done = event["event"] in ("done", "failed")
                if event["event"] == "failed":
                    raise _failure(event)
                yield event
        finally:
            del self._jobs[number]
            if not done:
                self._send(process, {"id": number, "op": "cancel"})

    async def answer(self, op: str, **request: Any) -> Event:
        """The last event of a job. Raises FleetError."""
        last: Event = {}
        async for event in self.run(op, **request):
            last = event
        return last

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

    async def _running(self) -> asyncio.subprocess.Process:
        async with self._starting:
            if self._process is None or self._process.returncode is not None:
                self._process = await self._launch()
            return self._process

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
            raise _failure(hello) if hello else _ended()
        self._reading = asyncio.create_task(self._read(process))
        return process

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        while (event := await self._event(process)) is not None:
            if (events := self._jobs.get(event.get("id", 0))) is not None:
                events.put_nowait(event)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        for events in self._jobs.values():
            events.put_nowait(None)

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

    @staticmethod
    def _send(process: asyncio.subprocess.Process, message: dict[str, Any]) -> None:
        """A process that is gone shows by the end of its events."""
        assert process.stdin is not None
        with contextlib.suppress(OSError, RuntimeError):
            process.stdin.write(json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n")


def _ended() -> FleetError:
    return SnapshotReason.SNAPSHOT_STORE_UNAVAILABLE.error("cannot reach the snapshotter: its process has ended")


def _failure(event: Event) -> FleetError:
    reason, message = str(event.get("reason", "")), str(event.get("message", ""))
    if event.get("source") == "store":
        return OF_STORE.get(reason, SnapshotReason.SNAPSHOT_STORE_UNAVAILABLE).error(message)
    for one in IN_THE_WAY:
        if one.value == reason:
            return FleetError(one.problem(message, passing=one is not SuspendReason.STATE_NOT_SAVED))
    return OF_EXECUTOR.get(reason, ClaimReason.EXECUTOR_UNREACHABLE).error(message)
