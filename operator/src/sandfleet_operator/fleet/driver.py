"""The fleet at work: it gives the scheduler what happens, and carries out what the scheduler decides."""

import asyncio
import itertools
import logging
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any

from sandfleet_operator.api.errors import FleetError, Problem
from sandfleet_operator.api.reasons import ClaimReason, SuspendReason
from sandfleet_operator.api.values import ASLEEP, Claim, RequestKey, Sandbox, State
from sandfleet_operator.cluster.tasks import Paced
from sandfleet_operator.executors.tokens import Token
from sandfleet_operator.fleet.backend import Backend, Event, Exited, Made, NotMade, Ready, Removed
from sandfleet_operator.fleet.claim_watches import ClaimWatch, ClaimWatches
from sandfleet_operator.fleet.incarnations import Executors, Incarnations
from sandfleet_operator.fleet.queue_views import QueueViews
from sandfleet_operator.plan.scheduler.actions import Action, Admit, Answer, AskLease, Resume, Start, Stop, Suspend
from sandfleet_operator.plan.scheduler.claim_queue import Place, Queued
from sandfleet_operator.plan.scheduler.lifecycle import ImpossibleEventError
from sandfleet_operator.plan.scheduler.pool_queues import PoolSummary
from sandfleet_operator.plan.scheduler.refill import Pool
from sandfleet_operator.plan.scheduler.scheduler import Scheduler

# Seconds.
TICK = 0.25
# Between two rounds of telling claims where they stand, and between two parts of a round.
STANDINGS_EVERY, PARTS_EVERY = 0.1, 0.02
# Claims that are told in one part, which takes some milliseconds.
STANDINGS_PART = 100
# Events that are heard before others get their turn: each may begin a task, and after a takeover there is one for each
# warm sandbox.
EVENTS_PART = 20
# Sandboxes whose end begins before others get their turn.
STOPS_PART = 10
RELEASE_TIMEOUT = 15.0
# How long a caller without a deadline of its own waits for a replacement.
RECOVERY_WAIT = 60.0
# A dead executor is dead for so long, at most, before its host reports it.
NOTICE_WAIT = 1.0
# An executor may take so long to say what is left of its lease, and is asked again after the pause.
LEASE_ANSWER = 5.0
LEASE_PAUSE = 2.0

_LOG = logging.getLogger(__name__)


class FleetDriver:
    """One event loop's; every method that asks for time uses `clock`.

    `renewed` is called after each renewal, `admitted` with the key of each declared sandbox that has its quota, `noted`
    with each action.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        backend: Backend,
        executors: Executors,
        clock: Callable[[], float],
        renewed: Callable[[Sandbox], None] = lambda _: None,
        *,
        admitted: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.scheduler = scheduler
        self._backend, self._executors, self._clock = backend, executors, clock
        self._renewed, self._admitted = renewed, admitted
        self.noted: Callable[[Action], None] = lambda _: None
        self.incarnations = Incarnations(scheduler, backend, executors, self.do, clock)
        self._watches = ClaimWatches(self._left)
        self.queue_views = QueueViews(scheduler, clock)
        self._changes: dict[str, asyncio.Future[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # What is left of a round of standings; whether another one is due after it, and the next part of either.
        self._round: Iterator[dict[RequestKey, Queued]] | None = None
        self._standings_due = self._part_due = self._serving = False
        self._stops = Paced[Action](lambda stop: self._spawn(self.incarnations.carry_out(stop)), STOPS_PART)

    # Its life.

    def begin(self) -> None:
        """From now on it carries out what is decided."""
        self._serving = True

    async def run(self) -> None:
        """Works until it is cancelled."""
        self.begin()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen())
            group.create_task(self._tick())

    async def close(self) -> None:
        """Tells everybody who waits, ends all sandboxes, and returns when nothing is left."""
        self._serving = False
        self._watches.settle_all(_stopping("claim"))
        await self._backend.close()
        self._stops.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._executors.forget_all()

    async def _listen(self) -> None:
        for number in itertools.count(1):
            event = await self._backend.next_event()
            try:
                await self._on(event)
            except ImpossibleEventError as error:
                _LOG.warning("%s", error)
            if number % EVENTS_PART == 0:
                await asyncio.sleep(0)

    async def _on(self, event: Event) -> None:
        match event:
            case Ready(uid, address):
                self._spawn(self.incarnations.connect(uid, address))
            case Made(uid):
                self.do(self.scheduler.made(uid, self._clock()))
            case NotMade(uid, why):
                await self._executors.forget(uid)
                self.do(self.scheduler.not_made(uid, why, self._clock()))
            case Exited(uid, end):
                await self._executors.forget(uid)
                self.do(self.scheduler.exited(uid, end, self._clock()))
            case Removed(uid, reason):
                await self._executors.forget(uid)
                self._removed(uid, reason)

    def _removed(self, sandbox_uid: str, reason: str) -> None:
        sandbox = self.scheduler.inventory.of_incarnation(sandbox_uid)
        if sandbox is not None:
            self.do(self.scheduler.removed(sandbox.sandbox_id, reason, self._clock()))

    async def _tick(self) -> None:
        while True:
            self.do(self.scheduler.tick(self._clock()))
            await asyncio.sleep(TICK)

    def now(self) -> float:
        """By the fleet's clock."""
        return self._clock()

    # What callers ask.

    def claim(self, claim: Claim, place: Place | None = None) -> ClaimWatch:
        """Asks for a sandbox. Raises FleetError; later failures come from the watch, which must always be left.

        `place`: where the claim waited at the leader before.
        """
        self.check_serving("claim")
        return self._watched(claim.key, lambda: self.scheduler.ask(claim, self._clock(), place))

    def resume(self, sandbox_id: str, max_wait: float) -> ClaimWatch:
        """Takes a suspended session on, as `claim` makes a new one."""
        self.check_serving("resume the sandbox")
        sandbox = self.scheduler.session(sandbox_id, self._clock())
        assert sandbox.claim is not None
        suspensions = self.scheduler.suspensions
        return self._watched(sandbox.claim.key, lambda: suspensions.resume(sandbox, max_wait, self._clock()))

    def _watched(self, key: RequestKey, ask: Callable[[], list[Action]]) -> ClaimWatch:
        watch = self._watches.open(key)
        try:
            self.do(ask())
        except FleetError:
            watch.leave()
            raise
        if not watch.is_settled:
            for one, queued in self.scheduler.standings(self._clock(), key).items():
                self._watches.tell(one, queued, self._clock())
        return watch

    async def release(self, sandbox_id: str) -> bool:
        """Ends a session, and returns when its executor is gone. False where it had ended before."""
        sandbox = self.scheduler.inventory.get(sandbox_id)
        if sandbox is None or not sandbox.bound or sandbox.state is State.ENDED:
            return False
        self.do(self.scheduler.release(sandbox_id, self._clock()))
        try:
            async with asyncio.timeout(RELEASE_TIMEOUT):
                while self.scheduler.inventory.get(sandbox_id) is not None:
                    await self.change(sandbox_id)
        except TimeoutError:
            message = f"cannot release sandbox {sandbox_id!r}: its executor has not ended within {RELEASE_TIMEOUT:g} s"
            raise ClaimReason.STILL_ENDING.error(message, sandbox_id) from None
        return True

    async def renew(self, sandbox_id: str, lease: float | None) -> Sandbox:
        """Gives the session a lease of so many seconds from now; None means as at the claim."""
        self.check_serving("renew the lease")
        sandbox = await self.get(sandbox_id, reachable=False)
        assert sandbox.claim is not None
        seconds = sandbox.claim.lease if lease is None else lease
        await self._executors.open(sandbox, seconds)
        renewed = self.scheduler.renew(sandbox_id, seconds, self._clock())
        self._renewed(renewed)
        return renewed

    async def get(self, sandbox_id: str, *, reachable: bool) -> Sandbox:
        """A session's sandbox, not before its executor is there; with `reachable`, not before it answers."""
        asked = False
        try:
            async with asyncio.timeout(RECOVERY_WAIT):
                while True:
                    sandbox = self.scheduler.session(sandbox_id, self._clock())
                    if sandbox.state in ASLEEP:
                        raise suspended(sandbox_id, preempted=self.scheduler.suspensions.is_preempted(sandbox))
                    if sandbox.state in {State.RECOVERING, State.RESUMING}:
                        await self.change(sandbox_id)
                    elif not sandbox.lease_known and not asked:
                        asked = True
                        await self.learn_lease(sandbox_id)
                    elif not reachable or await self._executors.answers(sandbox):
                        return sandbox
                    else:
                        await self.change(sandbox_id, within=NOTICE_WAIT)
        except TimeoutError:
            message = f"cannot get sandbox {sandbox_id!r}: its executor is still being replaced"
            raise ClaimReason.RECOVERING.error(message, sandbox_id) from None

    async def reopen(self, sandbox: Sandbox) -> None:
        """Gives a session's executor its lease and environment, as far as it has none of this claim."""
        assert sandbox.lease_expires is not None
        await self._executors.open(sandbox, max(1.0, sandbox.lease_expires - self._clock()))
        # The lease is the one that this leader has set.
        self.do(self.scheduler.lease_told(sandbox.sandbox_id, None, self._clock()))

    def write_down(self, sandbox: Sandbox) -> None:
        """An earlier leader has answered its claim, and has not written it down."""
        self._spawn(self.incarnations.answered(sandbox))

    async def learn_lease(self, sandbox_id: str) -> bool:
        """Asks the executor for a lease that an earlier leader may have renewed; whether the lease is known then."""
        sandbox = self.scheduler.inventory.get(sandbox_id)
        if sandbox is None or sandbox.lease_known or sandbox.state is State.ENDED:
            return True
        try:
            async with asyncio.timeout(LEASE_ANSWER):
                left = await self._executors.lease_left(sandbox)
        except (FleetError, TimeoutError):
            return False
        settles = sandbox.claim.settles if sandbox.claim is not None else 0.0
        self.do(self.scheduler.lease_told(sandbox_id, None if left is None else left - settles, self._clock()))
        return True

    async def _ask_lease(self, sandbox_id: str) -> None:
        """Until the executor answers; the scheduler gives up waiting."""
        while True:
            if await self.learn_lease(sandbox_id):
                return
            await asyncio.sleep(LEASE_PAUSE)

    def access(self, sandbox: Sandbox) -> tuple[str, Token]:
        """The address of a session's executor and a token for it, good until the end of the lease."""
        assert sandbox.lease_expires is not None
        token = self._executors.caller_token(sandbox, max(1.0, sandbox.lease_expires - self._clock()))
        return self.address(sandbox), token

    def address(self, sandbox: Sandbox) -> str:
        return self._executors.address(sandbox)

    def pools(self) -> list[tuple[Pool, PoolSummary]]:
        """By name, with how full each is."""
        known = sorted(self.scheduler.pools, key=lambda one: one.name)
        return [(pool, self.scheduler.summary(pool.name)) for pool in known]

    # What the scheduler asks.

    def do(self, actions: list[Action]) -> None:
        """Carries them out; what takes time goes on in the background."""
        for action in actions:
            self._carry_out(action)
        for sandbox_id in self.scheduler.inventory.take_changed():
            change = self._changes.pop(sandbox_id, None)
            if change is not None and not change.done():
                change.set_result(None)
        if self._watches:
            self._standings_due = True
            self._publish_soon(STANDINGS_EVERY)

    def _carry_out(self, action: Action) -> None:
        self.noted(action)
        match action:
            case Answer(key, result):
                self._watches.settle(key, result)
                if isinstance(result, Sandbox) and result.claim is not None and result.claim.gang is not None:
                    self._spawn(self.incarnations.answered(result))
            case AskLease(sandbox):
                self._spawn(self._ask_lease(sandbox.sandbox_id))
            case Admit(key):
                self._admitted(key)
            case Start() if not self._serving:
                # What ends while the fleet ends is not replaced.
                pass
            case Stop():
                self._stops.add(action)
            case Suspend(sandbox) | Resume(sandbox):
                # At once: what others show of its mode is out of date from now on, not from when it is written.
                self._backend.decided(sandbox)
                self._spawn(self.incarnations.carry_out(action))
            case _:
                self._spawn(self.incarnations.carry_out(action))

    # Who waits.

    def _left(self, key: RequestKey) -> None:
        if self._serving:
            self.do(self.scheduler.leave(key, self._clock()))

    def _publish_soon(self, seconds: float) -> None:
        if not self._part_due:
            self._part_due = True
            asyncio.get_running_loop().call_later(seconds, self._publish_standings)

    def _publish_standings(self) -> None:
        """Tells the next of the claims that wait where they stand: so many that others need not wait for it."""
        self._part_due, told = False, 0
        if self._round is None:
            self._standings_due = False
            self._round = self.scheduler.standing.parts(STANDINGS_PART, self._clock)
        while told < STANDINGS_PART and self._round is not None:
            part = next(self._round, None)
            if part is None:
                self._round = None
            for key, queued in (part or {}).items():
                if not self._watches.tell(key, queued, self._clock()):
                    self._standings_due = True
                told += 1
        if self._watches and (self._round is not None or self._standings_due):
            self._publish_soon(STANDINGS_EVERY if self._round is None else PARTS_EVERY)

    async def change(self, sandbox_id: str, within: float | None = None) -> None:
        """Returns after the next change of the sandbox, or after `within` seconds."""
        loop = asyncio.get_running_loop()
        change = self._changes.setdefault(sandbox_id, loop.create_future())
        await asyncio.wait([change], timeout=within)

    def check_serving(self, doing: str) -> None:
        if not self._serving:
            raise FleetError(_stopping(doing))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, ImpossibleEventError):
            _LOG.warning("%s", error)
        elif error is not None:
            _LOG.error("cannot carry out a decision: %r", error)


def suspended(sandbox_id: str, *, preempted: bool = False) -> FleetError:
    """The session has no executor that could be asked."""
    if preempted:
        why = "the owner of its quota needs it; it waits in its queue and is resumed by itself"
        problem = SuspendReason.SANDBOX_PREEMPTED.problem(f"cannot use sandbox {sandbox_id}: {why}", sandbox_id)
        return FleetError(replace(problem, passing=True))
    why = f"cannot use sandbox {sandbox_id}: it is suspended; resume it with Sandbox.resume({sandbox_id!r})"
    return ClaimReason.SANDBOX_SUSPENDED.error(why, sandbox_id)


def _stopping(doing: str) -> Problem:
    return ClaimReason.NOT_SERVING.problem(f"cannot {doing}: the fleet is starting or stopping")
