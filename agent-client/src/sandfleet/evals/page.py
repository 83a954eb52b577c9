"""An evaluation as one page of HTML that needs nothing else.

All texts are escaped: models and code have written them.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from sandfleet.cli.table import count
from sandfleet.evals.evaluation import Evaluation, Sample, Scored
from sandfleet.evals.frame import document
from sandfleet.evals.show import interval

_MOST_ANSWER = 300
_STYLE = """
.rate { position: relative; height: 1.1rem; min-width: 10rem; border-radius: 3px;
  background: color-mix(in srgb, var(--line) 50%, transparent) }
.rate i { position: absolute; top: .42rem; height: .26rem; background: var(--bar); opacity: .45; border-radius: 2px }
.rate b { position: absolute; top: 0; width: 3px; height: 1.1rem; background: var(--bar) }
.dot { display: inline-block; width: 1.1rem; text-align: center; font-weight: 700 } .rates td { white-space: nowrap }
"""


def html(found: Evaluation, title: str) -> str:
    """Write the page."""
    return document(title, "\n".join(_body(found, escape(title))), _STYLE)


def _body(found: Evaluation, name: str) -> Iterator[str]:
    scores = [found.scored(policy) for policy in found.policies]
    yield f"<h1>Evaluation of {name}</h1>"
    policies = f"{len(found.policies)} polic{'y' if len(found.policies) == 1 else 'ies'}"
    yield f"<p>{count(len(found.tasks), 'task')}, {policies}, {count(len(found.samples), 'sample')}.</p>"
    for other in found.policies[1:]:
        yield from _comparison(found, found.policies[0], other)
    yield "<h2>Pass rates, with 95 % intervals</h2><div class='scroll'><table class='rates'><tr><th>policy<th>rate<th><th>ends<th>time"
    for score in scores:
        yield from _rates(score)
    yield "</table></div><h2>Tasks</h2><div class='scroll'><table><tr><th>task"
    yield "".join(f"<th>{escape(policy)}" for policy in found.policies)
    by_place = {(s.policy, s.task, s.number): s for s in found.samples}
    for task in found.tasks:
        yield f"<tr><td>{escape(task)}"
        for policy in found.policies:
            numbers = sorted(number for (p, t, number) in by_place if (p, t) == (policy, task))
            yield "<td>" + "".join(_dot(by_place[policy, task, number]) for number in numbers)
    yield "</table></div><h2>What went wrong</h2>"
    wrong = [sample for sample in found.samples if not sample.result.ok]
    yield from map(_details, sorted(wrong, key=lambda s: (s.task, s.policy, s.number)))
    if not wrong:
        yield "<p>Nothing.</p>"


def _comparison(found: Evaluation, first: str, second: str) -> Iterator[str]:
    compared = found.compared(first, second)
    if compared is None:
        return
    gap = compared.difference
    yield f"<p class='verdict'><b>{escape(second)}</b> against <b>{escape(first)}</b>: {compared.verdict}, "
    yield f"{gap.mean * 100:+.0f} points [{gap.low * 100:+.0f}, {gap.high * 100:+.0f}].</p>"
    for word, tasks in (("Gained", compared.gained), ("Lost", compared.lost)):
        if tasks:
            yield f"<p>{word}: {escape(', '.join(tasks))}.</p>"


def _rates(score: Scored) -> Iterator[str]:
    ends = ", ".join(f"{count} {escape(end.replace('_', ' '))}" for end, count in sorted(score.ends.items()))
    for k, rate in score.pass_at.items():
        left, width = rate.low * 100, (rate.high - rate.low) * 100
        bar = f"<i style='left:{left:.1f}%;width:{width:.1f}%'></i><b style='left:calc({rate.mean * 100:.1f}% - 1.5px)'></b>"
        yield f"<tr><td>{escape(score.policy)}<td>pass@{k} {interval(rate)}<td><div class='rate'>{bar}</div>"
        yield f"<td>{ends}<td>{score.seconds:.1f} s"


def _dot(sample: Sample) -> str:
    kind = "answered" if sample.result.ok else "failed" if sample.is_judged else "unjudged"
    # A sign beside the colour, for readers who tell no colours apart.
    sign = {"answered": "✓", "failed": "✗", "unjudged": "?"}[kind]
    told = escape(f"sample {sample.number}: {sample.result.end.value}. {sample.result.message}", quote=True)
    return f"<span class='dot {kind}' title=\"{told}\" role='img' aria-label='{kind}'>{sign}</span>"


def _details(sample: Sample) -> str:
    result = sample.result
    answer = escape(" ".join(result.answer)[:_MOST_ANSWER]) or "none"
    said = f"<summary>{escape(sample.task)} · {escape(sample.policy)} · sample {sample.number}: "
    said += f"{escape(result.end.value.replace('_', ' '))}</summary><pre>{escape(result.message)}</pre>"
    trace = f", trace {escape(result.trace_id)}" if result.trace_id else ""
    spent = f"{count(result.steps, 'step')}, {result.spent.seconds:.1f} s, sandbox {escape(result.sandbox_id)}{trace}"
    return f"<details>{said}<p>answer: {answer}<br>{spent}</p></details>"
