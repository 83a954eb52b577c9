"""The status of each SandboxPool, written when it has changed; the fleet is its only writer."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace

from sandfleet_operator.api.conditions import PoolReason
from sandfleet_operator.api.kube import SANDBOX_POOL, Json, KubeError, Ref
from sandfleet_operator.api.parse import pool_status_json
from sandfleet_operator.api.resources import Condition, PoolStatus
from sandfleet_operator.effects.kubeapi import KubeApi
from sandfleet_operator.fleet.kubernetes.catalog import Recipe
from sandfleet_operator.fleet.kubernetes.sizes import Sizes
from sandfleet_operator.plan.lines import Level

READY = "Ready"
MAX_MESSAGE = 500
# What the level's message is about; all else is said of the template.
STARTS = {
    PoolReason.STARTS_FAIL.value,
    PoolReason.UNSCHEDULABLE.value,
    PoolReason.IMAGE_PULL_FAILED.value,
    PoolReason.CONTAINER_CREATE_FAILED.value,
    PoolReason.SECRET_NOT_FOUND.value,
}

_LOG = logging.getLogger(__name__)


class Statuses:
    """`leading` gives the fencing number, None when leadership may be over; `wall_clock` is the epoch's."""

    def __init__(
        self, kube: KubeApi, sizes: Sizes, leading: Callable[[], int | None], wall_clock: Callable[[], float]
    ) -> None:
        self._kube = kube
        self._sizes = sizes
        self._leading = leading
        self._clock = wall_clock
        self._written: dict[str, tuple[PoolStatus, Json]] = {}

    async def write(self, pools: Iterable[tuple[Recipe, Level]]) -> None:
        """Once a second at most, or the API server has more to do with numbers than with sandboxes."""
        for recipe, level in pools:
            if not recipe.pool or recipe.owner is None:
                continue
            known = self._written.get(recipe.name)
            status = self._status(recipe, level, known[0].conditions if known else ())
            said = pool_status_json(status)
            if known is not None and known[1] == said:
                continue
            if self._leading() is None:
                return
            try:
                await self._kube.merge(Ref(SANDBOX_POOL, recipe.namespace, recipe.pool), {"status": said}, "status")
            except KubeError as error:
                _LOG.info("cannot write the status of pool %s: %s", recipe.name, error)
            else:
                self._written[recipe.name] = (status, said)

    def _status(self, recipe: Recipe, level: Level, before: tuple[Condition, ...]) -> PoolStatus:
        assert recipe.owner is not None
        wanted = self._sizes.last(recipe.name)
        target = wanted.warm if wanted else recipe.spec.size
        reason = _reason(level, capped=wanted is not None and wanted.capped)
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
            warm=level.warm,
            starting=level.starting,
            claimed=level.claimed,
            waiting=level.waiting,
            hit_rate=level.hit_rate,
        )


def _reason(level: Level, *, capped: bool) -> str:
    if level.reason:
        return level.reason
    if level.stale:
        return PoolReason.REPLACING.value
    return PoolReason.MAX_WARM_REACHED.value if capped else PoolReason.FILLED.value
