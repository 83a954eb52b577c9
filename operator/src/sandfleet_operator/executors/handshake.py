"""The first contact with a pod's executor: waits until it listens, verifies it, and opens its session."""

import asyncio
from collections.abc import Awaitable, Callable

from sandfleet_operator.api.kinds.sandbox import CodeSandbox
from sandfleet_operator.cluster.lanes import NoTurnError, Turns
from sandfleet_operator.executors.contact import (
    ContactError,
    Contacts,
    Executor,
    ExecutorDescription,
    Silent,
    Unreachable,
)
from sandfleet_operator.plan.lanes import Bounds, Party
from sandfleet_operator.plan.pods.names import session_id
from sandfleet_operator.plan.sandbox.actions import Greet
from sandfleet_operator.plan.sandbox.observed import Contact

# Seconds to wait for the port: under gVisor an executor listens about one second after its container has started.
LISTEN_SECONDS = 10.0
PAUSE = 0.05
BOUNDS = Bounds(total=64, per_namespace=16, per_node=32)


class Greeter:
    """Greets executors, those of a namespace and on a node in turns."""

    def __init__(
        self,
        contacts: Contacts,
        clock: Callable[[], float],
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._contacts = contacts
        self._clock = clock
        self._turns = Turns(BOUNDS, stalls=Silent)
        self._sleep = sleep

    async def greet(self, sandbox: CodeSandbox, action: Greet) -> Contact:
        """The outcome. Never raises: a failed contact has a reason."""
        meta = sandbox.meta
        executor = Executor(
            address=action.address,
            pod_uid=action.pod_uid,
            session_id=session_id(meta.namespace, meta.name),
            contract=action.contract,
            trusts=action.trusts,
        )
        try:
            party = Party(meta.namespace, action.node)
            found = await self._reached(executor, action, party)
            if action.first:
                async with self._turns.turn(party, LISTEN_SECONDS):
                    # Opening a session that the fleet has opened would replace its lease.
                    await self._contacts.open(executor, lease=action.lease, idle_timeout=action.idle_timeout)
        except NoTurnError as error:
            why = f"cannot reach the executor at {action.address} yet: {error}"
            return Contact(pod_uid=action.pod_uid, at=self._clock(), reason=Unreachable.reason, message=why)
        except ContactError as error:
            return Contact(pod_uid=action.pod_uid, at=self._clock(), reason=error.reason, message=str(error))
        now = self._clock()
        return Contact(pod_uid=action.pod_uid, at=now, runtime=found.runtime, not_preloaded=found.not_preloaded)

    async def _reached(self, executor: Executor, action: Greet, party: Party) -> ExecutorDescription:
        """The executor, once its identity is verified."""
        until = self._clock() + LISTEN_SECONDS
        while True:
            try:
                async with self._turns.turn(party, LISTEN_SECONDS):
                    return await self._contacts.contact(executor, isolation=action.isolation, first=action.first)
            except Unreachable:
                if self._clock() >= until:
                    raise
                await self._sleep(PAUSE)
