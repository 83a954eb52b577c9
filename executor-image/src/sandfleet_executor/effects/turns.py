"""Whose turn it is in a context: one execution at a time, in the order in which they came."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sandfleet_executor.core.outcomes import Cause
from sandfleet_executor.effects.execution import Execution


class Turns:
    def __init__(self) -> None:
        # Also of what must not happen while a cell runs: copies, saves, forks.
        self.lock = asyncio.Lock()
        self.running: Execution | None = None
        self._waiting: dict[str, Execution] = {}

    def find(self, execution_id: str) -> Execution | None:
        """The one of that id, which runs or waits; without an id the one that runs."""
        if self.running and execution_id in {"", self.running.id}:
            return self.running
        return self._waiting.get(execution_id)

    @asynccontextmanager
    async def of(self, execution: Execution) -> AsyncIterator[None]:
        """Its turn; but at once where somebody stops it while it waits: then it has a cause, and must not run."""
        self._waiting[execution.id] = execution
        try:
            mine = await self._taken(execution)
        finally:
            del self._waiting[execution.id]
        if not mine:
            yield
            return
        self.running = execution if execution.cause is Cause.NONE else None
        try:
            yield
        finally:
            self.running = None
            self.lock.release()

    async def _taken(self, execution: Execution) -> bool:
        if not self.lock.locked():
            return await self.lock.acquire()
        taken = asyncio.ensure_future(self.lock.acquire())
        await asyncio.wait((taken, execution.stopped), return_when=asyncio.FIRST_COMPLETED)
        return taken.done() or not taken.cancel()
