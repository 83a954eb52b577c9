"""What a played load says of each team: how long it waited, what it held, and how equal the shares were."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simulation.replay import Played

# Shares are looked at so many times in a load.
SAMPLES = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamMeasures:
    """Waits are in seconds, of claims that wait at the end until then; None where there was no claim."""

    claims: int
    served: int
    # Reason → claims.
    refused: dict[str, int]
    # At the end.
    still_waiting: int
    p50: float | None
    p99: float | None
    longest: float | None
    # Sandboxes, on average over the load.
    held: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    teams: dict[str, TeamMeasures]
    # Jain's index of what the teams held, each beside its max-min fair share, on average over the times at which claims
    # waited; 1 is fair. None: there was no such time.
    jain: float | None
    # The most sandboxes that served claims at one time.
    peak: int


def measure(played: Played) -> Measures:
    return Measures(
        teams={name: _team(played, name) for name in played.teams},
        jain=_fairness(played),
        peak=played.peak,
    )


def quantile(ordered: Sequence[float], part: float) -> float | None:
    """The least value that `part` (0 to 1) of them do not exceed."""
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)] if ordered else None


def jain(shares: Sequence[float]) -> float:
    """Jain, Chiu and Hawe (1984): 1 where all shares are equal, 1/n where one has all. 1 for none."""
    total = sum(shares)
    return total * total / (len(shares) * sum(one * one for one in shares)) if total else 1.0


def sampled(series: Sequence[tuple[float, int]], times: Sequence[float]) -> list[int]:
    """The value at each of the times, which ascend."""
    found, place = [], 0
    for when in times:
        while place + 1 < len(series) and series[place + 1][0] <= when:
            place += 1
        found.append(series[place][1])
    return found


def sample_times(seconds: float) -> list[float]:
    return [seconds * (number + 0.5) / SAMPLES for number in range(SAMPLES)]


def _team(played: Played, name: str) -> TeamMeasures:
    record = played.teams[name]
    waits = sorted([*record.waits, *record.unserved])
    held = sampled(record.held, sample_times(played.seconds))
    return TeamMeasures(
        claims=len(waits) + len(record.refused),
        served=len(record.waits),
        refused=dict(Counter(record.refused)),
        still_waiting=len(record.unserved),
        p50=quantile(waits, 0.5),
        p99=quantile(waits, 0.99),
        longest=waits[-1] if waits else None,
        held=sum(held) / len(held),
    )


def max_min(capacity: float, demands: Mapping[str, float], weights: Mapping[str, float]) -> dict[str, float]:
    """Weighted max-min fair shares: what a team does not need goes to the others, in proportion to their weights."""
    shares, left = dict.fromkeys(demands, 0.0), set(demands)
    while left and capacity > 1e-9:
        each = capacity / sum(weights[name] for name in left)
        sated = {name for name in left if demands[name] - shares[name] <= each * weights[name]}
        for name in sated or left:
            more = demands[name] - shares[name] if sated else each * weights[name]
            shares[name] += more
            capacity -= more
        left = left - sated if sated else set()
    return shares


def _fairness(played: Played) -> float | None:
    times = sample_times(played.seconds)
    held = {name: sampled(one.held, times) for name, one in played.teams.items()}
    waiting = {name: sampled(one.waiting, times) for name, one in played.teams.items()}
    weights = {name: one.weight for name, one in played.teams.items()}
    indexes = []
    for number in range(len(times)):
        demands = {name: float(held[name][number] + waiting[name][number]) for name in held}
        served = sum(held[name][number] for name in held)
        if served and sum(demands.values()) > served:
            fair = max_min(served, demands, weights)
            indexes.append(jain([held[name][number] / share for name, share in fair.items() if share]))
    return sum(indexes) / len(indexes) if indexes else None
