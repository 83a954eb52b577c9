"""Installs the template's packages when the session begins. Code waits for the installation; RPCs on files do not."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from sandfleet_executor.core.executions.events import Notice
from sandfleet_executor.core.journal import bodies
from sandfleet_executor.core.packages import installation
from sandfleet_executor.core.packages.installation import BadReport, Declared, State, Status
from sandfleet_executor.effects.commands.helper_programs import Said
from sandfleet_executor.effects.executions.execution import Execution

# Beside what the installation itself may take: to say what there is, and to take back what a killed one has left.
LOOK_SECONDS = 30.0
NOT_INSTALLED = "PackagesNotInstalled"

# (mode of worker/programs/install.py, requirements as JSON, seconds) → how it ended
Run = Callable[[str, str, float], Awaitable[Said]]


class Packages:
    def __init__(
        self, requirements: Sequence[str], seconds: float, run: Run, put: bodies.Put = bodies.unrecorded
    ) -> None:
        """`put` writes a record of the journal."""
        self._put = put
        self._requirements = tuple(requirements)
        self._seconds = seconds
        self._run = run
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self.status = Status(declared=installation.nothing_known(requirements, State.WAITING))

    @property
    def installing(self) -> bool:
        return self.status.state is State.INSTALLING

    def begin(self, before: Callable[[], None], after: Callable[[], None]) -> None:
        """At the beginning of the session, once.

        `before` and `after` are called only where there is something to install.
        """
        if self._task is not None or not self._requirements or self._closed:
            return
        before()
        self.status = Status(State.INSTALLING, installation.nothing_known(self._requirements, State.INSTALLING))
        self._task = asyncio.create_task(self._install())
        self._task.add_done_callback(lambda _: None if self._closed else after())

    async def settled(self, execution: Execution | None = None) -> bool:
        """Waits until the installation is over, or the execution is stopped; whether it had to wait."""
        if self._task is None or self._task.done():
            return False
        awaited: list[asyncio.Future[Any]] = [self._task, *([execution.stopped] if execution else [])]
        await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        return True

    def notices(self) -> Sequence[Notice]:
        """That the installation has failed."""
        if self.status.state is not State.FAILED:
            return ()
        return (Notice(NOT_INSTALLED, f"{self.status.message} ({self.status.reason})"),)

    def close(self) -> None:
        """Nothing waits for it any more; what runs of it ends with the session's processes."""
        self._closed = True

    async def _install(self) -> None:
        try:
            await self._carry_out()
        finally:
            if self.installing:
                unknown = installation.nothing_known(self._requirements, State.FAILED)
                self.status = installation.failed(unknown, "NotStarted", "the executor has a fault", b"")
            self._put("packages", bodies.packages(self.status))

    async def _carry_out(self) -> None:
        wanted = json.dumps(self._requirements)
        said = await self._run("install", wanted, self._seconds)
        if said.end.outcome == "ok":
            self.status = installation.installed(self._read(said))
            return
        reason, why = installation.judge(said.end, said.err)
        # A killed program has not reported, and has left unfinished files behind.
        after = said if said.end.reason == "ExitCode" else await self._run("settle", wanted, LOOK_SECONDS)
        self.status = installation.failed(self._read(after), reason, why, said.err)

    def _read(self, said: Said) -> tuple[Declared, ...]:
        try:
            return installation.parse(said.out, self._requirements)
        except BadReport:
            return installation.nothing_known(self._requirements, State.FAILED)
