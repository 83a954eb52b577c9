"""What the SandboxQueues grant, as the scheduler hears of it."""

import itertools
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.queue import QueueSpec, StopPolicy, sandbox_queue
from sandfleet_operator.api.kube import SANDBOX_QUEUE, Json, Ref
from sandfleet_operator.cluster.store import Store
from sandfleet_operator.cluster.tasks import Sweeps
from sandfleet_operator.fleet.driver import FleetDriver
from sandfleet_operator.fleet.kubernetes.catalog import key_of

_LOG = logging.getLogger(__name__)


class _Look(NamedTuple):
    """At the sandboxes of a namespace, since this queue has changed; `number` is not 0 where the queue is new."""

    namespace: str
    queue: str
    number: int


class Grants:
    """`look` looks, in turns, at the sandboxes of a namespace whose queues have changed.

    A new queue first hears of the sandboxes that run there: they count before it admits anything.
    """

    def __init__(
        self,
        store: Store,
        driver: FleetDriver,
        *,
        look: Callable[[str], Coroutine[object, object, None]],
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._driver = driver
        self._look = look
        self._clock = clock
        # Nothing is admitted before all that exists has been counted.
        self._held = True
        # New queue → the number of the look after which all has been counted that runs there.
        self._counting: dict[str, int] = {}
        self._numbers = itertools.count(1)
        self._looks = Sweeps(self._look_at, "look at the sandboxes of a queue")
        # Queue → why it cannot be read.
        self.problems: dict[str, str] = {}

    def begin(self) -> None:
        """All queues of the store: claims can wait in them, and none admits anything."""
        for obj in list(self._store.all(SANDBOX_QUEUE)):
            self._store.intake.take(SANDBOX_QUEUE, obj, partial(self._put, obj))

    def open(self) -> None:
        """From now on queues admit."""
        self._held = False
        self.begin()

    def close(self) -> None:
        self._looks.close()

    def saw(self, obj: Json, *, gone: bool) -> None:
        name = key_of(obj)
        before = self.spec(name)
        if gone:
            self.problems.pop(name, None)
            self._counting.pop(name, None)
            self._driver.do(self._driver.scheduler.queues.remove(name, self._clock()))
        else:
            if before is None:
                self._counting[name] = next(self._numbers)
            self._put(obj)
        if self.spec(name) != before:
            self._looks.add(_Look(obj["metadata"]["namespace"], obj["metadata"]["name"], self._counting.get(name, 0)))

    async def _look_at(self, what: _Look) -> None:
        await self._look(what.namespace)
        name = f"{what.namespace}/{what.queue}"
        if what.number and self._counting.get(name) == what.number:
            del self._counting[name]
            newest = self._store.get(Ref(SANDBOX_QUEUE, what.namespace, what.queue))
            if newest is not None:
                self.saw(newest, gone=False)

    def names(self, namespace: str) -> frozenset[str]:
        """Of the queues of a namespace, also of those that cannot be read."""
        return frozenset(obj["metadata"]["name"] for obj in self._store.all(SANDBOX_QUEUE, namespace))

    def spec(self, name: str) -> QueueSpec | None:
        """By the scheduler's name."""
        return self._driver.scheduler.queues.spec(name)

    def _put(self, obj: Json) -> None:
        name = key_of(obj)
        try:
            spec = sandbox_queue(obj).spec
        except FleetError as error:
            if self.problems.get(name) != error.problem.message:
                _LOG.warning("queue %s admits nothing: %s", name, error)
            self.problems[name] = error.problem.message
            # What it has granted and lent before stays as it was; it grants nothing more.
            spec = replace(self.spec(name) or QueueSpec(), stop=StopPolicy.HOLD)
        else:
            self.problems.pop(name, None)
        if self._held or name in self._counting:
            spec = replace(spec, stop=StopPolicy.HOLD)
        self._driver.do(self._driver.scheduler.queues.put(name, spec, self._clock()))
