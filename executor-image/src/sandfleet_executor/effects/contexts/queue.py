"""The cells of one context: what a caller asks for, and their queue, from which one cell runs at a time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Self

from sandfleet_executor.core.contexts.states import NOT_PERSISTENT, Persistence
from sandfleet_executor.core.executions.events import Notice
from sandfleet_executor.core.executions.outcomes import Cause
from sandfleet_executor.core.executions.tracing import TraceParent
from sandfleet_executor.core.review.subject import Subject
from sandfleet_executor.effects.executions.execution import Execution


@dataclass(frozen=True)
class CellRequest:
    code: str
    # Seconds.
    timeout: float
    envs: dict[str, str]
    traceparent: TraceParent | None
    # Bytes; only to name them in the message when the cell reaches them.
    memory_limit: int
    disk_limit: int
    # Whether a cell that raises is rolled back like a killed one.
    rolls_back: bool = False
    # Of the context, where this cell makes it.
    persistence: Persistence = NOT_PERSISTENT
    # Whether its caller answers requests for input.
    takes_input: bool = False
    # The caller wants so many rows of each frame that is shown, as data.
    rows: int = 0
    # What a reviewer sees of it, where there is one; and what its agent is told of the review.
    subject: Subject | None = None
    notices: tuple[Notice, ...] = ()

    def told(self, notices: tuple[Notice, ...]) -> Self:
        return replace(self, notices=notices)

    def edited(self, content: bytes) -> Self:
        """With other code, which is UTF-8."""
        return replace(self, code=content.decode())


class CellQueue:
    """First come, first served. `lock` is held while a cell runs; copies, saves and forks take it to keep cells out."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.running: Execution | None = None
        self._waiting: dict[str, Execution] = {}

    @property
    def empty(self) -> bool:
        """Whether no cell runs or waits."""
        return self.running is None and not self._waiting

    def find(self, execution_id: str) -> Execution | None:
        """The execution of that id, running or waiting; without an id the running one."""
        if self.running and execution_id in {"", self.running.id}:
            return self.running
        return self._waiting.get(execution_id)

    @asynccontextmanager
    async def turn_of(self, execution: Execution) -> AsyncIterator[None]:
        """Waits for the execution's turn. One that is stopped while it waits leaves the queue at once: it has a cause
        then, and must not run.
        """
        self._waiting[execution.id] = execution
        try:
            has_turn = await self._take(execution)
        finally:
            del self._waiting[execution.id]
        if not has_turn:
            yield
            return
        self.running = execution if execution.cause is Cause.NONE else None
        try:
            yield
        finally:
            self.running = None
            self.lock.release()

    async def _take(self, execution: Execution) -> bool:
        if not self.lock.locked():
            return await self.lock.acquire()
        taken = asyncio.ensure_future(self.lock.acquire())
        await asyncio.wait((taken, execution.stopped), return_when=asyncio.FIRST_COMPLETED)
        return taken.done() or not taken.cancel()
