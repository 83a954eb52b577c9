"""Greets the executor of a pod, as the plan asks: waits until it listens, proves it, opens its session unless the fleet has."""

import asyncio
from collections.abc import Awaitable, Callable

from sandfleet_operator.api.resources import CodeSandbox
from sandfleet_operator.effects.contact import ContactError, Contacts, Executor, Unreachable
from sandfleet_operator.plan.sandbox.actions import Greet
from sandfleet_operator.plan.sandbox.observed import Contact
from sandfleet_operator.plan.session import session_id

# Seconds: an executor under gVisor listens about one second after its container has started.
LISTEN_SECONDS = 10.0
PAUSE = 0.05


class Greeter:
    """At most `most` greetings at once."""

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
        """Never raises: a failure is a contact with a reason."""
        meta = sandbox.meta
        executor = Executor(
            address=action.address, pod_uid=action.pod_uid, session_id=session_id(meta.namespace, meta.name)
        )
        try:
            async with self._slots:
                found = await self._reached(executor, action)
                if action.first:
                    # Opened again it would lose the lease that the fleet has set.
                    await self._contacts.open(executor, lease=action.lease, idle_timeout=action.idle_timeout)
        except ContactError as error:
            return Contact(pod_uid=action.pod_uid, at=self._clock(), reason=error.reason, message=str(error))
        return Contact(pod_uid=action.pod_uid, at=self._clock(), runtime=found)

    async def _reached(self, executor: Executor, action: Greet) -> str:
        """The runtime that it has proved to be in."""
        until = self._clock() + LISTEN_SECONDS
        while True:
            try:
                contact = await self._contacts.contact(executor, isolation=action.isolation, first=action.first)
            except Unreachable:
                if self._clock() >= until:
                    raise
                await self._sleep(PAUSE)
            else:
                return contact.runtime
