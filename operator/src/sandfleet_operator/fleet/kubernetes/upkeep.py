"""What has no event of its own: pools as they are now, keys of namespaces, nodes, unhealthy warm pods."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

from sandfleet_operator.api.conditions import PoolReason, Reason
from sandfleet_operator.api.kube import CONFIG_MAP, NODE, POD, SANDBOX_POOL, Json, KubeError, NotFound, Ref
from sandfleet_operator.api.reasons import EndReason, QueueReason
from sandfleet_operator.api.values import Hold, State
from sandfleet_operator.cluster.kube_api import KubeApi
from sandfleet_operator.cluster.node_facts import NodeFacts
from sandfleet_operator.cluster.store import Store
from sandfleet_operator.fleet.driver import FleetDriver
from sandfleet_operator.fleet.kubernetes.catalog import COLD, Catalog, Recipe, key_of
from sandfleet_operator.fleet.kubernetes.pool_status import PoolStatuses
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.sandbox.observed import node_of, pod_of
from sandfleet_operator.plan.sandbox.pod import start_trouble
from sandfleet_operator.plan.scheduler.inventory import Inventory
from sandfleet_operator.plan.scheduler.pool_queues import PoolSummary
from sandfleet_operator.plan.scheduler.starts.shares import STARTS_PER_NODE

# Seconds.
LOOK_EVERY = 1.0
# What nodes can do changes seldom.
LEARN_EVERY = 60.0
SOON = 0.05
# So long may a warm pod not be ready before another one takes its place.
UNHEALTHY_SECONDS = 15.0
# A pod that finds no node for so long does not only wait for its volume, and one whose container is created for so long
# waits for its image.
SETTLED_SECONDS, PULLING_SECONDS = 3.0, 10.0
# What the pods that are being started may say more about.
STARTING = {PoolReason.FILLING.value, PoolReason.STARTS_FAIL.value}
# Why a pool is closed until then.
TAKING_OVER = QueueReason.TAKING_OVER.value

_LOG = logging.getLogger(__name__)


class Upkeep:
    def __init__(
        self,
        kube: KubeApi,
        store: Store,
        catalog: Catalog,
        fleet: FleetDriver,
        *,
        facts: NodeFacts,
        statuses: PoolStatuses,
        clock: Callable[[], float],
    ) -> None:
        self._kube = kube
        self._store = store
        self._catalog = catalog
        self._fleet = fleet
        self._facts = facts
        self._learned = clock()
        self._sizes = statuses.sizes
        self._statuses = statuses
        self._clock = clock
        self._unready = UnreadyPods(fleet.scheduler.inventory)
        # Pool → what kept its starts from coming about.
        self._troubles: dict[str, tuple[str, str]] = {}
        self._due = False
        # Nothing is started or handed out before all that is there is known.
        self._held = True

    async def begin(self) -> None:
        """Before anything is decided."""
        await self._look_for_keys()
        self.count_nodes()
        self.look_at_pools()

    def open(self) -> None:
        """From now on pools are filled and handed out from."""
        self._held = False
        self.look_at_pools()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            await self._look_for_keys()
            if self._clock() - self._learned >= LEARN_EVERY:
                self._learned = self._clock()
                await self._facts.refresh()
            self._forget_idle()
            self.look_at_pools()
            self._discard_unhealthy()
            await self._statuses.write(self.summaries())

    def saw_pod(self, obj: Json, *, gone: bool) -> None:
        self._unready.saw(obj, gone=gone)

    def look_soon(self) -> None:
        """Something has changed: of many changes at once only the last one counts."""
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_later(SOON, self.look_at_pools)

    def look_at_pools(self) -> None:
        self._due = False
        scheduler, now = self._fleet.scheduler, self._clock()
        recipes = {recipe.name: recipe for recipe in self._catalog.recipes()}
        for recipe in recipes.values():
            pool = self._catalog.pool_of(recipe)
            if self._held:
                pool = replace(pool, closed=TAKING_OVER)
            else:
                pool = replace(pool, target_warm=self._sizes.target(recipe, scheduler, now).warm)
            self._fleet.do(scheduler.set_pool(pool, now))
        for pool in scheduler.pools:
            if pool.name not in recipes:
                self._fleet.do(scheduler.remove_pool(pool.name, now))
                self._sizes.forget(pool.name)
                self._troubles.pop(pool.name, None)

    def _forget_idle(self) -> None:
        """Not in each look at the pools: a pool is made just before its first claim asks, while it is still idle."""
        scheduler = self._fleet.scheduler
        for pool in scheduler.pools:
            if COLD in pool.name and scheduler.summary(pool.name).is_idle:
                self._catalog.forget(pool.name)

    def summaries(self) -> list[tuple[Recipe, PoolSummary]]:
        """How full each pool is and why, as the fleet knows it, or as Kubernetes' scheduler and kubelets say."""
        scheduler = self._fleet.scheduler
        known = [one for one in self._catalog.recipes() if scheduler.pool(one.name) is not None]
        return [(one, self.summary(one.name)) for one in known]

    def summary(self, pool: str) -> PoolSummary:
        level = self._fleet.scheduler.summary(pool)
        found = next(self._start_troubles(pool), None) if level.reason in STARTING else None
        if found is None and level.reason == PoolReason.STARTS_FAIL.value:
            # Given up for its time, and not tried again yet: what was said of it says more.
            found = self._troubles.get(pool)
        if found is None:
            self._troubles.pop(pool, None)
            return level
        self._troubles[pool] = found
        return replace(level, reason=found[0], message=found[1])

    def _start_troubles(self, pool: str) -> Iterator[tuple[str, str]]:
        """Reasons and messages."""
        now = self._clock()
        for sandbox in self._fleet.scheduler.inventory.of_pool(pool, State.STARTING):
            namespace, _, name = sandbox.sandbox_uid.partition("/")
            obj = self._store.get(Ref(POD, namespace, name))
            found = start_trouble(pod_of(obj)) if obj else None
            stands = now - max(sandbox.started, sandbox.clock)
            # The scheduler looks at a pod before its volume is made.
            if found and (found.reason is not Reason.UNSCHEDULABLE or stands >= SETTLED_SECONDS):
                yield found.reason.value, found.message
            elif found is None and sandbox.hold is Hold.IMAGE_PULLING and stands >= PULLING_SECONDS:
                yield PoolReason.IMAGE_PULLING.value, f"the node of pod {name} pulls its image"

    def count_nodes(self) -> None:
        ready = sum(1 for obj in self._store.all(NODE) if node_of(obj).ready)
        scheduler = self._fleet.scheduler
        scheduler.capacity.max_starting = max(1, min(scheduler.limits.max_starting, STARTS_PER_NODE * ready))

    async def _look_for_keys(self) -> None:
        """Nothing is started where they are not."""
        wanted = {obj["metadata"]["namespace"] for obj in self._store.all(SANDBOX_POOL)}
        wanted |= {recipe.namespace for recipe in self._catalog.recipes()}
        for namespace in wanted - self._catalog.keyed:
            try:
                await self._kube.get(Ref(CONFIG_MAP, namespace, names.KEYS_CONFIG_MAP))
            except NotFound:
                continue
            except KubeError as error:
                _LOG.warning("cannot look for keys: %s", error)
                continue
            self._catalog.keyed.add(namespace)

    def _discard_unhealthy(self) -> None:
        """Warm pods whose executor the kubelet does not reach any more, or whose node is silent."""
        now = self._clock()
        for sandbox_id in self._unready.longer_than(UNHEALTHY_SECONDS, now):
            self._fleet.do(self._fleet.scheduler.discard(sandbox_id, EndReason.UNHEALTHY.value, now))


class UnreadyPods:
    """Warm pods that are not ready, and since when they are both: kept from the watch, since there are thousands."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._pods: set[str] = set()
        self._since: dict[str, float] = {}

    def saw(self, obj: Json, *, gone: bool) -> None:
        if gone or pod_of(obj).ready:
            self._pods.discard(key_of(obj))
        else:
            self._pods.add(key_of(obj))

    def longer_than(self, seconds: float, now: float) -> list[str]:
        """Ids of the sandboxes. To be asked every second or so."""
        there = map(self._inventory.of_incarnation, self._pods)
        warm = [one.sandbox_id for one in there if one is not None and one.state is State.WARM]
        self._since = {name: self._since.get(name, now) for name in warm}
        return [name for name, since in self._since.items() if now - since >= seconds]
