"""CodeSandboxes that people make with a pool: they take the same path as every claim, and wait for as long as they are there."""

import asyncio
import logging
import math

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.resources import CodeSandbox
from sandfleet_operator.api.validate import MAX_WAIT
from sandfleet_operator.api.values import Claim, RequestKey
from sandfleet_operator.fleet.loop import Fleet
from sandfleet_operator.plan import names
from sandfleet_operator.plan.queue import Queued

# The holder of these claims; no caller is called like this.
OBJECT_HOLDER = "sandfleet:object"
# Seconds before a claim that was refused asks again; it doubles from time to time.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0

_LOG = logging.getLogger(__name__)


class Asking:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def ask(self, name: str, sandbox: CodeSandbox) -> None:
        """It waits from now, unless it does already."""
        if name not in self._tasks:
            self._tasks[name] = asyncio.create_task(self._ask(name, claim_of(sandbox)))

    def drop(self, name: str) -> None:
        """It is gone, or is over."""
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()

    def close(self) -> None:
        for name in list(self._tasks):
            self.drop(name)

    async def _ask(self, name: str, claim: Claim) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                await self._bound(claim)
            except FleetError as error:
                _LOG.info("CodeSandbox %s waits: %s", name, error)
                await asyncio.sleep(pause)
                pause = min(LONGEST_PAUSE, 2 * pause)
            else:
                self._tasks.pop(name, None)
                return

    async def _bound(self, claim: Claim) -> None:
        watch = self._fleet.claim(claim)
        try:
            while isinstance(await watch.next(), Queued):
                pass
        finally:
            watch.leave()


def claim_of(sandbox: CodeSandbox) -> Claim:
    """What it asks for. Its sandbox ends with it, not with a lease."""
    spec, meta = sandbox.spec, sandbox.meta
    return Claim(
        key=RequestKey(OBJECT_HOLDER, meta.uid),
        pool=f"{meta.namespace}/{spec.pool}",
        labels=meta.labels,
        envs=spec.envs,
        lease=math.inf,
        idle_timeout=spec.idle_timeout,
        limits=spec.limits,
        max_wait=MAX_WAIT,
        traceparent=meta.annotations.get(names.TRACEPARENT, ""),
        name=meta.name,
        object_uid=meta.uid,
        contract=spec.contract.value if spec.contract else "autonomous",
        # A list of its own is opened by the operator: the label of the template's would open more, until that one looks.
        egress=spec.egress is None,
    )
