"""Polls the executors that plans name for their services, and reports changes to the reconciler.

At most WORKERS executors are asked at once, in the turns of a lane. Between two polls a sandbox costs a timer and its
last answer.
"""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from sandfleet_operator.api.kinds.sandbox import CodeSandbox, ServiceState, ServiceStatus
from sandfleet_operator.cluster.lanes import NoTurnError, Turns
from sandfleet_operator.cluster.workqueue import WorkQueue
from sandfleet_operator.executors.contact import ContactError, Contacts, Executor, Silent
from sandfleet_operator.plan.lanes import Bounds, Party
from sandfleet_operator.plan.pods.names import session_id
from sandfleet_operator.plan.sandbox.actions import AskServices
from sandfleet_operator.plan.sandbox.observed import Heard
from sandfleet_operator.plan.sandbox.services import polling
from sandfleet_operator.plan.sandbox.services.polling import PollState
from sandfleet_operator.plan.sandbox.services.status import Note, Told, notes

WORKERS = 64
BOUNDS = Bounds(total=WORKERS, per_namespace=8, per_node=32)
# Seconds until an executor that had no turn is asked again.
BUSY = 10.0

# Raises ContactError.
Ask = Callable[[AskServices], Awaitable[tuple[ServiceStatus, ...]]]


def asked_by(contacts: Contacts) -> Ask:
    async def ask(whom: AskServices) -> tuple[ServiceStatus, ...]:
        session = session_id(whom.namespace, whom.name)
        executor = Executor(address=whom.address, pod_uid=whom.pod_uid, session_id=session, contract=whom.contract)
        return await contacts.services(executor)

    return ask


@dataclass(frozen=True, slots=True)
class _Followed:
    poll: PollState
    # False while no plan asks for the services. The state is kept, so that used-up reports stay used up.
    active: bool = True


class ServiceWatch:
    """Polls executors and remembers their answers.

    `news` is called when the services of a sandbox have changed; `tell` writes an Event; `clock` is seconds since the
    epoch; `chance` gives numbers from 0 to below 1.
    """

    def __init__(
        self,
        ask: Ask,
        *,
        news: Callable[[AskServices], None],
        tell: Callable[[CodeSandbox, Note], Awaitable[None]],
        clock: Callable[[], float],
        chance: Callable[[], float] = random.random,
        workers: int = WORKERS,
    ) -> None:
        self._ask = ask
        self._news = news
        self._tell = tell
        self._clock = clock
        self._chance = chance
        self._queue: WorkQueue[str] = WorkQueue(self._work, workers)
        self._turns = Turns(BOUNDS, stalls=Silent)
        # By the sandbox's uid; only of those that declare services.
        self._followed: dict[str, _Followed] = {}
        self._told: dict[str, Told] = {}

    async def run(self) -> None:
        """Polls until cancelled."""
        await self._queue.run()

    def heard(self, uid: str) -> Heard | None:
        one = self._followed.get(uid)
        return one.poll.heard if one and one.active else None

    def follow(self, sandbox: CodeSandbox, whom: AskServices | None) -> None:
        """Polls this executor for the sandbox from now on; None: stops polling."""
        uid = sandbox.meta.uid
        one = self._followed.get(uid)
        if whom is None:
            if one is not None and one.active:
                self._followed[uid] = replace(one, active=False)
                self._queue.forget(uid)
            return
        if one is not None and one.active and one.poll.ask == whom:
            return
        step = polling.begun(
            whom,
            one.poll if one else None,
            self._clock(),
            known=_is_known(sandbox, whom),
            asked=len(self._followed),
            chance=self._chance(),
        )
        self._followed[uid] = _Followed(step.state)
        self._queue.forget(uid)
        self._queue.add_later(uid, step.wait)

    def forget(self, uid: str) -> None:
        """The sandbox is gone."""
        self._followed.pop(uid, None)
        self._told.pop(uid, None)
        self._queue.forget(uid)

    async def written(self, sandbox: CodeSandbox, services: tuple[ServiceStatus, ...]) -> None:
        """Writes Events after the sandbox's status was written with these services; `sandbox` has the status before."""
        uid = sandbox.meta.uid
        found, told = notes(self._told.pop(uid, frozenset()), sandbox.status.services, services)
        if told:
            self._told[uid] = told
        for note in found:
            await self._tell(sandbox, note)

    async def _work(self, uid: str) -> float | None:
        one = self._followed.get(uid)
        if one is None or not one.active:
            return None
        whom = one.poll.ask
        try:
            # A worker that waited for a turn would be missing elsewhere.
            async with self._turns.turn(Party(whom.namespace, whom.node), 0.0):
                services = await self._ask(whom)
        except NoTurnError:
            return BUSY * (0.75 + self._chance() / 2)
        except ContactError as error:
            step = polling.failed(one.poll, str(error), self._clock(), chance=self._chance())
        else:
            asked, chance = len(self._followed), self._chance()
            step = polling.answered(one.poll, services, self._clock(), asked=asked, chance=chance)
        if self._followed.get(uid) is not one:
            # The plan names another executor by now, or none.
            return None
        self._followed[uid] = replace(one, poll=step.state)
        if step.news:
            self._news(whom)
        return step.wait


def _is_known(sandbox: CodeSandbox, whom: AskServices) -> bool:
    said = sandbox.status.services if sandbox.status.pod_uid == whom.pod_uid else ()
    return bool(said) and all(one.state is not ServiceState.UNKNOWN for one in said)
