"""What the SandboxQueues grant, as the scheduler hears of it."""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.queue import QueueSpec, StopPolicy, sandbox_queue
from sandfleet_operator.api.kube import SANDBOX_QUEUE, Json
from sandfleet_operator.cluster.store import Store
from sandfleet_operator.fleet.driver import FleetDriver
from sandfleet_operator.fleet.kubernetes.catalog import key_of

_LOG = logging.getLogger(__name__)


class Grants:
    """`look` is called with a namespace whose queues change.

    A new queue first hears of the sandboxes that run there: they count before it admits anything.
    """

    def __init__(
        self, store: Store, driver: FleetDriver, *, look: Callable[[str], None], clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._driver = driver
        self._look = look
        self._clock = clock
        # Nothing is admitted before all that exists has been counted.
        self._held = True
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

    def saw(self, obj: Json, *, gone: bool) -> None:
        name = key_of(obj)
        before = self.spec(name)
        if gone:
            self.problems.pop(name, None)
            self._driver.do(self._driver.scheduler.queues.remove(name, self._clock()))
        else:
            if before is None and not self._held:
                self._put(obj, new=True)
                self._look(obj["metadata"]["namespace"])
            self._put(obj)
        if self.spec(name) != before and not self._held:
            self._look(obj["metadata"]["namespace"])

    def names(self, namespace: str) -> frozenset[str]:
        """Of the queues of a namespace, also of those that cannot be read."""
        return frozenset(obj["metadata"]["name"] for obj in self._store.all(SANDBOX_QUEUE, namespace))

    def spec(self, name: str) -> QueueSpec | None:
        """By the scheduler's name."""
        return self._driver.scheduler.queues.spec(name)

    def _put(self, obj: Json, *, new: bool = False) -> None:
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
        if self._held or new:
            spec = replace(spec, stop=StopPolicy.HOLD)
        self._driver.do(self._driver.scheduler.queues.put(name, spec, self._clock()))
