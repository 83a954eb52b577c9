"""Reads from executors what their sessions have used: executions, calls of tools, resources.

At a Renew that is done behind the answer, and not too often; at a Release before the session ends, and shortly before
the end of a lease. No execution waits for it. What an executor does after the last reading is not counted.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.values import ASLEEP, Sandbox
from sandfleet_operator.cluster.tasks import BackgroundTasks
from sandfleet_operator.fleet.leases.ends import LeaseEnds, keep_looking
from sandfleet_operator.plan.scheduler.recent import Recent
from sandfleet_operator.plan.usage import Reading

# Seconds between two readings of a session, and that a Release waits for an executor that does not answer.
EVERY, RELEASE_PATIENCE = 15.0, 2.0
# Sessions of which the time of the last reading is kept.
REMEMBERED = 50_000


class UsageMeter:
    """`read` asks an executor. `note` takes the sandbox and what it said; None: it did not answer."""

    def __init__(
        self,
        read: Callable[[Sandbox], Awaitable[Reading]],
        note: Callable[[Sandbox, Reading | None], None],
        clock: Callable[[], float],
    ) -> None:
        self._read, self._note, self._clock = read, note, clock
        self._last: Recent[str, float] = Recent(REMEMBERED)
        self._ends = LeaseEnds()
        self._background = BackgroundTasks()

    def renewed(self, sandbox: Sandbox) -> None:
        """The executor is asked behind the answer, if it was not asked lately."""
        now, last = self._clock(), self._last.get(sandbox.sandbox_uid)
        if last is None or now - last >= EVERY:
            self._last.put(sandbox.sandbox_uid, now)
            self._background.begin(self._look(sandbox), f"read the usage of {sandbox.sandbox_id}")

    async def released(self, sandbox: Sandbox | None) -> None:
        """The last reading of a session that is to end, if its executor answers soon."""
        if sandbox is None or not sandbox.bound or sandbox.state in ASLEEP:
            return
        await self._look(sandbox)

    def watch(self, sandboxes: Callable[[], Iterable[Sandbox]], clock: Callable[[], float]) -> None:
        """From now on reads sessions whose leases end for the last time. `clock` is that of leases."""
        self._background.begin(keep_looking(self.look, sandboxes, clock), "read the usage of sessions that end")

    def look(self, sandboxes: Iterable[Sandbox], now: float) -> None:
        """Asks the executors of sessions whose lease is about to end, once for each lease."""
        for sandbox in sandboxes:
            if self._ends.is_due(sandbox.sandbox_uid, sandbox.lease_expires, now):
                self._background.begin(self.released(sandbox), f"read the last usage of {sandbox.sandbox_id}")

    def close(self) -> None:
        self._background.close()

    async def _look(self, sandbox: Sandbox) -> None:
        found = None
        try:
            async with asyncio.timeout(RELEASE_PATIENCE):
                found = await self._read(sandbox)
        except (FleetError, TimeoutError):
            # It goes on, or ends, whatever its executor says.
            pass
        self._note(sandbox, found)


def unmetered() -> UsageMeter:
    """Of a fleet that counts nothing."""

    async def refused(sandbox: Sandbox) -> Reading:
        raise TimeoutError(f"cannot read the usage of {sandbox.sandbox_id}: this fleet counts nothing")

    return UsageMeter(refused, lambda _, __: None, lambda: 0.0)
