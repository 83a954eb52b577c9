"""What an evaluation has found: results by policy, task and sample, and the figures made of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

from sandfleet.driver.result import Blame, TaskEnd, TaskResult
from sandfleet.evals import statistics
from sandfleet.evals.statistics import Comparison, Counted, Estimate

# The same results give the same intervals.
_SEED = 20_260_101


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample: which it is, and how it ended."""

    policy: str
    task: str
    number: int
    result: TaskResult

    @property
    def is_judged(self) -> bool:
        """Whether it says something about the policy: failures of platform and program do not."""
        return self.result.blame in {Blame.NONE, Blame.AGENT}


@dataclass(frozen=True, slots=True)
class Scored:
    """One policy: pass@k for each k, by task and in all, and what the samples have cost."""

    policy: str
    counts: Mapping[str, Counted]
    pass_at: Mapping[int, Estimate]
    ends: Mapping[str, int]
    seconds: float
    tokens: int
    unjudged: int


@dataclass(frozen=True, slots=True)
class Evaluation:
    """All samples of an evaluation."""

    tasks: tuple[str, ...]
    policies: tuple[str, ...]
    samples: tuple[Sample, ...]

    def of(self, policy: str) -> tuple[Sample, ...]:
        """The samples of one policy, by task and number."""
        return tuple(sorted((s for s in self.samples if s.policy == policy), key=lambda s: (s.task, s.number)))

    def scored(self, policy: str) -> Scored:
        """Score one policy."""
        samples = self.of(policy)
        counts = {task: _counted(s for s in samples if s.task == task) for task in self.tasks}
        most = max((counted.samples for counted in counts.values()), default=0)
        chance = Random(_SEED)  # noqa: S311  resampling, no secret
        rates = {k: found for k in sorted({1, most}) if k and (found := statistics.rate(counts, k, chance))}
        ends: dict[str, int] = {}
        for sample in samples:
            ends[sample.result.end.value] = ends.get(sample.result.end.value, 0) + 1
        return Scored(
            policy=policy,
            counts=counts,
            pass_at=rates,
            ends=ends,
            seconds=sum(s.result.spent.seconds for s in samples) / max(1, len(samples)),
            tokens=sum(s.result.spent.input_tokens + s.result.spent.output_tokens for s in samples),
            unjudged=sum(not s.is_judged for s in samples),
        )

    def compared(self, first: str, second: str) -> Comparison | None:
        """Compare two policies on the tasks that both were judged on."""
        chance = Random(_SEED)  # noqa: S311  resampling, no secret
        return statistics.compare(self.scored(first).counts, self.scored(second).counts, chance)

    @property
    def is_complete(self) -> bool:
        """Whether each sample was judged."""
        return all(sample.is_judged for sample in self.samples)

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON has it."""
        scores = [self.scored(policy) for policy in self.policies]
        said: dict[str, Any] = {
            "tasks": list(self.tasks),
            "policies": [
                {
                    "policy": score.policy,
                    "pass_at": {str(k): asdict(found) for k, found in score.pass_at.items()},
                    "tasks": {task: asdict(counted) for task, counted in score.counts.items()},
                    "ends": dict(score.ends),
                    "mean_seconds": score.seconds,
                    "tokens": score.tokens,
                    "unjudged": score.unjudged,
                }
                for score in scores
            ],
            "samples": [
                {"policy": s.policy, "task": s.task, "sample": s.number, **s.result.to_json()} for s in self.samples
            ],
        }
        if len(self.policies) > 1:
            said["comparisons"] = [self._comparison(other) for other in self.policies[1:]]
        return said

    def _comparison(self, other: str) -> dict[str, Any]:
        found = self.compared(self.policies[0], other)
        named = {"first": self.policies[0], "second": other}
        return named if found is None else {**named, **asdict(found), "verdict": found.verdict}


def _counted(samples: Iterable[Sample]) -> Counted:
    judged = [sample for sample in samples if sample.is_judged]
    return Counted(len(judged), sum(sample.result.end is TaskEnd.ANSWERED for sample in judged))
