"""The first contact with a pod's executor: waits until it listens, verifies it, and opens its session."""

import asyncio
from collections.abc import Awaitable, Callable

from sandfleet_operator.api.kinds.sandbox import CodeSandbox
from sandfleet_operator.executors.contact import ContactError, Contacts, Executor, ExecutorDescription, Unreachable
from sandfleet_operator.plan.pods.names import session_id
from sandfleet_operator.plan.sandbox.actions import Greet
from sandfleet_operator.plan.sandbox.observed import Contact

# Seconds to wait for the port: under gVisor an executor listens about one second after its container has started.
LISTEN_SECONDS = 10.0
PAUSE = 0.05


class Greeter:
    """Greets executors, at most `most` at once."""

    def __init__(
        self,
        contacts: Contacts,
        clock: Callable[[], float],
        *,
        most: int = 64,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._contacts = contacts
        self._clock = clock
        self._slots = asyncio.Semaphore(most)
        self._sleep = sleep

    async def greet(self, sandbox: CodeSandbox, action: Greet) -> Contact:
        """The outcome. Never raises: a failed contact has a reason."""
        meta = sandbox.meta
        executor = Executor(
            address=action.address,
            pod_uid=action.pod_uid,
            session_id=session_id(meta.namespace, meta.name),
            contract=action.contract,
        )
        try:
            async with self._slots:
                found = await self._reached(executor, action)
                if action.first:
                    # Opening a session that the fleet has opened would replace its lease.
                    await self._contacts.open(executor, lease=action.lease, idle_timeout=action.idle_timeout)
        except ContactError as error:
            return Contact(pod_uid=action.pod_uid, at=self._clock(), reason=error.reason, message=str(error))
        now = self._clock()
        return Contact(pod_uid=action.pod_uid, at=now, runtime=found.runtime, not_preloaded=found.not_preloaded)

    async def _reached(self, executor: Executor, action: Greet) -> ExecutorDescription:
        """The executor, once its identity is verified."""
        until = self._clock() + LISTEN_SECONDS
        while True:
            try:
                return await self._contacts.contact(executor, isolation=action.isolation, first=action.first)
            except Unreachable:
                if self._clock() >= until:
                    raise
                await self._sleep(PAUSE)
