"""Takes borrowed quota back for its owners: asks executors who is idle, and suspends whom the scheduler chooses."""

import asyncio
import logging

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.values import Sandbox
from sandfleet_operator.cluster.tasks import in_turns
from sandfleet_operator.fleet.driver import FleetDriver
from sandfleet_operator.fleet.suspender import Suspender
from sandfleet_operator.plan.scheduler.queues.preemption import Candidate
from sandfleet_operator.plan.scheduler.recent import Recent
from sandfleet_operator.plan.scheduler.sessions.preemption import Idle

# Seconds.
EVERY = 1.0
# After a refusal a session is left alone for so long.
PAUSE = 30.0
# Executors that are asked at the same time.
AT_ONCE = 32
REMEMBERED = 4096

_LOG = logging.getLogger(__name__)


class Preemptor:
    def __init__(self, fleet: FleetDriver, suspender: Suspender) -> None:
        self._fleet = fleet
        self._suspender = suspender
        self._slots = asyncio.Semaphore(AT_ONCE)
        # The ids of sessions that are being suspended, and until when others are left alone.
        self._leaving: dict[str, asyncio.Task[None]] = {}
        self._left_alone: Recent[str, float] = Recent(REMEMBERED)

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(EVERY)
            await self.look()

    async def close(self) -> None:
        tasks = list(self._leaving.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def look(self) -> None:
        """Begins to preempt whom owners of quota need to go now."""
        preemptions, now = self._fleet.scheduler.preemptions, self._fleet.now()
        # One cohort in each turn of the loop.
        found = [one async for cohort in in_turns(preemptions.candidates(now), 1) for one in cohort]
        asked = [one for one in found if now >= (self._left_alone.get(one.sandbox_id) or 0.0)]
        if not asked:
            return
        answers = await asyncio.gather(*(self._idle(one) for one in asked))
        idle = {one.sandbox_id: how for one, how in zip(asked, answers, strict=True) if how is not None}
        async for victims in in_turns(preemptions.victims(idle, self._leaving.keys(), self._fleet.now()), 1):
            for victim in victims:
                self._leaving[victim.sandbox_id] = asyncio.create_task(self._preempt(victim))

    async def _idle(self, sandbox: Sandbox) -> Idle | None:
        async with self._slots:
            seconds = await self._suspender.idle(sandbox)
        return None if seconds is None else Idle(seconds, self._suspender.can_preempt(sandbox))

    async def _preempt(self, victim: Candidate) -> None:
        _LOG.info("sandbox %s is preempted: it is idle for %.0f s", victim.sandbox_id, victim.idle)
        try:
            await self._suspender.preempt(victim.sandbox_id, keep=victim.kept)
        except FleetError as error:
            _LOG.info("sandbox %s goes on: %s", victim.sandbox_id, error)
            self._left_alone.put(victim.sandbox_id, self._fleet.now() + PAUSE)
        finally:
            self._leaving.pop(victim.sandbox_id, None)
