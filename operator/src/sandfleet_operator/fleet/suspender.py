"""Suspends sessions for callers, and says what has come back of them."""

import asyncio
from typing import Protocol

from sandfleet_api.executor.v1 import session_pb2

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.api.values import ASLEEP, Sandbox, State
from sandfleet_operator.cluster.tasks import Outliving
from sandfleet_operator.fleet.backend import Backend
from sandfleet_operator.fleet.driver import RELEASE_TIMEOUT, FleetDriver, suspended
from sandfleet_operator.fleet.incarnations import Executors
from sandfleet_operator.plan.scheduler.recent import Recent

# A caller waits so long for a session whose variables are being saved for a preemption, before it is told of that.
PREEMPTION_WAIT, LOOK_PAUSE = 3.0, 0.1
# Suspended sessions of which it is remembered what was kept.
REMEMBERED = 256


class Keeper(Protocol):
    """What keeps preempted sessions in snapshots."""

    def can_park(self, sandbox: Sandbox) -> bool:
        """Whether a snapshot may keep this session."""
        ...

    async def keep(self, sandbox: Sandbox) -> session_pb2.Suspension:
        """Saves an unused session, which is held then: it is to be suspended at once. Raises FleetError."""
        ...


class Suspender:
    def __init__(self, fleet: FleetDriver, backend: Backend, executors: Executors) -> None:
        self._fleet = fleet
        self._backend = backend
        self._executors = executors
        # None: preempted sessions stay on their volumes.
        self.keeper: Keeper | None = None
        self._kept: Recent[str, session_pb2.Suspension] = Recent(REMEMBERED)
        self._suspending: Outliving[Sandbox] = Outliving()
        # The ids of sessions whose executors are asked to keep them for the owners of their quota.
        self._preempting: set[str] = set()

    def session(self, sandbox_id: str) -> Sandbox:
        """Raises FleetError with NOT_FOUND."""
        return self._fleet.scheduler.session(sandbox_id, self._fleet.now())

    def is_asleep(self, sandbox_id: str) -> bool:
        sandbox = self._fleet.scheduler.inventory.get(sandbox_id)
        return sandbox is not None and sandbox.state in ASLEEP

    async def suspend(
        self, sandbox_id: str, *, force: bool, seconds: float | None
    ) -> tuple[Sandbox, session_pb2.Suspension | None]:
        """Suspends the session, for `seconds` at most, and returns when its process has ended. Raises FleetError.

        What has begun goes on if the caller leaves: a session is never left halfway.
        """
        self._fleet.check_serving("suspend the sandbox")
        sandbox = await self._suspending.result(self._suspend(sandbox_id, force=force, seconds=seconds))
        return sandbox, self._kept.get(sandbox_id)

    async def resumption(self, sandbox_id: str) -> session_pb2.Resumption | None:
        """What has come back; None where nothing was kept, or its executor cannot say."""
        try:
            return await self._executors.resume(self.session(sandbox_id))
        except FleetError:
            return None

    async def _suspend(self, sandbox_id: str, *, force: bool, seconds: float | None) -> Sandbox:
        suspensions = self._fleet.scheduler.suspensions
        if self.session(sandbox_id).state not in ASLEEP:
            suspensions.check_room(sandbox_id)
            sandbox = await self._fleet.get(sandbox_id, reachable=False)
            await self._backend.record(sandbox)
            self._kept.put(sandbox_id, await self._executors.suspend(sandbox, force=force))
            self._fleet.do(suspensions.suspend(sandbox_id, seconds, self._fleet.now()))
        return await self.fell_asleep(sandbox_id)

    def can_preempt(self, sandbox: Sandbox) -> bool:
        """Whether something can keep it while it sleeps."""
        return self._backend.can_suspend(sandbox) or self._goes_into_snapshot(sandbox)

    def _goes_into_snapshot(self, sandbox: Sandbox) -> bool:
        """A preempted session that has no volume does, and one that goes there when it is idle."""
        if self.keeper is None or not self.keeper.can_park(sandbox):
            return False
        goes_when_idle = sandbox.claim is not None and sandbox.claim.on_idle == "snapshot"
        return goes_when_idle or not self._backend.can_suspend(sandbox)

    async def idle(self, sandbox: Sandbox) -> float | None:
        """Seconds since a caller has worked with it; None: it is in use, or its executor does not say."""
        try:
            return await self._executors.idle(sandbox)
        except FleetError:
            return None

    async def preempt(self, sandbox_id: str, *, keep: bool) -> None:
        """Suspends the session for the owner of its quota, or ends it. Raises FleetError where it is in use by now."""
        suspensions, sandbox = self._fleet.scheduler.suspensions, self.session(sandbox_id)
        if sandbox.state is not State.CLAIMED:
            return
        if keep:
            suspensions.check_room(sandbox_id)
            await self._backend.record(sandbox)
        keeper = self.keeper if keep and self._goes_into_snapshot(sandbox) else None
        self._preempting.add(sandbox_id)
        try:
            if keeper is not None:
                kept = await keeper.keep(sandbox)
            else:
                kept = await self._executors.suspend(sandbox, force=False, unused=True)
        finally:
            self._preempting.discard(sandbox_id)
        if keep:
            self._kept.put(sandbox_id, kept)
            self._fleet.do(suspensions.preempt(sandbox_id, self._fleet.now(), parked=keeper is not None))
        else:
            self._fleet.do(suspensions.release(sandbox_id, self._fleet.now()))

    async def settled(self, sandbox_id: str, known_as: str) -> None:
        """Waits until it is decided whether the session is preempted. Raises FleetError where that takes long.

        `known_as`: its id as its caller has it.
        """
        try:
            async with asyncio.timeout(PREEMPTION_WAIT):
                while sandbox_id in self._preempting:
                    await self._fleet.change(sandbox_id, within=LOOK_PAUSE)
        except TimeoutError:
            raise suspended(known_as, preempted=True) from None

    async def fell_asleep(self, sandbox_id: str) -> Sandbox:
        """The session, once its process has ended. Raises FleetError."""
        try:
            async with asyncio.timeout(RELEASE_TIMEOUT):
                while (sandbox := self.session(sandbox_id)).state is State.SUSPENDING:
                    await self._fleet.change(sandbox_id)
        except TimeoutError:
            why = f"cannot suspend sandbox {sandbox_id!r}: its executor has not ended within {RELEASE_TIMEOUT:g} s"
            raise ClaimReason.STILL_ENDING.error(why, sandbox_id) from None
        if sandbox.state is not State.SUSPENDED:
            why = f"cannot suspend sandbox {sandbox_id!r}: its executor was lost or it was resumed meanwhile"
            raise ClaimReason.RECOVERING.error(why, sandbox_id)
        return sandbox
