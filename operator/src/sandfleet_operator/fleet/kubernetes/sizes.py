"""How many sandboxes each pool is to keep warm now: what its spec says, or what the claims that arrive ask for."""

from dataclasses import dataclass

from sandfleet_operator.fleet.kubernetes.catalog import Recipe
from sandfleet_operator.plan.autoscale import Bounds, Demand, Target, arrived, target
from sandfleet_operator.plan.engine import Engine


@dataclass(slots=True)
class _Seen:
    demand: Demand
    # Of the engine's count.
    arrivals: int
    last: Target


class Sizes:
    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def target(self, recipe: Recipe, engine: Engine, now: float) -> Target:
        """To be asked every second or so: what has arrived since the last time counts as of now."""
        spec = recipe.spec
        bounds = Bounds(least=spec.size, most=spec.max_warm, hit_rate=spec.target_hit_rate)
        if engine.pool(recipe.name) is None:
            return Target(warm=spec.size, rate=0.0)
        level = engine.level(recipe.name)
        known = self._seen.get(recipe.name) or _Seen(Demand(since=now), 0, Target(warm=spec.size, rate=0.0))
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
