"""Asks executors for the services of their sandboxes, as plans say whom, and tells whoever writes the status of what is new.

So many are asked at once, whatever their number; each costs a timer and its last answer here, and nothing between two questions.
"""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from sandfleet_operator.api.resources import CodeSandbox, ServiceState, ServiceStatus
from sandfleet_operator.effects.contact import ContactError, Contacts, Executor
from sandfleet_operator.effects.workqueue import WorkQueue
from sandfleet_operator.plan.sandbox import asking
from sandfleet_operator.plan.sandbox.actions import AskServices
from sandfleet_operator.plan.sandbox.asking import Asking
from sandfleet_operator.plan.sandbox.observed import Heard
from sandfleet_operator.plan.sandbox.services import Note, Told, notes
from sandfleet_operator.plan.session import session_id

WORKERS = 16

# Raises ContactError.
Ask = Callable[[AskServices], Awaitable[tuple[ServiceStatus, ...]]]


def asked_by(contacts: Contacts) -> Ask:
    async def ask(whom: AskServices) -> tuple[ServiceStatus, ...]:
        session = session_id(whom.namespace, whom.name)
        return await contacts.services(Executor(address=whom.address, pod_uid=whom.pod_uid, session_id=session))

    return ask


@dataclass(frozen=True, slots=True)
class _Followed:
    asking: Asking
    # Not while nobody says that it is to be asked; what it has used up is not forgotten then.
    active: bool = True


class ServiceWatch:
    """`news` is told whose services are not as before; `tell` writes an Event; `clock` is seconds since the epoch.

    `chance` gives numbers from 0 to below 1.
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
        # By the sandbox's uid; only of those that declare services.
        self._followed: dict[str, _Followed] = {}
        self._told: dict[str, Told] = {}

    async def run(self) -> None:
        """Until it is cancelled."""
        await self._queue.run()

    def heard(self, uid: str) -> Heard | None:
        one = self._followed.get(uid)
        return one.asking.heard if one and one.active else None

    def follow(self, sandbox: CodeSandbox, whom: AskServices | None) -> None:
        """From now on this one is asked, or nobody is, for this sandbox."""
        uid = sandbox.meta.uid
        one = self._followed.get(uid)
        if whom is None:
            if one is not None and one.active:
                self._followed[uid] = replace(one, active=False)
                self._queue.forget(uid)
            return
        if one is not None and one.active and one.asking.ask == whom:
            return
        next_ = asking.begun(
            whom,
            one.asking if one else None,
            self._clock(),
            known=_is_known(sandbox, whom),
            asked=len(self._followed),
            chance=self._chance(),
        )
        self._followed[uid] = _Followed(next_.asking)
        self._queue.forget(uid)
        self._queue.add_later(uid, next_.wait)

    def forget(self, uid: str) -> None:
        """The sandbox is gone."""
        self._followed.pop(uid, None)
        self._told.pop(uid, None)
        self._queue.forget(uid)

    async def written(self, sandbox: CodeSandbox, services: tuple[ServiceStatus, ...]) -> None:
        """The status of this sandbox, as it was, says this of its services now."""
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
        try:
            services = await self._ask(one.asking.ask)
        except ContactError as error:
            next_ = asking.failed(one.asking, str(error), self._clock(), chance=self._chance())
        else:
            asked, chance = len(self._followed), self._chance()
            next_ = asking.answered(one.asking, services, self._clock(), asked=asked, chance=chance)
        if self._followed.get(uid) is not one:
            # Another pod, or nobody, is to be asked by now.
            return None
        self._followed[uid] = replace(one, asking=next_.asking)
        if next_.news:
            self._news(one.asking.ask)
        return next_.wait


def _is_known(sandbox: CodeSandbox, whom: AskServices) -> bool:
    said = sandbox.status.services if sandbox.status.pod_uid == whom.pod_uid else ()
    return bool(said) and all(one.state is not ServiceState.UNKNOWN for one in said)
