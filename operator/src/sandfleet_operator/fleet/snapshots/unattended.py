"""What sessions ask for without a caller: snapshots from time to time, and sleep when they or their leases are over."""

import asyncio
import logging
import math
from collections.abc import Coroutine
from typing import Any, Protocol

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.values import Claim, Sandbox, State
from sandfleet_operator.fleet.driver import FleetDriver
from sandfleet_operator.fleet.suspender import Suspender

# Seconds between two looks, and at most between two questions to an executor; a part of the idle timeout is less.
EVERY, LONGEST_PAUSE, PARTS = 0.5, 30.0, 8
# After a failure a session is left alone for so long.
PAUSE_AFTER_FAILURE = 30.0

_LOG = logging.getLogger(__name__)


class Parking(Protocol):
    """What takes the snapshots."""

    # Sessions that are being put to sleep.
    settling: set[str]

    async def sleep(self, holder: str, sandbox_id: str, *, force: bool) -> None:
        """Saves the session and ends its sandbox; `force` ends what runs in it. Raises FleetError."""
        ...

    async def save(self, sandbox: Sandbox) -> None:
        """Saves the session, which works on. Raises FleetError."""
        ...

    def saved(self) -> list[str]:
        """Sessions that have a snapshot which ends with them."""
        ...

    async def ended(self, sandbox_id: str) -> None:
        """Such a session has ended. Raises FleetError."""
        ...


class Unattended:
    def __init__(self, fleet: FleetDriver, suspender: Suspender, parking: Parking) -> None:
        self._fleet, self._suspender, self._parking = fleet, suspender, parking
        # Of sessions that something is being done for.
        self._working: dict[str, asyncio.Task[None]] = {}
        # By session, when it was seen first, is looked at again, and was saved the last time; on the fleet's clock.
        self._seen: dict[str, float] = {}
        self._next: dict[str, float] = {}
        self._saved: dict[str, float] = {}

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            while True:
                await asyncio.sleep(EVERY)
                self.look()
        finally:
            for task in self._working.values():
                task.cancel()

    def look(self) -> None:
        """Begins what is due."""
        now, live = self._fleet.now(), self._fleet.scheduler.inventory.get
        for sandbox in self._fleet.scheduler.inventory.in_state(State.CLAIMED):
            claim, name = sandbox.claim, sandbox.sandbox_id
            if claim is None or not sandbox.bound or name in self._working or now < self._next.get(name, 0.0):
                continue
            if lease_over(sandbox, claim, now):
                self._begin(name, self._sleep(sandbox, claim, claim.on_timeout, force=True))
            elif claim.snapshot_period is not None or (claim.on_idle != "end" and claim.idle_timeout is not None):
                self._begin(name, self._attend(sandbox, claim))
        for known in (self._seen, self._next, self._saved):
            for name in [one for one in known if live(one) is None]:
                del known[name]
        for name in [one for one in self._parking.saved() if live(one) is None and one not in self._working]:
            self._begin(name, self._parking.ended(name))

    def _begin(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._working[name] = asyncio.create_task(self._quietly(name, work))

    async def _quietly(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except FleetError as error:
            _LOG.info("session %s goes on as it is: %s", name, error)
            self._next[name] = self._fleet.now() + PAUSE_AFTER_FAILURE
        finally:
            self._working.pop(name, None)

    async def _attend(self, sandbox: Sandbox, claim: Claim) -> None:
        """Raises FleetError."""
        name, idle = sandbox.sandbox_id, await self._suspender.idle(sandbox)
        if claim.on_idle != "end" and claim.idle_timeout is not None and (idle or 0.0) >= claim.idle_timeout:
            await self._sleep(sandbox, claim, claim.on_idle, force=False)
            return
        now = self._fleet.now()
        if claim.snapshot_period is not None:
            since = now - self._saved.get(name, self._seen.setdefault(name, now))
            # What was not used since has not changed.
            used = name not in self._saved or idle is None or idle < since
            if since >= claim.snapshot_period and used:
                await self._parking.save(sandbox)
                self._saved[name] = now
        lease = sandbox.lease_expires if claim.on_timeout != "end" else None
        self._next[name] = min(now + pause(claim), math.inf if lease is None else lease)

    async def _sleep(self, sandbox: Sandbox, claim: Claim, how: str, *, force: bool) -> None:
        """Raises FleetError."""
        name = sandbox.sandbox_id
        if how == "snapshot":
            await self._parking.sleep(claim.key.holder, name, force=force)
            return
        self._parking.settling.add(name)
        try:
            await self._suspender.suspend(name, force=force, seconds=None)
        finally:
            self._parking.settling.discard(name)


def lease_over(sandbox: Sandbox, claim: Claim, now: float) -> bool:
    """Whether it is to be put to sleep because of its lease."""
    over = sandbox.lease_known and sandbox.lease_expires is not None and now >= sandbox.lease_expires
    return over and claim.on_timeout != "end"


def pause(claim: Claim) -> float:
    """Seconds until such a session is looked at again."""
    waits = [one for one in (claim.idle_timeout if claim.on_idle != "end" else None, claim.snapshot_period) if one]
    return min(LONGEST_PAUSE, *(one / PARTS for one in waits)) if waits else LONGEST_PAUSE
