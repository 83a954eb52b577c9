"""What the scheduler asks of incarnations, carried out one by one; how it went is an event for the scheduler."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from sandfleet_api.executor.v1 import session_pb2

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.values import Mark, Sandbox, State
from sandfleet_operator.executors.tokens import Token
from sandfleet_operator.fleet.backend import Backend, RefusedError, TakenError
from sandfleet_operator.fleet.priority_gate import PriorityGate
from sandfleet_operator.plan.scheduler.actions import Action, Bind, DropWorkspace, Gone, Resume, Start, Stop, Suspend
from sandfleet_operator.plan.scheduler.scheduler import Scheduler

# Claims are written down behind their answers, and let others be answered first for so many seconds.
RECORD_PATIENCE = 1.0
# States of a session whose next incarnation is opened.
GOING_ON = frozenset({State.RESUMING, State.RECOVERING})

_LOG = logging.getLogger(__name__)


class Executors(Protocol):
    """The executors as the loop needs them: sandfleet_operator.executors.client.Executors."""

    async def connect(self, sandbox: Sandbox, address: str) -> None: ...
    async def open(self, sandbox: Sandbox, lease: float) -> None: ...
    async def lease_left(self, sandbox: Sandbox) -> float | None: ...
    async def answers(self, sandbox: Sandbox) -> bool: ...
    async def idle(self, sandbox: Sandbox) -> float | None: ...
    async def suspend(self, sandbox: Sandbox, *, force: bool, unused: bool = False) -> session_pb2.Suspension: ...
    async def resume(self, sandbox: Sandbox) -> session_pb2.Resumption | None: ...
    async def close(self, sandbox: Sandbox) -> None: ...
    async def forget(self, sandbox_uid: str) -> None: ...
    async def forget_all(self) -> None: ...
    def address(self, sandbox: Sandbox) -> str: ...
    def caller_token(self, sandbox: Sandbox, lifetime: float) -> Token: ...


class Refill(Protocol):
    """Fills the sandbox of a session that goes on in another one."""

    async def fill(self, sandbox: Sandbox) -> None:
        """Before its caller can reach it, after each Open. Raises FleetError: it is not fit then."""
        ...

    async def filled(self, sandbox: Sandbox) -> None:
        """Its caller has it."""
        ...


class Preparation(Protocol):
    """Fills a sandbox that is not claimed yet with what its pool starts from."""

    async def prepare(self, sandbox: Sandbox) -> frozenset[Mark]:
        """What that had received; nothing for a pool that starts empty. Raises FleetError: it is not fit then."""
        ...


class Incarnations:
    """`do` carries out what the scheduler decides."""

    # None: all pools start empty.
    preparation: Preparation | None = None

    # None: a session goes on with what its workspace has.
    refill: Refill | None = None

    def __init__(
        self,
        scheduler: Scheduler,
        backend: Backend,
        executors: Executors,
        do: Callable[[list[Action]], None],
        clock: Callable[[], float],
    ) -> None:
        self._scheduler = scheduler
        self._backend = backend
        self._executors = executors
        self._do = do
        self._clock = clock
        self._gate = PriorityGate(RECORD_PATIENCE)
        # Incarnations of sessions that go on, while each is opened and filled.
        self._going_on: set[str] = set()

    async def carry_out(self, action: Action) -> None:
        match action:
            case Start(sandbox):
                await self._backend.start(sandbox)
            case Bind(sandbox):
                await self._bind(sandbox)
            case Stop(sandbox):
                await self._stop(sandbox)
            case Suspend(sandbox):
                await self._suspend(sandbox)
            case Resume(sandbox):
                await self._backend.resume(sandbox)
            case DropWorkspace(workspace_id):
                await self._backend.drop_workspace(workspace_id)
            case Gone(sandbox):
                _LOG.debug("sandbox %s is gone: %s", sandbox.sandbox_id, sandbox.ended_reason)
                await self._backend.gone(sandbox)

    async def connect(self, sandbox_uid: str, address: str) -> None:
        sandbox = self._scheduler.inventory.of_incarnation(sandbox_uid)
        if sandbox is None:
            return
        received = frozenset[Mark]()
        try:
            await self._executors.connect(sandbox, address)
            if self.preparation is not None and sandbox.state is State.STARTING:
                received = await self.preparation.prepare(sandbox)
        except FleetError as error:
            if not self._was_claimed(sandbox):
                self._do(self._scheduler.unfit(sandbox_uid, error.problem, self._clock()))
        else:
            if not self._was_claimed(sandbox):
                self._do(self._scheduler.ready(sandbox_uid, self._clock(), received))

    def _was_claimed(self, sandbox: Sandbox) -> bool:
        """Whether a claim has got it before this fleet verified its executor: then the claim verifies it."""
        now = self._scheduler.inventory.of_incarnation(sandbox.sandbox_uid)
        return sandbox.untried and (now is None or now.state is not State.WARM)

    async def _bind(self, sandbox: Sandbox) -> None:
        uid = sandbox.sandbox_uid
        if sandbox.state not in GOING_ON:
            await self._bound(sandbox)
        elif uid not in self._going_on:
            # Several pieces of news may say that its next incarnation is there.
            self._going_on.add(uid)
            try:
                await self._bound(sandbox)
            finally:
                self._going_on.discard(uid)

    async def _bound(self, sandbox: Sandbox) -> None:
        assert sandbox.lease_expires is not None
        try:
            async with self._gate.interactive():
                if not sandbox.bound:
                    await self._backend.claim(sandbox)
                await self._executors.open(sandbox, max(1.0, sandbox.lease_expires - self._clock()))
            if self.refill is not None and sandbox.state in GOING_ON:
                await self.refill.fill(sandbox)
            if sandbox.state is State.RESUMING:
                # Its variables come back, which may take long.
                await self._executors.resume(sandbox)
        except TakenError:
            self._do(self._scheduler.taken(sandbox.sandbox_uid, self._clock()))
        except RefusedError as error:
            refused = self._scheduler.refused
            self._do(refused(sandbox.sandbox_uid, error.problem, self._clock(), untouched=error.untouched))
        except FleetError as error:
            self._do(self._scheduler.unfit(sandbox.sandbox_uid, error.problem, self._clock()))
        else:
            self._do(self._scheduler.bound(sandbox.sandbox_uid, self._clock()))
            if self.refill is not None and sandbox.state in GOING_ON:
                await self.refill.filled(sandbox)
            await self._record(sandbox.sandbox_uid)

    async def answered(self, sandbox: Sandbox) -> None:
        """Its caller has it, as the last of its gang was bound or as another leader has answered it."""
        await self._record(sandbox.sandbox_uid)

    async def _record(self, sandbox_uid: str) -> None:
        """Behind the answer, and not while it is young; what is over by then has nothing to be remembered by."""
        sandbox = self._answered(sandbox_uid)
        if sandbox is not None and (left := self._backend.answered(sandbox)) > 0:
            await asyncio.sleep(left)
        async with self._gate.background():
            if (sandbox := self._answered(sandbox_uid)) is not None:
                await self._backend.record(sandbox)

    def _answered(self, sandbox_uid: str) -> Sandbox | None:
        sandbox = self._scheduler.inventory.of_incarnation(sandbox_uid)
        over = sandbox is None or not (sandbox.bound and sandbox.answered) or sandbox.state is State.ENDED
        return None if over else sandbox

    async def _stop(self, sandbox: Sandbox) -> None:
        if sandbox.bound:
            await self._executors.close(sandbox)
        await self._backend.stop(sandbox.sandbox_uid)

    async def _suspend(self, sandbox: Sandbox) -> None:
        """Where a caller has asked, its executor has kept what it could, and says so again at once."""
        if not sandbox.parked:
            with suppress(FleetError):
                await self._executors.suspend(sandbox, force=True)
        await self._backend.suspend(sandbox)
