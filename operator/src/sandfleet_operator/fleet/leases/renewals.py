"""Writes down the ends of renewed leases, so that they outlive this leader and the executor's process.

A renewal reaches the executor first, then its caller, then the store. If the fleet ends before the write, the executor
still has the lease. If the executor ends before the write, this fleet still has it.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable

from sandfleet_rules.backoff import Backoff

from sandfleet_operator.api.values import Sandbox, State
from sandfleet_operator.cluster.lease import NotLeadingError
from sandfleet_operator.cluster.tasks import BackgroundTasks
from sandfleet_operator.plan.claims.lease_end import write_after
from sandfleet_operator.plan.scheduler.recent import Recent

REMEMBERED = 50_000
# What the end is written on may not be there yet.
MISSING = Backoff(first=0.5, longest=60.0)

_LOG = logging.getLogger(__name__)


class Renewals:
    """`session` gives a sandbox as it is now, by its id; `write` says whether it could write the end."""

    def __init__(
        self,
        session: Callable[[str], Sandbox | None],
        write: Callable[[Sandbox], Awaitable[bool]],
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._session = session
        self._write = write
        self._clock = clock
        self._sleep = sleep
        # Sandbox → the end that was written, and when.
        self._written: Recent[str, tuple[float, float]] = Recent(REMEMBERED)
        self._busy: set[str] = set()
        self._background = BackgroundTasks()

    def renewed(self, sandbox: Sandbox) -> None:
        """The end of the lease has moved; it is written in the background, and not too often."""
        if sandbox.sandbox_id not in self._busy:
            self._busy.add(sandbox.sandbox_id)
            self._background.begin(self._keep(sandbox.sandbox_id), f"write down the lease of {sandbox.sandbox_id}")

    def close(self) -> None:
        self._background.close()

    async def _keep(self, sandbox_id: str) -> None:
        failures = 0
        try:
            while (wait := self._wait(sandbox_id)) is not None:
                await self._sleep(wait)
                sandbox = self._live(sandbox_id)
                if sandbox is None or sandbox.lease_expires is None:
                    return
                end, now = sandbox.lease_expires, self._clock()
                if await self._write(sandbox):
                    self._written.put(sandbox_id, (end, now))
                    failures = 0
                else:
                    failures += 1
                    await self._sleep(MISSING.after(failures))
        except NotLeadingError as error:
            _LOG.info("the lease of %s is not written down: %s", sandbox_id, error)
        finally:
            self._busy.discard(sandbox_id)

    def _wait(self, sandbox_id: str) -> float | None:
        """Seconds until the end is to be written; None where it need not be."""
        sandbox = self._live(sandbox_id)
        if sandbox is None or sandbox.lease_expires is None or math.isinf(sandbox.lease_expires):
            return None
        end, at = self._written.get(sandbox_id) or (-math.inf, -math.inf)
        return write_after(sandbox.lease_expires, end, at, self._clock())

    def _live(self, sandbox_id: str) -> Sandbox | None:
        sandbox = self._session(sandbox_id)
        return None if sandbox is None or sandbox.state is State.ENDED else sandbox
