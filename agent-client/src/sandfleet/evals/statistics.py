"""Pass rates with intervals, and which of two policies is better. Pure: chance is an argument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb
from random import Random

RESAMPLES = 2000
_LOW, _HIGH = 0.025, 0.975
# Of the normal distribution, for 95 of 100.
_Z = 1.96


@dataclass(frozen=True, slots=True)
class Counted:
    """The samples of one task: how many there were, and how many were right."""

    samples: int
    right: int

    @property
    def rate(self) -> float:
        """The part that was right."""
        return self.right / self.samples if self.samples else 0.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean, with the interval that holds it in 95 of 100 cases."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a second policy differs from the first one on the same tasks.

    difference   of the pass rates, second minus first.
    gained, lost tasks that the second solves in most samples and the first does not, and the other way round.
    """

    difference: Estimate
    gained: tuple[str, ...]
    lost: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """Say which is better: only if the interval leaves out 0."""
        if self.difference.low > 0:
            return "better"
        return "worse" if self.difference.high < 0 else "no difference shown"


def pass_at(k: int, counted: Counted) -> float:
    """Estimate without bias the chance that at least one of k samples is right.

    1 - C(n - c, k) / C(n, k), from Chen et al., "Evaluating Large Language Models Trained on Code", 2021. NaN when
    there are fewer than k samples.
    """
    if counted.samples < k:
        return float("nan")
    return 1.0 - comb(counted.samples - counted.right, k) / comb(counted.samples, k)


def estimate(values: Sequence[float], chance: Random) -> Estimate:
    """Return the mean over tasks, with its bootstrap interval (Efron 1979, percentiles): tasks are drawn anew.

    Where all tasks agree on 0 or 1, drawing them anew shows no doubt; then it is Wilson's interval (1927) of as many
    coins as there are tasks.
    """
    mean = sum(values) / len(values)
    if set(values) in ({0.0}, {1.0}):
        doubt = _Z**2 / (len(values) + _Z**2)
        return Estimate(mean, max(0.0, mean - doubt), min(1.0, mean + doubt))
    means = sorted(sum(chance.choices(values, k=len(values))) / len(values) for _ in range(RESAMPLES))
    return Estimate(mean, means[int(_LOW * RESAMPLES)], means[int(_HIGH * RESAMPLES) - 1])


def rate(counts: Mapping[str, Counted], k: int, chance: Random) -> Estimate | None:
    """Estimate pass@k over the tasks that have k samples; None when there are none."""
    values = [pass_at(k, counted) for counted in counts.values() if counted.samples >= k]
    return estimate(values, chance) if values else None


def compare(first: Mapping[str, Counted], second: Mapping[str, Counted], chance: Random) -> Comparison | None:
    """Compare two policies on the tasks that both have samples of; None when there are none."""
    both = sorted(key for key in first if first[key].samples and second.get(key, Counted(0, 0)).samples)
    if not both:
        return None
    differences = [second[key].rate - first[key].rate for key in both]
    gained = tuple(key for key in both if first[key].rate < 0.5 <= second[key].rate)
    lost = tuple(key for key in both if second[key].rate < 0.5 <= first[key].rate)
    return Comparison(estimate(differences, chance), gained, lost)
