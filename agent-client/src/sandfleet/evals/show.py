"""An evaluation for people at a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from sandfleet.cli.table import plain
from sandfleet.evals.evaluation import Evaluation, Scored
from sandfleet.evals.statistics import Counted, Estimate

_NAME = 28
_MOST = 40


def lines(found: Evaluation) -> Iterator[str]:
    """The scores, the tasks, and the comparisons."""
    scores = [found.scored(policy) for policy in found.policies]
    for score in scores:
        yield from _score(score)
    yield ""
    yield from _table(found, scores)
    for other in found.policies[1:]:
        yield ""
        yield from _comparison(found, found.policies[0], other)


def _score(score: Scored) -> Iterator[str]:
    rates = "   ".join(f"pass@{k} {interval(rate)}" for k, rate in score.pass_at.items())
    yield f"{plain(score.policy)}: {rates or 'no sample was judged'}"
    ends = ", ".join(f"{count} {end.replace('_', ' ')}" for end, count in sorted(score.ends.items()))
    tokens = f", {score.tokens:,} tokens" if score.tokens else ""
    yield f"  {ends}; {score.seconds:.1f} s a session{tokens}"
    if score.unjudged:
        yield f"  {score.unjudged} samples say nothing about the policy: the platform or a checker failed"


def interval(rate: Estimate) -> str:
    """A rate with its 95 % interval."""
    return f"{rate.mean:.0%} [{rate.low:.0%}, {rate.high:.0%}]"


def _table(found: Evaluation, scores: list[Scored]) -> Iterator[str]:
    width = min(_NAME, max(len("task"), *(len(task) for task in found.tasks)))
    columns = [max(len(plain(score.policy)), 7) for score in scores]
    names = "  ".join(f"{plain(score.policy):>{column}}" for score, column in zip(scores, columns, strict=True))
    yield f"{'task':<{width}}  {names}"
    for task in found.tasks[:_MOST]:
        cells = [f"{_cell(score.counts[task]):>{column}}" for score, column in zip(scores, columns, strict=True)]
        yield f"{plain(task)[:width]:<{width}}  {'  '.join(cells)}"
    if len(found.tasks) > _MOST:
        yield f"… and {len(found.tasks) - _MOST} more; --json and --report have all"


def _cell(counted: Counted) -> str:
    return f"{counted.right}/{counted.samples}" if counted.samples else "-"


def _comparison(found: Evaluation, first: str, second: str) -> Iterator[str]:
    compared = found.compared(first, second)
    if compared is None:
        yield f"{plain(second)} and {plain(first)} cannot be compared: no task was judged for both"
        return
    low, high = compared.difference.low * 100, compared.difference.high * 100
    yield (
        f"{plain(second)} against {plain(first)}: {compared.verdict},"
        f" {compared.difference.mean * 100:+.0f} points [{low:+.0f}, {high:+.0f}]"
    )
    for word, tasks in (("gained", compared.gained), ("lost", compared.lost)):
        if tasks:
            yield f"  {word}: {', '.join(plain(task) for task in tasks[:_MOST])}"
