"""One operator: what it has seen, what it has to look at, and its rounds."""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable

from sandfleet_operator.api.kube import (
    CODE_SANDBOX,
    NETWORK_POLICY,
    NODE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SANDBOX_POOL,
    SANDBOX_TEMPLATE,
    Json,
    Kind,
)
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.effects.carry import Carrier
from sandfleet_operator.effects.events import Events
from sandfleet_operator.effects.facts import Facts
from sandfleet_operator.effects.housekeeping import Housekeeper
from sandfleet_operator.effects.kubeapi import KubeApi
from sandfleet_operator.effects.reconcile import Greeter, Key, Reconciler
from sandfleet_operator.effects.services import Ask, ServiceWatch
from sandfleet_operator.effects.store import Store
from sandfleet_operator.effects.workqueue import WorkQueue
from sandfleet_operator.handlers.routes import keys_of
from sandfleet_operator.plan import names
from sandfleet_operator.plan.sandbox.actions import AskServices
from sandfleet_operator.plan.sandbox.observed import node_of

# What is watched, and which of them: an empty selector means all. Everything else is read when it is needed.
WATCHED: dict[Kind, str] = {
    CODE_SANDBOX: "",
    SANDBOX_TEMPLATE: "",
    SANDBOX_POOL: "",
    POD: names.SANDBOX_SELECTOR,
    PERSISTENT_VOLUME_CLAIM: names.SANDBOX_SELECTOR,
    NETWORK_POLICY: names.SANDBOX_SELECTOR,
    NODE: "",
}
WORKERS = 32
# Seconds between two looks at everything, whatever the watches said.
RESYNC_SECONDS = 300.0

_log = logging.getLogger(__name__)


class Operator:
    """`greet` proves executors, `ask` hears of their services; `leading` gives the fencing number, or None.

    `keys` is the JWKS to publish; `clock` is seconds since the epoch; `chance` gives numbers from 0 to below 1.
    """

    def __init__(
        self,
        kube: KubeApi,
        settings: Settings,
        *,
        greet: Greeter,
        ask: Ask,
        keys: Callable[[], str],
        leading: Callable[[], int | None],
        clock: Callable[[], float],
        chance: Callable[[], float] = random.random,
        instance: str = "sandfleet-operator",
        workers: int = WORKERS,
    ) -> None:
        self._kube = kube
        self._settings = settings
        self.store = Store()
        self.queue: WorkQueue[Key] = WorkQueue(self._work, workers)
        carrier = Carrier(kube, self.store, keys, leading)
        self._carrier = carrier
        self._facts = Facts(kube, self.store, clock)
        self._housekeeper = Housekeeper(kube, self.store, carrier, settings, busy=self._is_busy, clock=clock)
        events = Events(kube, clock, instance)
        self._services = ServiceWatch(
            ask, news=self._look_again, tell=events.tell_of_services, clock=clock, chance=chance
        )
        self._reconciler = Reconciler(
            self.store,
            carrier,
            self._facts,
            settings,
            greet=greet,
            tell=events.tell,
            services=self._services,
            wake=self.queue.add,
            paused=self._housekeeper.leaving.__contains__,
            clock=clock,
        )

    def saw(self, kind: Kind, deleted: bool, obj: Json) -> None:
        """What a watch shows. Nodes say the same again and again; the control plane's own namespace need not be ours."""
        places = self._settings.watch_namespaces
        if places and kind.namespaced and obj["metadata"].get("namespace") not in places:
            return
        known = self.store.get_like(kind, obj)
        news = self.store.remove(kind, obj) if deleted else self.store.put(kind, obj)
        if news and not (kind == NODE and known is not None and not deleted and node_of(known) == node_of(obj)):
            self._wake(kind, obj)
            if known is not None:
                # Whom it concerned before: a label that was taken away is theirs to put back.
                self._wake(kind, known)
        if deleted and kind == CODE_SANDBOX:
            self._reconciler.forget(obj["metadata"].get("uid", ""))

    async def run(self) -> None:
        """Begins with a look at everything, then works until it is cancelled. Raises KubeError when that look fails."""
        await self.resync()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.queue.run())
            group.create_task(self._services.run())
            group.create_task(self._resync_forever())

    async def close(self) -> None:
        await self._reconciler.close()

    async def resync(self) -> None:
        """Lists everything, and looks at everything: whatever a watch or an earlier operator has missed. Raises KubeError."""
        for kind, selector in WATCHED.items():
            for namespace in self._namespaces(kind):
                listing = await self._kube.list(kind, namespace, selector)
                for obj in self.store.replace(kind, listing.items, listing.resource_version, namespace):
                    self._wake(kind, obj)
                    if kind == CODE_SANDBOX and self.store.get_like(kind, obj) is None:
                        self._reconciler.forget(obj["metadata"].get("uid", ""))
        await self._facts.refresh()
        self._carrier.forget_keys()
        for kind in (SANDBOX_TEMPLATE, SANDBOX_POOL, CODE_SANDBOX):
            for obj in self.store.all(kind):
                self._wake(kind, obj)
        for policy in self.store.all(NETWORK_POLICY):
            # The last sandbox of its namespace may have gone while nobody looked.
            self.queue.add(Key("namespace", policy["metadata"]["namespace"]))

    def _namespaces(self, kind: Kind) -> Iterable[str | None]:
        return (self._settings.watch_namespaces or (None,)) if kind.namespaced else (None,)

    async def _resync_forever(self) -> None:
        while True:
            await asyncio.sleep(RESYNC_SECONDS)
            try:
                await self.resync()
                await self._housekeeper.remove_orphans()
            except Exception as error:  # noqa: BLE001 - the next one may succeed; the watches go on
                _log.warning("cannot look at everything: %s", error)

    async def _work(self, key: Key) -> float | None:
        if key.what == "sandbox":
            return await self._reconciler.sandbox(key)
        if key.what == "namespace":
            return await self._housekeeper.namespace(key.namespace)
        await self._housekeeper.template(key.namespace, key.name)
        return None

    def _look_again(self, whom: AskServices) -> None:
        self.queue.add(Key("sandbox", whom.namespace, whom.name))

    def _wake(self, kind: Kind, obj: Json) -> None:
        for key in keys_of(kind, obj, self.store):
            self.queue.add(key)

    def _is_busy(self, namespace: str) -> bool:
        return self.queue.is_busy(lambda key: key.what == "sandbox" and key.namespace == namespace)
