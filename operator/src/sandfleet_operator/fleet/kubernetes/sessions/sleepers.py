"""What the CodeSandboxes of sessions say of their sleep: their owners set the mode, too, and so do earlier leaders."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from sandfleet_operator.api.conditions import Reason
from sandfleet_operator.api.kinds.sandbox import CodeSandbox
from sandfleet_operator.api.values import Sandbox, State
from sandfleet_operator.cluster.tasks import BackgroundTasks
from sandfleet_operator.fleet.driver import FleetDriver
from sandfleet_operator.fleet.kubernetes.backend import KubernetesBackend
from sandfleet_operator.fleet.kubernetes.sessions.parked import Parking
from sandfleet_operator.plan.claims.suspension import is_suspended, preempted, suspended_until
from sandfleet_operator.plan.sandbox.admission import has_given_back, is_news, sleeps
from sandfleet_operator.plan.sandbox.parked import has_to_be_filled, is_in_snapshot
from sandfleet_operator.plan.scheduler.claim_queue import WhyNot

# Sessions of which is looked for news at each look, and writes of news.
LOOKED_AT, NEWS_AT_ONCE = 100, 10
SUSPENDED = WhyNot(Reason.SUSPENDED.value, Reason.SUSPENDED.meaning)


@dataclass(slots=True)
class _Waiting:
    sandbox: CodeSandbox
    # When it was last told why it waits.
    told: float


class Sleepers:
    """`queue_of` gives the queue that concerns a CodeSandbox, empty for none; `clock` is the scheduler's."""

    def __init__(
        self,
        backend: KubernetesBackend,
        driver: FleetDriver,
        *,
        queue_of: Callable[[CodeSandbox], str],
        clock: Callable[[], float],
    ) -> None:
        self._backend = backend
        self._driver = driver
        self._queue_of = queue_of
        self._clock = clock
        self._background = BackgroundTasks()
        # None: this fleet reaches no snapshotter.
        self.parking: Parking | None = None
        # By the scheduler's id: those that wait for another admission.
        self._waiting: dict[str, _Waiting] = {}

    def close(self) -> None:
        self._background.close()

    def look(self, known: Sandbox, sandbox: CodeSandbox) -> None:
        """The CodeSandbox of this session is new or has changed, or its pod is gone."""
        if self._backend.modes.is_writing(known):
            return
        before = self._waiting.pop(known.sandbox_id, None)
        known = self._parked(known, sandbox)
        has_queue = known.claim is not None and bool(known.claim.queue)
        has_pod, gave_back = self._backend.has_pod(known), has_queue and has_given_back(sandbox)
        if is_suspended(sandbox):
            if has_queue and not gave_back and not has_pod and sleeps(sandbox):
                self._background.begin(self._backend.modes.give_back(known), f"give back {known.sandbox_id}")
            if gave_back and sleeps(sandbox) and _reason(sandbox) != SUSPENDED.reason:
                self._background.begin(self._backend.modes.say(known, SUSPENDED), f"say why {known.sandbox_id} sleeps")
            self._asleep(known, sandbox, running=has_pod, uses_quota=has_queue and not gave_back)
        elif gave_back and self._queue_of(sandbox):
            self._asleep(known, sandbox, running=has_pod, uses_quota=False)
            self._waiting[known.sandbox_id] = waiting = _Waiting(sandbox, before.told if before else -math.inf)
            self._return(known.sandbox_id, sandbox)
            self._tell(known.sandbox_id, waiting)
        else:
            self._driver.do(self._driver.scheduler.suspensions.resumed(known.sandbox_id, self._clock()))

    def _parked(self, known: Sandbox, sandbox: CodeSandbox) -> Sandbox:
        """The session, as far as a snapshot keeps it or is to keep it."""
        if has_to_be_filled(sandbox) and known.state in {State.CLAIMED, State.RECOVERING}:
            # It is in no pod, whatever was seen before. It goes on when its pod is filled, and keeps its quota.
            self._backend.forget(known.sandbox_uid)
            asleep, now = replace(known, parked=True), self._clock()
            self._driver.do(self._driver.scheduler.suspensions.suspended(asleep, None, now, running=True))
            known = self._driver.scheduler.inventory.get(known.sandbox_id) or known
        if self.parking is not None:
            self.parking.look(known, sandbox)
        return known

    def gone(self, sandbox: CodeSandbox) -> None:
        """A CodeSandbox is gone, and its session with it."""
        if self.parking is not None:
            self.parking.gone(sandbox)

    def look_again(self) -> None:
        """Lets those wait whose pool or queue had gone. To be called every second or so."""
        left = NEWS_AT_ONCE
        for number, (sandbox_id, waiting) in enumerate(list(self._waiting.items())):
            known = self._driver.scheduler.inventory.get(sandbox_id)
            if known is None or known.state not in {State.SUSPENDING, State.SUSPENDED}:
                del self._waiting[sandbox_id]
                continue
            self._return(sandbox_id, waiting.sandbox)
            if number < LOOKED_AT and left and sandbox_id in self._waiting:
                # To the end: at the next look it is the turn of others.
                self._waiting[sandbox_id] = self._waiting.pop(sandbox_id)
                left -= self._tell(sandbox_id, waiting)

    def _tell(self, sandbox_id: str, waiting: _Waiting) -> bool:
        """Whether there was something new to write of why it waits."""
        known, said, now = (
            self._driver.scheduler.inventory.get(sandbox_id),
            waiting.sandbox.status.admission,
            self._clock(),
        )
        why = self._driver.scheduler.why_not(known.claim.key) if known is not None and known.claim is not None else None
        if (
            known is None
            or why is None
            or said is None
            or not is_news(said, why.reason, why.message, now - waiting.told)
        ):
            return False
        waiting.told = now
        self._background.begin(self._backend.modes.say(known, why), f"say why {sandbox_id} waits")
        return True

    def _asleep(self, known: Sandbox, sandbox: CodeSandbox, *, running: bool, uses_quota: bool) -> None:
        suspensions = self._driver.scheduler.suspensions
        parked = is_in_snapshot(sandbox.status)
        until = suspended_until(sandbox, math.inf if parked else self._driver.scheduler.limits.longest_suspension)
        restarts = sandbox.status.restarts
        seen = replace(known, restarts=restarts) if known.state is State.RECOVERING else known
        if (since := preempted(sandbox)) is not None and known.preempted is None:
            seen = replace(seen, preempted=since[0], arrived=since[1])
        seen = replace(seen, parked=parked or known.parked)
        if not running:
            self._backend.forget(known.sandbox_uid)
        self._driver.do(suspensions.suspended(seen, until, self._clock(), running=running or uses_quota))

    def _return(self, sandbox_id: str, sandbox: CodeSandbox) -> None:
        said = sandbox.status.admission
        asked = said.time if said is not None else self._clock()
        self._driver.do(self._driver.scheduler.suspensions.returns(sandbox_id, asked, self._clock()))


def _reason(sandbox: CodeSandbox) -> str:
    return sandbox.status.admission.reason if sandbox.status.admission else ""
