"""A sandbox of a driver: it runs code in turns, under ids that a restarted driver uses again, and can be parked."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Unpack

from sandfleet.errors import LimitReached, PreconditionFailed, SandboxSuspended
from sandfleet.resources.commands import AsyncCommands
from sandfleet.sandbox import AsyncSandbox
from sandfleet.values.options import CodeOptions, RunOptions

if TYPE_CHECKING:
    from sandfleet._fleets.fleet import AsyncFleet
    from sandfleet._wire.link import Link
    from sandfleet.driver.turns import Turns
    from sandfleet.resources.commands import AsyncCommandHandle, Command
    from sandfleet.resources.contexts import Interpreter
    from sandfleet.values.execution import CommandResult, Execution

# Calls that wait for the resumption of a parked session wait for a place in its queue, in seconds.
_RESUME_WAIT = 600.0


class DrivenSandbox(AsyncSandbox):
    """One session of a run.

    The id of each cell and command is made of the session's prefix and its number. A driver that was killed and takes
    the session on repeats the calls of the agent; those that the executor knows are answered from its store, so none
    runs twice.
    """

    _turns: Turns | None = None
    _prefix = ""
    _count = 0
    # Whether the agent's earlier calls are repeated; then its files are there already.
    is_continued = False

    def drive(self, turns: Turns, prefix: str, *, is_continued: bool) -> None:
        """Run code in these turns from now on, under ids with this prefix."""
        self._turns, self._prefix, self.is_continued = turns, prefix, is_continued

    def _next_id(self) -> str:
        self._count += 1
        return f"{self._prefix}-{self._count}"

    async def run_code(self, code: str, **options: Unpack[CodeOptions]) -> Execution:
        """Run one cell in its turn; as of `AsyncSandbox`."""
        if self._turns is None:
            return await super().run_code(code, **options)
        options.setdefault("execution_id", self._next_id())
        async with self._turns.one():
            return await super().run_code(code, **options)

    @cached_property
    def commands(self) -> AsyncCommands:
        """Programs that end by themselves."""
        if self._turns is None:
            return AsyncCommands(self._link)
        return _DrivenCommands(lambda: (self._link, self._next_id()), self._link, self._turns)

    async def park(self) -> bool:
        """Give the sandbox back while the agent's model thinks. Returns whether that was possible.

        It is not while a program of the session runs on, a connection is open, or the workspace would be lost.
        """
        try:
            await self.suspend()
        except SandboxSuspended:
            return True
        except (PreconditionFailed, LimitReached):
            return False
        return True

    async def unpark(self, fleet: AsyncFleet) -> None:
        """Take the parked session on. Raises SandboxEnded, ClaimError, UnavailableError."""
        resumed = await DrivenSandbox.resume(self.sandbox_id, fleet=fleet, max_wait=_RESUME_WAIT, keep_alive=True)
        await self._link.close()
        self._link, self._interpreter = resumed.parts()
        for resource in ("commands", "files", "services", "pty", "states", "skills", "journal", "_forwards"):
            self.__dict__.pop(resource, None)

    def parts(self) -> tuple[Link, Interpreter]:
        """Return what another object needs to take the place of this one."""
        return self._link, self._interpreter


class _DrivenCommands(AsyncCommands):
    """Commands in turns. `begin` gives the present link of the sandbox, and the next id."""

    def __init__(self, begin: Callable[[], tuple[Link, str]], link: Link, turns: Turns) -> None:
        super().__init__(link)
        self._begin = begin
        self._turns = turns

    async def run(  # type: ignore[override]  # the overloads of the base hold
        self, cmd: Command, *, background: bool = False, check: bool = False, **options: Unpack[RunOptions]
    ) -> CommandResult | AsyncCommandHandle:
        """Run a program in its turn; as of `AsyncCommands`."""
        self._link, execution_id = self._begin()
        options.setdefault("execution_id", execution_id)
        async with self._turns.one():
            return await super().run(cmd, background=background, check=check, **options)
