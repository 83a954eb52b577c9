"""What the CodeSandboxes of sessions say of their sleep: their owners set the mode, too, and so do earlier leaders."""

from collections.abc import Callable
from dataclasses import replace

from sandfleet_operator.api.kinds.sandbox import CodeSandbox
from sandfleet_operator.api.values import Sandbox, State
from sandfleet_operator.cluster.tasks import BackgroundTasks
from sandfleet_operator.fleet.driver import FleetDriver
from sandfleet_operator.fleet.kubernetes.backend import KubernetesBackend
from sandfleet_operator.plan.claims.suspension import is_suspended, preempted, suspended_until
from sandfleet_operator.plan.sandbox.admission import has_given_back, sleeps


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
        # By the scheduler's id: those that wait for another admission.
        self._waiting: dict[str, CodeSandbox] = {}

    def close(self) -> None:
        self._background.close()

    def look(self, known: Sandbox, sandbox: CodeSandbox) -> None:
        """The CodeSandbox of this session is new or has changed, or its pod is gone."""
        if self._backend.modes.is_writing(known):
            return
        self._waiting.pop(known.sandbox_id, None)
        has_queue = known.claim is not None and bool(known.claim.queue)
        has_pod, gave_back = self._backend.has_pod(known), has_queue and has_given_back(sandbox)
        if is_suspended(sandbox):
            if has_queue and not gave_back and not has_pod and sleeps(sandbox):
                self._background.begin(self._backend.modes.give_back(known), f"give back {known.sandbox_id}")
            self._asleep(known, sandbox, running=has_pod, uses_quota=has_queue and not gave_back)
        elif gave_back and self._queue_of(sandbox):
            self._asleep(known, sandbox, running=has_pod, uses_quota=False)
            self._waiting[known.sandbox_id] = sandbox
            self._return(known.sandbox_id, sandbox)
        else:
            self._driver.do(self._driver.scheduler.suspensions.resumed(known.sandbox_id, self._clock()))

    def look_again(self) -> None:
        """Lets those wait whose pool or queue had gone. To be called every second or so."""
        for sandbox_id, sandbox in list(self._waiting.items()):
            known = self._driver.scheduler.inventory.get(sandbox_id)
            if known is None or known.state not in {State.SUSPENDING, State.SUSPENDED}:
                del self._waiting[sandbox_id]
            else:
                self._return(sandbox_id, sandbox)

    def _asleep(self, known: Sandbox, sandbox: CodeSandbox, *, running: bool, uses_quota: bool) -> None:
        suspensions = self._driver.scheduler.suspensions
        until = suspended_until(sandbox, self._driver.scheduler.limits.longest_suspension)
        restarts = sandbox.status.restarts
        seen = replace(known, restarts=restarts) if known.state is State.RECOVERING else known
        if (since := preempted(sandbox)) is not None and known.preempted is None:
            seen = replace(seen, preempted=since[0], arrived=since[1])
        if not running:
            self._backend.forget(known.sandbox_uid)
        self._driver.do(suspensions.suspended(seen, until, self._clock(), running=running or uses_quota))

    def _return(self, sandbox_id: str, sandbox: CodeSandbox) -> None:
        said = sandbox.status.admission
        asked = said.time if said is not None else self._clock()
        self._driver.do(self._driver.scheduler.suspensions.returns(sandbox_id, asked, self._clock()))
