"""All that a fleet has to do with SandboxQueues."""

import asyncio
from collections.abc import Callable, Iterator

from sandfleet_operator.api.kinds.sandbox import CodeSandbox
from sandfleet_operator.api.kube import CODE_SANDBOX, SANDBOX_QUEUE, Json
from sandfleet_operator.cluster.kube_api import KubeApi
from sandfleet_operator.cluster.reflector import show_each
from sandfleet_operator.cluster.store import Store
from sandfleet_operator.fleet.driver import FleetDriver
from sandfleet_operator.fleet.kubernetes.catalog import Catalog, key_of
from sandfleet_operator.fleet.kubernetes.queues.admissions import Admissions
from sandfleet_operator.fleet.kubernetes.queues.grants import Grants
from sandfleet_operator.fleet.kubernetes.queues.orphans import Orphans
from sandfleet_operator.fleet.kubernetes.queues.status import QueueLevel, QueueStatuses
from sandfleet_operator.fleet.kubernetes.writer import Writer
from sandfleet_operator.plan.sandbox.admission import queue_of

# Seconds.
LOOK_EVERY = 1.0


class Queues:
    """`leading` gives the fencing number, None when leadership may be over; `clock` is the scheduler's."""

    def __init__(
        self,
        kube: KubeApi,
        store: Store,
        writer: Writer,
        driver: FleetDriver,
        catalog: Catalog,
        *,
        leading: Callable[[], int | None],
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._driver = driver
        self._clock = clock
        self.grants = Grants(store, driver, look=self._look_in, clock=clock)
        self.orphans = Orphans(kube, store, driver, clock)
        self.admissions = Admissions(
            kube,
            store,
            writer,
            driver,
            catalog,
            grants=self.grants,
            orphans=self.orphans,
            clock=clock,
            wall_clock=wall_clock,
        )
        self._statuses = QueueStatuses(kube, leading, wall_clock)

    # Its life.

    async def take_over(self) -> None:
        """Counts what earlier leaders have admitted."""
        await show_each(self._store, CODE_SANDBOX, self.saw_sandbox)
        await self.orphans.take_over()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            self.admissions.look_at_news()
            await self._statuses.write(list(self._levels()))

    async def close(self) -> None:
        self.grants.close()
        self.orphans.close()
        await self.admissions.close()

    # What the watches show, and what the scheduler decides.

    def saw_sandbox(self, obj: Json, *, gone: bool = False) -> None:
        self.admissions.look(obj, gone=gone)
        if gone:
            self.orphans.sandbox_gone(obj)

    def saw_template(self, obj: Json) -> None:
        """What its sandboxes count may have changed."""
        self.admissions.template_changed(obj["metadata"]["namespace"], obj["metadata"]["name"])

    async def _look_in(self, namespace: str) -> None:
        await self.admissions.look_in(namespace)

    # Queries.

    def queue_of(self, sandbox: CodeSandbox) -> str:
        """The scheduler's name of the queue in which it waits; empty: none."""
        namespace = sandbox.meta.namespace
        name = queue_of(sandbox, self.grants.names(namespace))
        return f"{namespace}/{name}" if name else ""

    def _levels(self) -> Iterator[QueueLevel]:
        queues, now = self._driver.scheduler.queues, self._clock()
        for obj in self._store.all(SANDBOX_QUEUE):
            name = key_of(obj)
            if (spec := queues.spec(name)) is not None:
                problem, rate = self.grants.problems.get(name, ""), queues.admission_rate(name, now)
                yield QueueLevel(obj=obj, spec=spec, summary=queues.summary(name, now), problem=problem, rate=rate)
