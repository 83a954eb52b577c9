"""One operator: the store of observed objects, the queue of keys to reconcile, the reconciler and the housekeeping."""

import asyncio
import logging
import random
from collections.abc import Callable
from functools import partial

from sandfleet_operator.api.kube import (
    CODE_SANDBOX,
    CONFIG_MAP,
    NETWORK_POLICY,
    NODE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SANDBOX_POOL,
    SANDBOX_QUEUE,
    SANDBOX_TEMPLATE,
    Json,
    Kind,
    Ref,
)
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.cluster.events import Events
from sandfleet_operator.cluster.kube_api import KubeApi
from sandfleet_operator.cluster.node_facts import NodeFacts
from sandfleet_operator.cluster.reflector import Keep, Reflectors, relist, take_in
from sandfleet_operator.cluster.store import Counts, Owned, Store
from sandfleet_operator.cluster.tasks import in_turns
from sandfleet_operator.cluster.workqueue import WorkQueue
from sandfleet_operator.executors.services import Ask, ServiceWatch
from sandfleet_operator.plan.audit import Record
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.openings import is_ours, kept
from sandfleet_operator.plan.pods.podspec import kept_keys
from sandfleet_operator.plan.sandbox.actions import AskServices
from sandfleet_operator.plan.sandbox.observed import node_of
from sandfleet_operator.reconciler.apply import Applier
from sandfleet_operator.reconciler.housekeeping import Housekeeper
from sandfleet_operator.reconciler.kopf_lists import KopfLists
from sandfleet_operator.reconciler.reconcile import Greeter, Key, Reconciler, Tell
from sandfleet_operator.reconciler.turns import StartTurns, ready_nodes
from sandfleet_operator.reconciler.waking import Waker
from sandfleet_operator.telemetry import tracing
from sandfleet_operator.telemetry.control_plane import (
    ReconcileMetrics,
    condition_gauge,
    conditions_of,
    work_queue_gauge,
)
from sandfleet_operator.telemetry.metrics import Family

# Beside CodeSandboxes, which Kopf watches: the watched kinds and their selectors; an empty selector means all. Other
# kinds are read when they are needed.
WATCHED: dict[Kind, str] = {
    SANDBOX_TEMPLATE: "",
    SANDBOX_POOL: "",
    SANDBOX_QUEUE: "",
    POD: names.SANDBOX_SELECTOR,
    PERSISTENT_VOLUME_CLAIM: names.SANDBOX_SELECTOR,
    # Those of others, too: they may open a sandbox.
    NETWORK_POLICY: "",
    NODE: "",
    CONFIG_MAP: "",
}
# Of ConfigMaps, the one with the keys: without it no pod of its namespace starts.
FIELDS: dict[Kind, str] = {CONFIG_MAP: f"metadata.name={names.KEYS_CONFIG_MAP}"}
# What is remembered of an object, where that is less than all of it.
KEPT: dict[Kind, Keep] = {NETWORK_POLICY: kept, CONFIG_MAP: kept_keys}
WORKERS = 32
# Seconds between two resyncs, which list and reconcile all objects.
RESYNC_SECONDS = 300.0
# Objects whose keys a resync adds before others get their turn.
WOKEN = 200

_log = logging.getLogger(__name__)


class Operator:
    """Wires the parts of an operator together.

    `greet` verifies executors; `ask` lists their services; `leading` gives the fencing number, or None; `keys` is the
    JWKS to publish; `clock` is seconds since the epoch; `chance` gives numbers from 0 to below 1; `audit` writes
    records; `authority` gives the public key that signs the keys.
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
        audit: Callable[[Record], None] = lambda _: None,
        authority: Callable[[], str] = lambda: "",
        workers: int = WORKERS,
    ) -> None:
        self._kube, self._settings, self.rounds = kube, settings, ReconcileMetrics()
        self._conditions, self._owned = Counts(conditions_of), Owned()
        self._ready = Counts(ready_nodes)
        self._turns = StartTurns(lambda: dict(self._ready.items()).get("ready", 0), self._take_turn)
        views = {CODE_SANDBOX: (self._conditions,), POD: (self._owned, self._turns), NODE: (self._ready,)}
        self.store = Store(views=views)
        places, saw = settings.watch_namespaces, self._changed
        self._reflectors = Reflectors(kube, self.store, WATCHED, saw, namespaces=places, kept=KEPT, fields=FIELDS)
        self._lists = KopfLists(self._list_sandboxes)
        self.queue: WorkQueue[Key] = WorkQueue(self._work, workers, self.rounds)
        self._waker = Waker(self.store, self.queue)
        self._applier = Applier(kube, self.store, keys, leading, audit=audit, authority=authority)
        self._facts, events = NodeFacts(kube, self.store, clock), Events(kube, clock, instance)
        self._housekeeper = Housekeeper(kube, self.store, self._applier, settings, busy=self._is_busy, clock=clock)
        told = events.tell_of_services
        self._services = ServiceWatch(ask, news=self._look_again, tell=told, clock=clock, chance=chance)
        self._reconciler = self._made_reconciler(greet, events.tell, clock)

    def _made_reconciler(self, greet: Greeter, tell: Tell, clock: Callable[[], float]) -> Reconciler:
        return Reconciler(
            self.store,
            self._applier,
            self._facts,
            self._settings,
            owned=self._owned.of,
            greet=greet,
            tell=tell,
            services=self._services,
            turns=self._turns,
            wake=self.queue.add,
            paused=self._housekeeper.leaving.__contains__,
            clock=clock,
        )

    def saw(self, deleted: bool, obj: Json, *, listed: bool = False) -> None:
        """Kopf has shown a CodeSandbox. Ignores namespaces that are not ours to watch.

        `listed`: in a list. Kopf lists again where its watch could not go on, and does not say what was deleted
        meanwhile; so this makes a list of our own.
        """
        places = self._settings.watch_namespaces
        if places and obj["metadata"].get("namespace") not in places:
            return
        if listed:
            self._lists.note()
        take = partial(take_in, self.store, CODE_SANDBOX, obj, self._changed, gone=deleted)
        self.store.intake.take(CODE_SANDBOX, obj, take)

    def families(self) -> list[Family]:
        """What it measures of its work, and how its sandboxes are."""
        return [
            *self.rounds.families(),
            work_queue_gauge(len(self.queue)),
            condition_gauge(self._conditions.items()),
        ]

    async def follow(self) -> None:
        """Keeps the store fresh until it is cancelled, also while another operator leads."""
        await self._reflectors.follow()

    async def run(self) -> None:
        """Starts with a resync, then works until cancelled. Raises KubeError if the first resync fails."""
        await self.resync()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.queue.run())
            group.create_task(self._services.run())
            group.create_task(self._resync_forever())
            group.create_task(self._lists.run())

    async def close(self) -> None:
        self._waker.close()
        await self._reconciler.close()

    async def resync(self) -> None:
        """Lists and reconciles all watched objects: a watch or an earlier operator may have missed one.

        Raises KubeError.
        """
        await self._list_sandboxes()
        await self._reflectors.refresh()
        await self._facts.refresh()
        self._applier.revisions.forget()
        for kind in (SANDBOX_TEMPLATE, SANDBOX_POOL, CODE_SANDBOX):
            async for obj in in_turns(self.store.all(kind), WOKEN):
                self.store.intake.take(kind, obj, partial(self._waker.wake_behind, kind, obj))
        for policy in filter(is_ours, self.store.all(NETWORK_POLICY)):
            # The last sandbox of its namespace may have been deleted while no operator was running.
            self.queue.add(Key("namespace", policy["metadata"]["namespace"]))

    async def _list_sandboxes(self) -> None:
        for namespace in self._settings.watch_namespaces or (None,):
            await relist(self._kube, self.store, CODE_SANDBOX, self._changed, namespace=namespace)

    def _changed(self, kind: Kind, gone: bool, obj: Json, before: Json | None) -> None:
        if gone or before is None or not _is_same(kind, before, obj):
            self._wake(kind, obj)
            if before is not None:
                # Wake the sandboxes that the earlier version named, too: they restore a label that was removed.
                self._wake(kind, before)
        if gone and kind == CODE_SANDBOX:
            self._reconciler.forget(obj["metadata"].get("uid", ""))
            self._turns.give_back(obj["metadata"].get("namespace", ""), obj["metadata"].get("uid", ""))

    async def _resync_forever(self) -> None:
        while True:
            await asyncio.sleep(RESYNC_SECONDS)
            try:
                await self.resync()
                await self._housekeeper.remove_orphans()
                await self._housekeeper.remove_revisions()
            except Exception as error:  # noqa: BLE001 - the next resync may succeed; the watches go on
                _log.warning("cannot resync: %s", error)

    async def _work(self, key: Key) -> float | None:
        if key.what == "sandbox":
            with tracing.reconcile(key.namespace, key.name, self._trace_of(key)):
                return await self._reconciler.sandbox(key)
        if key.what == "namespace":
            return await self._housekeeper.namespace(key.namespace)
        await self._housekeeper.template(key.namespace, key.name)
        return None

    def _trace_of(self, key: Key) -> str:
        found = self.store.get(Ref(CODE_SANDBOX, key.namespace, key.name)) or {"metadata": {}}
        return str((found["metadata"].get("annotations") or {}).get(names.TRACEPARENT, ""))

    def _take_turn(self, namespace: str, name: str) -> None:
        self.queue.add(Key("sandbox", namespace, name))

    def _look_again(self, whom: AskServices) -> None:
        self.queue.add(Key("sandbox", whom.namespace, whom.name))

    def _wake(self, kind: Kind, obj: Json) -> None:
        self.store.intake.take(kind, obj, partial(self._waker.wake, kind, obj))

    def _is_busy(self, namespace: str) -> bool:
        return self.queue.is_busy(lambda key: key.what == "sandbox" and key.namespace == namespace)


def _is_same(kind: Kind, known: Json, obj: Json) -> bool:
    """Whether the new version differs in nothing that a decision depends on."""
    if kind == NODE:
        return node_of(known) == node_of(obj)
    if kind == SANDBOX_QUEUE:
        # That it is there is all that counts here; the fleet decides by its spec.
        return True
    return kind == NETWORK_POLICY and not is_ours(obj) and not is_ours(known) and known["spec"] == obj["spec"]
