"""Claims of declared CodeSandboxes with a pool: claims like all others that wait as long as their object exists."""

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import replace

from sandfleet_rules.backoff import Backoff

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.sandbox import CodeSandbox, RecoveryFrom, SandboxSpec
from sandfleet_operator.api.limits import Limits, in_numbers
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.api.validate import MAX_WAIT
from sandfleet_operator.api.values import Claim, RequestKey
from sandfleet_operator.fleet.convert import LEAST_SHARED_PERIOD, SNAPSHOT_PERIOD
from sandfleet_operator.fleet.driver import FleetDriver
from sandfleet_operator.plan.claims.record import checked_size
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.scheduler.claim_queue import Queued

# The holder of these claims; no caller is called like this.
OBJECT_HOLDER = "sandfleet:object"
# Seconds before a claim that was refused asks again.
BACKOFF = Backoff(first=1.0, longest=30.0)

_LOG = logging.getLogger(__name__)


class DeclaredClaims:
    """`queue_of` gives the scheduler's name of the queue in which an object waits."""

    def __init__(self, fleet: FleetDriver, queue_of: Callable[[CodeSandbox], str]) -> None:
        self._fleet = fleet
        self._queue_of = queue_of
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def ask(self, name: str, sandbox: CodeSandbox) -> None:
        """Claims a sandbox for the CodeSandbox, unless it waits already."""
        if name not in self._tasks:
            self._tasks[name] = asyncio.create_task(self._ask(name, sandbox))

    def drop(self, name: str) -> None:
        """The CodeSandbox is gone or has expired."""
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()

    def close(self) -> None:
        for name in list(self._tasks):
            self.drop(name)

    async def _ask(self, name: str, sandbox: CodeSandbox) -> None:
        failures = 0
        while True:
            try:
                # Its queue may have come or gone since the last time.
                await self._bound(self._requested(sandbox))
            except FleetError as error:
                _LOG.info("CodeSandbox %s waits: %s", name, error)
                failures += 1
                await asyncio.sleep(BACKOFF.after(failures))
            else:
                self._tasks.pop(name, None)
                return

    def _requested(self, sandbox: CodeSandbox) -> Claim:
        """Raises FleetError where the pool has another contract."""
        claim = checked_size(claim_of(sandbox, self._queue_of(sandbox)))
        pool = self._fleet.scheduler.pool(claim.pool)
        if pool is None:
            return claim
        has, asked = pool.template.contract, sandbox.spec.contract
        if asked is not None and asked.value != has:
            why = f"the sandboxes of pool {claim.pool} have contract {has}, and it asks for {asked.value}"
            raise ClaimReason.CONTRACT_NOT_SUPPORTED.error(f"cannot claim: {why}")
        return replace(claim, contract=has)

    async def _bound(self, claim: Claim) -> None:
        watch = self._fleet.claim(claim)
        try:
            while isinstance(await watch.next(), Queued):
                pass
        finally:
            watch.leave()


def _snapshot_period(spec: SandboxSpec) -> float | None:
    if spec.recovery is not RecoveryFrom.SNAPSHOT:
        return None
    return SNAPSHOT_PERIOD if spec.snapshot_period is None else max(spec.snapshot_period, LEAST_SHARED_PERIOD)


def claim_of(sandbox: CodeSandbox, queue: str) -> Claim:
    """What it asks for. Its sandbox ends with it, not with a lease."""
    spec, meta = sandbox.spec, sandbox.meta
    pool = f"{meta.namespace}/{spec.pool}"
    return Claim(
        key=RequestKey(OBJECT_HOLDER, meta.uid, pool),
        pool=pool,
        labels=meta.labels,
        envs=spec.envs,
        mounts=spec.mounts,
        pod_image=spec.image,
        lease=math.inf,
        idle_timeout=spec.idle_timeout,
        on_idle=spec.on_idle.value.lower(),
        snapshot_period=_snapshot_period(spec),
        # In a claim 0 is the template's limit, and no longest timeout is never more than that.
        limits=Limits(**in_numbers(spec.limits)),  # type: ignore[arg-type]
        max_wait=MAX_WAIT,
        traceparent=meta.annotations.get(names.TRACEPARENT, ""),
        name=meta.name,
        object_uid=meta.uid,
        contract=spec.contract.value if spec.contract else "autonomous",
        # The operator opens a list of its own; the label of the template's list would open more until then.
        egress=spec.egress is None,
        queue=queue,
        priority=spec.priority,
    )
