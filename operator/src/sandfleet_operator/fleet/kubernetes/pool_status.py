"""How many sandboxes each pool keeps warm, and each SandboxPool's status, which only the fleet writes."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from sandfleet_operator.api.conditions import PoolReason
from sandfleet_operator.api.kinds.meta import Condition
from sandfleet_operator.api.kinds.pool import PoolStatus, pool_status_json
from sandfleet_operator.api.kube import SANDBOX_POOL, Json, KubeError, Ref
from sandfleet_operator.cluster.kube_api import KubeApi
from sandfleet_operator.fleet.kubernetes.catalog import Recipe
from sandfleet_operator.plan.pods.podspec import warm_selector
from sandfleet_operator.plan.scheduler.pool_queues import PoolSummary
from sandfleet_operator.plan.scheduler.scheduler import Scheduler
from sandfleet_operator.plan.scheduler.starts.autoscale import Bounds, Demand, Target, arrived, target


@dataclass(slots=True)
class _Seen:
    demand: Demand
    # Of the scheduler's count.
    arrivals: int
    last: Target


class PoolSizes:
    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def target(self, recipe: Recipe, scheduler: Scheduler, now: float) -> Target:
        """To be asked every second or so: what has arrived since the last time counts as of now."""
        spec = recipe.spec
        bounds = Bounds(least=spec.replicas, most=spec.max_warm, hit_rate=spec.target_hit_rate)
        if scheduler.pool(recipe.name) is None:
            return Target(warm=spec.replicas, rate=0.0)
        level = scheduler.summary(recipe.name)
        known = self._seen.get(recipe.name) or _Seen(Demand(since=now), 0, Target(warm=spec.replicas, rate=0.0))
        demand = known.demand
        if level.arrivals > known.arrivals:
            demand = arrived(demand, now, level.arrivals - known.arrivals)
        demand, found = target(demand, now, bounds, level.start_seconds)
        self._seen[recipe.name] = _Seen(demand, level.arrivals, found)
        return found

    def last(self, pool: str) -> Target | None:
        seen = self._seen.get(pool)
        return seen.last if seen else None

    def forget(self, pool: str) -> None:
        self._seen.pop(pool, None)


READY = "Ready"
MAX_MESSAGE = 500
# Seconds between two statuses of a pool that differ in numbers alone, while no claim waits.
QUIET_SECONDS = 3.0
# What the level's message is about; all else is said of the template.
STARTS = {
    PoolReason.STARTS_FAIL.value,
    PoolReason.UNSCHEDULABLE.value,
    PoolReason.SCHEDULING_GATED.value,
    PoolReason.IMAGE_PULLING.value,
    PoolReason.IMAGE_PULL_FAILED.value,
    PoolReason.CONTAINER_CREATE_FAILED.value,
    PoolReason.SECRET_NOT_FOUND.value,
    PoolReason.QUOTA_EXCEEDED.value,
    PoolReason.CREATION_FORBIDDEN.value,
    PoolReason.API_SERVER_FAILED.value,
}

_LOG = logging.getLogger(__name__)


class PoolStatuses:
    """`leading` gives the fencing number, None when leadership may be over; `wall_clock` is the epoch's."""

    def __init__(
        self, kube: KubeApi, sizes: PoolSizes, leading: Callable[[], int | None], wall_clock: Callable[[], float]
    ) -> None:
        self._kube = kube
        self.sizes = sizes
        self._leading = leading
        self._clock = wall_clock
        # What was written, and when.
        self._written: dict[str, tuple[PoolStatus, Json, float]] = {}

    async def write(self, pools: Iterable[tuple[Recipe, PoolSummary]]) -> None:
        """What has changed, and numbers alone not too often: the API server has more to do with sandboxes.

        To be called every second or so.
        """
        for recipe, level in pools:
            if not recipe.pool or recipe.owner is None:
                continue
            known = self._written.get(recipe.name)
            status = self._status(recipe, level, known[0].conditions if known else ())
            said = pool_status_json(status)
            now = self._clock()
            if known is not None and (known[1] == said or _may_wait(known[0], status, now - known[2])):
                continue
            if self._leading() is None:
                return
            try:
                await self._kube.merge(Ref(SANDBOX_POOL, recipe.namespace, recipe.pool), {"status": said}, "status")
            except KubeError as error:
                _LOG.info("cannot write the status of pool %s: %s", recipe.name, error)
            else:
                self._written[recipe.name] = (status, said, now)

    def _status(self, recipe: Recipe, level: PoolSummary, before: tuple[Condition, ...]) -> PoolStatus:
        assert recipe.owner is not None
        wanted = self.sizes.last(recipe.name)
        target = wanted.warm if wanted else recipe.spec.replicas
        # A closed pool hands nothing out, even while it has its number of warm sandboxes.
        reason = recipe.closed or _reason(level, capped=wanted is not None and wanted.capped)
        good = reason in {PoolReason.FILLED.value, PoolReason.REPLACING.value}
        ready = Condition(
            type=READY,
            status="True" if good else "False",
            reason=reason,
            message=(level.message if reason in STARTS else recipe.why)[:MAX_MESSAGE],
            changed=self._clock(),
            observed_generation=recipe.owner.generation,
        )
        old = next((one for one in before if one.type == READY), None)
        if old is not None and old.status == ready.status:
            ready = replace(ready, changed=old.changed)
        return PoolStatus(
            conditions=(ready,),
            observed_generation=recipe.owner.generation,
            target_warm=target,
            selector=warm_selector(recipe.pool),
            warm=level.warm,
            starting=level.starting,
            claimed=level.claimed,
            waiting=level.waiting,
            hit_rate=level.hit_rate,
        )


def _may_wait(before: PoolStatus, status: PoolStatus, since: float) -> bool:
    """Whether only numbers differ from what was written so many seconds ago, and no claim waits."""
    told = (before.conditions, before.observed_generation, before.target_warm)
    same = told == (status.conditions, status.observed_generation, status.target_warm)
    return same and not (before.waiting or status.waiting) and 0 <= since < QUIET_SECONDS


def _reason(level: PoolSummary, *, capped: bool) -> str:
    if level.reason:
        return level.reason
    if level.stale:
        return PoolReason.REPLACING.value
    return PoolReason.MAX_WARM_REACHED.value if capped else PoolReason.FILLED.value
