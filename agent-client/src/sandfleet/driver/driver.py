"""FleetDriver: drives agent loops over many sessions at once, from one process or from several that share a run."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from sandfleet.driver.checkpoint import BEAT, Busy, Checkpoint, Different
from sandfleet.driver.claims import ClaimGate
from sandfleet.driver.parking import NoParking, Parking
from sandfleet.driver.progress import Bar, Progress
from sandfleet.driver.report import RunReport
from sandfleet.driver.result import TaskEnd, TaskResult
from sandfleet.driver.session import Bounds, MakeAgent, Shared, work
from sandfleet.driver.task import AgentTask
from sandfleet.driver.turns import RetryAllowance, Turns
from sandfleet.errors import InvalidArgument
from sandfleet.values.options import CreateOptions

if TYPE_CHECKING:
    from sandfleet._fleets.fleet import AsyncFleet

# How often `on_progress` is called, and tasks of other processes are looked at, in seconds.
_DRAW, _LOOK = 0.2, 1.0
# Executions side by side for each core of this machine, where the sandboxes are on it.
_PER_CORE = 4

OnProgress = Callable[[Progress], object]


@dataclass(frozen=True, slots=True)
class DriverOptions:
    """What a driver may do.

    concurrency  sessions side by side.
    executions   cells and commands that run side by side; None: four a core where the sandboxes are on this machine,
                 otherwise as many as there are sessions.
    bounds       times and retries of one session.
    parking      decides when a session that waits for its model gives its sandbox back; None: never. On a cluster it
                 needs workspaces on volumes.
    """

    concurrency: int = 100
    executions: int | None = None
    bounds: Bounds = field(default_factory=Bounds)
    parking: Parking | None = None

    def __post_init__(self) -> None:
        if self.concurrency < 1 or (self.executions is not None and self.executions < 1):
            raise InvalidArgument("cannot drive agents: concurrency and executions have to be 1 or more")


class FleetDriver:
    """Drives agents: claims a sandbox for each task, runs its agent there, and releases the sandbox.

    fleet         the fleet to claim from; None means the one that the environment names, as for `Sandbox.create`.
    options       see `DriverOptions`.
    on_progress   called with the live `Progress` five times a second: a `Bar`, say.
    template      of the sandboxes; "" means the pool's, or "python" without a pool.
    claim         options of each claim, as of `Sandbox.create`: pool, queue, namespace, limits, …

    As a context manager, and at the end of `asyncio.run`, it ends all sessions of its runs and releases their
    sandboxes.
    """

    def __init__(
        self,
        *,
        fleet: AsyncFleet | None = None,
        options: DriverOptions | None = None,
        on_progress: OnProgress | None = None,
        template: str = "",
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        **claim: Unpack[CreateOptions],
    ) -> None:
        self._fleet = fleet
        self._options = options or DriverOptions()
        self._on_progress = on_progress
        self._template = template
        self._claim = claim
        self._clock = clock
        self._wall = wall
        self._runs: set[_Run] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for run in tuple(self._runs):
            await run.stop()

    async def run(
        self,
        make_agent: MakeAgent,
        tasks: Iterable[AgentTask | str],
        *,
        concurrency: int | None = None,
        checkpoint: str | PathLike[str] | None = None,
        report: str | PathLike[str] | None = None,
    ) -> AsyncIterator[TaskResult]:
        """Run all tasks, and yield the result of each as it comes: every key of the list exactly once.

        make_agent   called with a sandbox and its task; returns the agent, a `CodeActAgent` as a rule. The driver
                     claims and releases the sandbox. May be async. Its own mistakes end only their task.
        tasks        read lazily: as many as there is room for. A text is a task with this prompt.
        concurrency  sessions side by side in this run; None: as the driver's options say.
        checkpoint   a file that outlives this process. A run with the same file goes on where an earlier one stopped:
                     finished tasks are not run again, and unfinished ones go on in their sandboxes as far as these
                     live. Several processes of one machine may work on one file side by side.
        report       a page of HTML that says what became of all tasks, with their steps and plots, written at the end,
                     also of a run that was interrupted.

        Raises CheckpointError, OSError for a report that cannot be written, and what the fleet's connection raises at
        the start.
        """
        from sandfleet._fleets.discovery import fleet_of_claim

        most = concurrency or self._options.concurrency
        fleet = self._fleet or await fleet_of_claim(self._claim)
        told = RunReport(report, Path(sys.argv[0]).name or "agents", self._wall) if report else None
        path = Path(checkpoint) if checkpoint is not None else None
        kept = await asyncio.to_thread(Checkpoint, path, self._wall())
        run = _Run(self._shared(fleet, make_agent, kept, most), tasks, most, self._on_progress, self._wall)
        self._runs.add(run)
        try:
            async for result in run.results():
                if told is not None:
                    told.add(result)
                yield result
        finally:
            await run.stop()
            self._runs.discard(run)
            if told is not None:
                told.write()

    def run_sync(
        self,
        make_agent: MakeAgent,
        tasks: Iterable[AgentTask | str],
        *,
        concurrency: int | None = None,
        checkpoint: str | PathLike[str] | None = None,
        report: str | PathLike[str] | None = None,
    ) -> list[TaskResult]:
        """Run all tasks as `run` does, in a program without an event loop; return the results as they came.

        Ctrl-C ends the sessions, releases their sandboxes and raises KeyboardInterrupt.
        """

        async def results() -> list[TaskResult]:
            async with self:
                found = self.run(make_agent, tasks, concurrency=concurrency, checkpoint=checkpoint, report=report)
                return [each async for each in found]

        try:
            return asyncio.run(results())
        except KeyboardInterrupt:
            # A traceback through each session that was cancelled would tell its reader nothing.
            raise KeyboardInterrupt from None

    def _shared(self, fleet: AsyncFleet, make_agent: MakeAgent, kept: Checkpoint, concurrency: int) -> Shared:
        options = self._options
        here = fleet.address.startswith("unix:")
        most = min(concurrency, _PER_CORE * (os.cpu_count() or 1)) if here else concurrency
        return Shared(
            fleet=fleet,
            make_agent=make_agent,
            bounds=options.bounds,
            template=self._template,
            claim_options=self._claim,
            gate=ClaimGate(concurrency),
            turns=Turns(options.executions or most),
            parking=options.parking or NoParking(),
            allowance=RetryAllowance(),
            checkpoint=kept,
            progress=Progress(),
            clock=self._clock,
        )


class _Run:
    """One run: its sessions, and the results that wait for the caller."""

    def __init__(
        self,
        shared: Shared,
        tasks: Iterable[AgentTask | str],
        concurrency: int,
        on_progress: OnProgress | None,
        wall: Callable[[], float],
    ) -> None:
        self._shared = shared
        self._tasks = tasks
        self._on_progress = on_progress
        self._wall = wall
        self._room = asyncio.Semaphore(concurrency)
        self._results: asyncio.Queue[TaskResult | BaseException | None] = asyncio.Queue(concurrency)
        self._seen: dict[str, str] = {}
        # Tasks on which other processes work.
        self._elsewhere: dict[str, AgentTask] = {}
        self._work: list[asyncio.Task[None]] = []
        self._is_stopped = False
        with suppress(TypeError):
            shared.progress.total = len(tasks)  # type: ignore[arg-type]  # an iterable may have no length

    async def results(self) -> AsyncIterator[TaskResult]:
        """Yield each result."""
        self._work = [asyncio.create_task(self._drive()), asyncio.create_task(self._beat())]
        if self._on_progress is not None:
            self._work.append(asyncio.create_task(self._show(self._on_progress)))
        while (result := await self._results.get()) is not None:
            if isinstance(result, BaseException):
                raise result
            yield result

    async def stop(self) -> None:
        """End all sessions, release their sandboxes, and close the checkpoint."""
        if self._is_stopped:
            return
        self._is_stopped = True
        for task in self._work:
            task.cancel()
        # The first of them ends with all sessions.
        await asyncio.gather(*self._work, return_exceptions=True)
        if self._on_progress is not None:
            self._on_progress(self._shared.progress)
            if isinstance(self._on_progress, Bar):
                self._on_progress.close()
        await self._shared.checkpoint.close()

    async def _drive(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for given in self._tasks:
                    await self._room.acquire()
                    group.create_task(self._begin(given)).add_done_callback(self._leave)
            while self._elsewhere:
                await asyncio.sleep(_LOOK)
                async with asyncio.TaskGroup() as group:
                    for task in self._waiting():
                        await self._room.acquire()
                        group.create_task(self._begin_known(task)).add_done_callback(self._leave)
        except* Exception as group_error:  # noqa: BLE001  whatever stops the run is raised where its results are read
            await self._results.put(_first(group_error))
        else:
            await self._results.put(None)

    def _leave(self, _: object) -> None:
        """Make room, now that a result was handed over: a caller that reads slowly has no more tasks begun."""
        self._room.release()

    def _waiting(self) -> Iterator[AgentTask]:
        waiting, self._elsewhere = self._elsewhere, {}
        return iter(waiting.values())

    async def _begin(self, given: AgentTask | str) -> None:
        """Start a task of the list, unless its key was there before."""
        task = AgentTask.of(given)
        fingerprint = task.fingerprint()
        if (known := self._seen.get(task.key)) is None:
            self._seen[task.key] = fingerprint
            await self._begin_known(task)
            return
        message = "the list has this task twice" if known == fingerprint else "the list has this key for two tasks"
        await self._tell(TaskResult(task.key, TaskEnd.REFUSED, message))

    async def _begin_known(self, task: AgentTask) -> None:
        state = await self._shared.checkpoint.take(task.key, self._seen[task.key], self._wall())
        result: TaskResult | None
        match state:
            case TaskResult():
                result = state
            case Busy():
                result = None
            case Different():
                message = "the checkpoint has this key with another prompt, other files or other data"
                result = TaskResult(task.key, TaskEnd.REFUSED, message)
            case _:
                result = await work(task, state, self._shared)
        if result is None:
            self._elsewhere[task.key] = task
        else:
            await self._tell(result)

    async def _tell(self, result: TaskResult) -> None:
        self._shared.progress.ended(result)
        await self._results.put(result)

    async def _beat(self) -> None:
        """Say that this process lives. A checkpoint that cannot be written stops the run."""
        while True:
            try:
                await self._shared.checkpoint.beat(self._wall())
            except Exception as error:  # noqa: BLE001  raised where the results are read
                await self._results.put(error)
                return
            await asyncio.sleep(BEAT)

    async def _show(self, on_progress: OnProgress) -> None:
        while True:
            on_progress(self._shared.progress)
            await asyncio.sleep(_DRAW)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
