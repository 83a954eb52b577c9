"""Measures what the sandbox uses, once for all watchers, and enforces the limit of the disk."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from sandfleet_executor.core.errors import BusyError
from sandfleet_executor.core.executions.outcomes import Cause
from sandfleet_executor.core.executions.usage import Tallies, Totals
from sandfleet_executor.core.files import disk as rules
from sandfleet_executor.core.limits import Limits
from sandfleet_executor.effects.executions.meter import ExecutionMeter
from sandfleet_executor.effects.session.session import Session

MAX_WATCHERS = 64
# Seconds: between two looks at the disk while something runs and while nothing does, and for code to react to the end.
DISK_SECONDS = 0.1
IDLE_DISK_SECONDS = 1.0
DISK_GRACE = 0.2
# Seconds after which a watcher gets a message even without a change.
HEARTBEAT_SECONDS = 5.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reading:
    """Of the whole sandbox: bytes and counts now, and since its executor started."""

    memory: int
    tmp: int
    processes: int
    cpu_seconds: float
    running: int
    # None until it is known.
    disk: int | None
    wall_seconds: float
    totals: Totals
    # None where the kernel does not tell.
    written: int | None
    limits: Limits
    # They go on counting.
    tallies: Tallies


class SandboxMeter:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._disk = session.disk
        self._started = time.monotonic()
        self._peak_memory = 0
        self._peak_processes = 0
        self._watchers = 0
        # What each execution had written when the disk was last looked at.
        self._written: dict[str, int] = {}
        self._ended = session.ledger.ended
        # The last look ended no execution, because one had just ended by itself. Not twice in a row: short executions
        # would hide the writer.
        self._excused = False
        self._idle_tried = False

    async def read(self, age: float = 0.0) -> Reading:
        """What is used now, or was less than `age` seconds ago. Raises NamespaceError."""
        session = self._session
        if age == 0:
            await self._disk.look()
        used = await (await session.namespaces.get()).usage(age)
        totals = session.ledger.totals()
        self._peak_memory = max(self._peak_memory, used["peak"], totals.peak_memory_bytes)
        self._peak_processes = max(self._peak_processes, used["processes"], totals.peak_processes)
        return Reading(
            memory=used["memory"],
            tmp=used["tmp"],
            processes=used["processes"],
            cpu_seconds=used["cpu"],
            running=session.executions.running,
            disk=await self._disk.now(),
            wall_seconds=time.monotonic() - self._started,
            totals=Totals(
                executions=totals.executions,
                cpu_seconds=totals.cpu_seconds,
                written_bytes=totals.written_bytes,
                peak_memory_bytes=self._peak_memory,
                peak_processes=self._peak_processes,
            ),
            written=totals.written_bytes if session.ledger.counts_writes else None,
            limits=session.limits,
            tallies=session.ledger.tallies,
        )

    def running(self) -> list[ExecutionMeter]:
        """Of the executions that run or wait."""
        return list(self._session.ledger.running.values())

    async def ticks(self, interval: float) -> AsyncGenerator[None, None]:
        """One at once and one each `interval` seconds, until the sandbox is closed. Raises BusyError."""
        if self._watchers >= MAX_WATCHERS:
            raise BusyError(f"cannot watch the usage: {MAX_WATCHERS} are watching it")
        self._watchers += 1
        try:
            while not self._session.closed.is_set():
                yield
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(interval):
                        await self._session.closed.wait()
        finally:
            self._watchers -= 1

    # The limit of the disk

    async def guard_disk(self) -> None:
        """For ever: ends executions that let the workspace grow beyond its limit."""
        while True:
            running = bool(self._session.ledger.running)
            try:
                over = await self._disk.is_over(running=running)
            except OSError as error:
                _log.warning("cannot look at the workspace's disk: %s", error)
                over = None
            if over is not None:
                await self._settle(over=over)
            await asyncio.sleep(DISK_SECONDS if running else IDLE_DISK_SECONDS)

    async def _settle(self, *, over: bool) -> None:
        """After a look at the disk."""
        ledger, before = self._session.ledger, self._written
        self._written = {name: meter.written_bytes for name, meter in ledger.running.items()}
        ended = self._ended_since(before)
        if not over:
            if not self._disk.is_full:
                self._idle_tried = self._excused = False
            return
        grown = {
            name: size - before.get(name, 0) if ledger.counts_writes else None for name, size in self._written.items()
        }
        verdict, names = rules.judge(
            grown, ended=ended and not self._excused, hopeless=self._disk.is_hopeless, idle_tried=self._idle_tried
        )
        self._excused = verdict is rules.Verdict.FINE
        if verdict is rules.Verdict.END_IDLE:
            self._idle_tried = True
            await self._session.contexts.end_idle_interpreters()
        for name in names:
            ledger.running[name].execution.stop(Cause.DISK, DISK_GRACE)

    def _ended_since(self, before: dict[str, int]) -> bool:
        """Whether an execution has ended since the last look that may have written to the workspace."""
        ledger, then = self._session.ledger, self._ended
        self._ended = now = ledger.ended
        if not ledger.counts_writes:
            return now.executions > then.executions
        known = sum(size for name, size in before.items() if name not in self._written)
        return now.written_bytes - then.written_bytes > known
