"""The report of a run: what became of its tasks, as one page of HTML.

All texts are escaped: models and code have written them. The page is bounded, whatever the number of tasks: it draws
the last 20,000 sessions, lists the first 500 tasks that were not solved, and says how many more there are.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path

from sandfleet.driver.page import document
from sandfleet.driver.result import Blame, TaskEnd, TaskResult
from sandfleet.errors import InvalidArgument

_MOST_DRAWN, _MOST_LISTED, _MOST_MESSAGES = 20_000, 500, 20
_MOST_TEXT = 300
# The picture, in its own units; how many points it has.
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _POINTS = 900, 180, 40, 20, 180
_SIGNS = {Blame.NONE: "answered", Blame.AGENT: "failed", Blame.PLATFORM: "unjudged", Blame.PROGRAM: "unjudged"}


@dataclass(frozen=True, slots=True)
class Drawn:
    """One session in seconds of the run: when it was claimed, when its sandbox came, when it ended."""

    claimed: float
    opened: float
    ended: float


class RunReport:
    """Collects results while they come, and writes the page. `clock` gives seconds that only grow."""

    def __init__(self, path: str | os.PathLike[str], title: str, clock: Callable[[], float]) -> None:
        self._path = Path(path)
        self._title = title
        self._clock = clock
        self._began = clock()
        self._ends: Counter[TaskEnd] = Counter()
        self._messages: Counter[str] = Counter()
        self._totals: Counter[str] = Counter()
        self._drawn: deque[Drawn] = deque(maxlen=_MOST_DRAWN)
        self._unsolved: list[TaskResult] = []
        if not self._path.parent.is_dir():
            raise InvalidArgument(f"cannot write the report {self._path}: its folder does not exist")

    def add(self, result: TaskResult) -> None:
        """Note a result."""
        self._ends[result.end] += 1
        spent = result.spent
        self._totals["stored"] += result.is_stored
        self._totals["retried"] += result.attempts > 1
        for name in ("steps", "failures"):
            self._totals[name] += getattr(result, name)
        for name in ("seconds", "parked_seconds", "cpu_seconds", "input_tokens", "output_tokens"):
            self._totals[name] += getattr(spent, name)
        if not result.is_stored and result.end is not TaskEnd.REFUSED:
            now = self._clock() - self._began
            opened = max(0.0, now - spent.seconds)
            self._drawn.append(Drawn(max(0.0, opened - spent.claim_seconds), opened, now))
        if not result.ok:
            self._messages[f"{result.end.value}: {result.message}"[:_MOST_TEXT]] += 1
            # As many texts as there are tasks would fill the memory.
            if len(self._messages) > 4 * _MOST_LISTED:
                self._messages = Counter(dict(self._messages.most_common(_MOST_LISTED)))
            if len(self._unsolved) < _MOST_LISTED:
                self._unsolved.append(replace(result, run=None))

    def write(self) -> None:
        """Write the page, whole or not at all. Raises OSError."""
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            draft.write_text(document(self._title, "\n".join(self._body())), encoding="utf-8")
            draft.replace(self._path)
        finally:
            draft.unlink(missing_ok=True)

    def _body(self) -> Iterator[str]:
        count, seconds = self._ends.total(), self._clock() - self._began
        solved = self._ends[TaskEnd.ANSWERED]
        yield f"<h1>{escape(self._title)}</h1>"
        yield f"<p class='verdict'><b>{solved:,} of {count:,}</b> tasks were solved, in {_length(seconds)}.</p>"
        yield f"<p>{_totals(self._totals)}</p>"
        yield "<h2>How the tasks ended</h2><div class='scroll'><table><tr><th>end<th>whose failure<th class='number'>tasks"
        for end, times in self._ends.most_common():
            blame = TaskResult("", end).blame
            word = "" if blame is Blame.NONE else escape(blame.value)
            yield f"<tr><td class='{_SIGNS[blame]}'>{escape(end.value.replace('_', ' '))}<td>{word}<td class='number'>{times:,}"
        yield "</table></div>"
        if self._drawn:
            yield "<h2>Sessions over time</h2>" + _picture(self._drawn)
            yield "<h2>How long they took</h2>" + _times(self._drawn)
        yield from self._what_went_wrong(count - solved)

    def _what_went_wrong(self, unsolved: int) -> Iterator[str]:
        yield "<h2>What went wrong</h2>"
        if not unsolved:
            yield "<p>Nothing.</p>"
            return
        yield "<div class='scroll'><table><tr><th>reason<th class='number'>tasks"
        for message, times in self._messages.most_common(_MOST_MESSAGES):
            yield f"<tr><td>{escape(message)}<td class='number'>{times:,}"
        yield "</table></div><h2>Tasks that were not solved</h2>"
        yield from map(_details, self._unsolved)
        if unsolved > len(self._unsolved):
            yield f"<p>And {unsolved - len(self._unsolved):,} more.</p>"


def _totals(totals: Counter[str]) -> str:
    said = [
        f"{totals['steps']:,} steps, {totals['failures']:,} of them failed",
        f"{totals['seconds'] / 3600:.2f} h of sessions, {totals['parked_seconds'] / 3600:.2f} h of them parked",
        f"{_length(totals['cpu_seconds'])} of processor time",
    ]
    if tokens := totals["input_tokens"] + totals["output_tokens"]:
        said.append(f"{tokens:,} tokens")
    if totals["retried"]:
        said.append(f"{totals['retried']:,} tasks took more than one session")
    if totals["stored"]:
        said.append(f"{totals['stored']:,} results came from the checkpoint")
    return "; ".join(said) + "."


def _details(result: TaskResult) -> str:
    end = escape(result.end.value.replace("_", " "))
    trace = f", trace {escape(result.trace_id)}" if result.trace_id else ""
    spent = f"{result.steps} steps, {result.spent.seconds:.1f} s, sandbox {escape(result.sandbox_id) or 'none'}{trace}"
    answer = escape(" ".join(result.answer)[:_MOST_TEXT]) or "none"
    summary = (
        f"<summary><span class='{_SIGNS[result.blame]}'>{end}</span> · {escape(result.key[:_MOST_TEXT])}</summary>"
    )
    return f"<details>{summary}<pre>{escape(result.message)}</pre><p>answer: {answer}<br>{spent}</p></details>"


def _times(drawn: Iterable[Drawn]) -> str:
    rows = [("wait for a sandbox", sorted(one.opened - one.claimed for one in drawn))]
    rows.append(("session", sorted(one.ended - one.opened for one in drawn)))
    said = "<div class='scroll'><table><tr><th><th class='number'>median<th class='number'>p90<th class='number'>p99<th class='number'>longest"
    for name, times in rows:
        said += f"<tr><td>{name}" + "".join(
            f"<td class='number'>{_length(_at(times, q))}" for q in (0.5, 0.9, 0.99, 1.0)
        )
    return said + "</table></div>"


def _at(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _length(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _picture(drawn: Iterable[Drawn]) -> str:
    """How many sessions had a sandbox, and how many waited for one above them, at each moment."""
    sessions = list(drawn)
    last = max(one.ended for one in sessions) or 1.0
    moments = [last * number / _POINTS for number in range(_POINTS + 1)]
    working = _present(((one.opened, one.ended) for one in sessions), moments)
    waiting = _present(((one.claimed, one.opened) for one in sessions), moments)
    both = [first + second for first, second in zip(working, waiting, strict=True)]
    most = max(*both, 1)
    areas = _area(both, most, "var(--wait)") + _area(working, most, "var(--bar)")
    scale = f"<text x='{_LEFT - 6}' y='14' text-anchor='end'>{most:,}</text>"
    scale += f"<text x='{_LEFT - 6}' y='{_HEIGHT}' text-anchor='end'>0</text>"
    scale += f"<text x='{_WIDTH}' y='{_HEIGHT + _BOTTOM - 4}' text-anchor='end'>{_length(last)}</text>"
    label = "Sessions with a sandbox, and above them those that wait for one, over the time of the run"
    head = f"<svg viewBox='0 0 {_WIDTH} {_HEIGHT + _BOTTOM}' role='img' aria-label='{label}'>"
    key = "<p><span style='color:var(--bar)'>■</span> with a sandbox <span style='color:var(--wait)'>■</span> waiting for one</p>"
    return f"{head}{areas}{scale}</svg>{key}"


def _present(spans: Iterable[tuple[float, float]], moments: Sequence[float]) -> list[int]:
    """How many of the spans cover each moment. A span counts in the moments from its start to before its end."""
    changes: Counter[int] = Counter()
    # A run that took no time has all its moments at once.
    step = moments[1] - moments[0] or 1.0
    for begin, end in spans:
        first, after = min(_POINTS, int(begin / step)), min(_POINTS, int(end / step))
        changes[first] += 1
        changes[after] -= 1
    found, present = [], 0
    for number in range(len(moments)):
        present += changes[number]
        found.append(present)
    return found


def _area(counts: Sequence[int], most: int, colour: str) -> str:
    across = (_WIDTH - _LEFT) / _POINTS
    points = [
        f"{_LEFT + number * across:.1f},{_HEIGHT - count / most * (_HEIGHT - 10):.1f}"
        for number, count in enumerate(counts)
    ]
    return f"<polygon fill='{colour}' points='{_LEFT},{_HEIGHT} {' '.join(points)} {_WIDTH},{_HEIGHT}'/>"
