"""The policy of a driven agent: repeats what an earlier process has recorded, records what is new, parks meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from sandfleet.codeact.conversation import next_action

if TYPE_CHECKING:
    from sandfleet._fleets.fleet import AsyncFleet
    from sandfleet.codeact.conversation import Action, Conversation, Policy
    from sandfleet.driver.parking import Parking
    from sandfleet.driver.sandbox import DrivenSandbox

Record = Callable[[int, "Action"], Awaitable[None]]


class Gaps:
    """The times in which one session waits for its model, and what was parked of them; in seconds."""

    def __init__(self, sandbox: DrivenSandbox, fleet: AsyncFleet, parking: Parking, clock: Callable[[], float]) -> None:
        self._sandbox = sandbox
        self._fleet = fleet
        self._parking = parking
        self._clock = clock
        # Whether parking was refused before: a program runs on, say.
        self._is_refused = False
        self.parks = 0
        self.parked_seconds = 0.0

    @asynccontextmanager
    async def gap(self) -> AsyncIterator[None]:
        """Park the session when the body takes long; afterwards it is back.

        Raises what taking it on raises: SandboxEnded, ClaimError, UnavailableError.
        """
        began, parkings = self._clock(), list[asyncio.Task[_Parked | None]]()
        timeout = inf if self._is_refused else self._parking.timeout()
        loop = asyncio.get_running_loop()
        timer = (
            loop.call_later(timeout, lambda: parkings.append(loop.create_task(self._park()))) if timeout < inf else None
        )
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()
            self._parking.saw_gap(self._clock() - began)
            # A suspension that has begun is carried to its end: the session is here or there, not in between.
            if parkings:
                await asyncio.wait(parkings)
        for parking in parkings:
            await self._unpark(parking.result())

    async def _park(self) -> _Parked | None:
        began = self._clock()
        if not await self._sandbox.park():
            self._is_refused = True
            return None
        return _Parked(self._clock() - began, self._clock())

    async def _unpark(self, parked: _Parked | None) -> None:
        if parked is None:
            return
        began = self._clock()
        await self._sandbox.unpark(self._fleet)
        self.parks += 1
        self.parked_seconds += began - parked.at
        self._parking.saw_parking(parked.cost + self._clock() - began)


@dataclass(frozen=True, slots=True)
class _Parked:
    """A suspension: what it took, and when it was over; in seconds."""

    cost: float
    at: float


class DrivenPolicy:
    """Asks the agent's own policy, unless the action is on record."""

    def __init__(self, policy: Policy, recorded: tuple[Action, ...], record: Record, gaps: Gaps) -> None:
        self._policy = policy
        self._recorded = recorded
        self._record = record
        self._gaps = gaps
        self._calls = 0

    async def __call__(self, conversation: Conversation) -> Action:
        """Return the next action. Raises what the policy raises, and what taking the parked session on does."""
        self._calls += 1
        if self._calls <= len(self._recorded):
            return self._recorded[self._calls - 1]
        async with self._gaps.gap():
            action = await next_action(self._policy, conversation)
        await self._record(self._calls, action)
        return action
