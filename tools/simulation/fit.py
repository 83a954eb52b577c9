"""The smallest fleet and quotas under which every team's waits stay within a bound."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sandfleet_operator.api.kinds.queue import QueueSpec
from sandfleet_operator.plan.scheduler.queues.fair_queue import Policy

from simulation.load import Load, Session
from simulation.measures import measure
from simulation.replay import replay

MOST_SANDBOXES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Each number is the smallest with which the bound is kept, given those before it."""

    sandboxes: int
    warm: int
    # Queue → sandboxes of nominal quota.
    quotas: dict[str, int]


def fit(load: Load, sessions: Sequence[Session], policy: Policy, p99: float) -> Fit | None:
    """Every team's p99 wait is at most `p99` seconds; None where no size of the fleet can do that."""

    def keeps(one: Load) -> bool:
        teams = measure(replay(one, sessions, policy)).teams.values()
        return not any(team.refused for team in teams) and all(team.p99 is None or team.p99 <= p99 for team in teams)

    # Without quotas and with all sandboxes warm: what fewer of them may cost comes afterwards.
    free = replace(load, queues={name: _with_quota(spec, None) for name, spec in load.queues.items()})
    sandboxes = smallest(1, MOST_SANDBOXES, lambda many: keeps(_sized(free, many, many)))
    if sandboxes is None:
        return None
    warm = smallest(0, sandboxes, lambda many: keeps(_sized(free, sandboxes, many)))
    assert warm is not None, "all sandboxes warm was enough"
    fitted, quotas = _sized(free, sandboxes, warm), dict[str, int]()
    for name in load.queues:
        quota = smallest(0, sandboxes, lambda many, base=fitted, name=name: keeps(_quota(base, name, many)))  # type: ignore[misc]
        quotas[name] = sandboxes if quota is None else quota
        fitted = _quota(fitted, name, quotas[name])
    return Fit(sandboxes=sandboxes, warm=warm, quotas=quotas)


def smallest(least: int, most: int, holds: Callable[[int], bool]) -> int | None:
    """The smallest number for which it holds, by doubling and halving: it must hold for all above that as well."""
    step, high = 1, least
    while not holds(high):
        if high >= most:
            return None
        least, high, step = high + 1, min(most, high + step), step * 2
    while least < high:
        middle = (least + high) // 2
        least, high = (least, middle) if holds(middle) else (middle + 1, high)
    return high


def _sized(load: Load, sandboxes: int, warm: int) -> Load:
    return replace(load, fleet=replace(load.fleet, sandboxes=sandboxes, warm=warm))


def _with_quota(spec: QueueSpec, sandboxes: int | None) -> QueueSpec:
    return replace(spec, nominal=replace(spec.nominal, sandboxes=sandboxes))


def _quota(load: Load, name: str, sandboxes: int) -> Load:
    return replace(load, queues={**load.queues, name: _with_quota(load.queues[name], sandboxes)})
