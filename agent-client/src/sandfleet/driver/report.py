"""The page about a run that its driver writes at the end: the one that `sandfleet report` writes, plots included.

It is bounded, whatever the number of tasks: steps of tasks that went well are kept for half of a page's texts, those of
the others for the rest, and pictures for as many bytes as a page has.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from sandfleet.codeact.conversation import Action, AgentRun, FinalAnswer, RunCode, RunCommand, Step, Verdict
from sandfleet.codeact.tracing import kind_of
from sandfleet.driver.actions import from_json
from sandfleet.driver.result import TaskEnd, TaskResult
from sandfleet.errors import InvalidArgument
from sandfleet.observe.report import model, pictures
from sandfleet.observe.report.assemble import report
from sandfleet.observe.report.page import html

# Bounds: characters of one text of a step, and steps of one task.
_MOST_TEXT, _MOST_STEPS = 16_000, 200


class RunReport:
    """Collects results while they come, and writes the page. `wall` gives seconds since the epoch."""

    def __init__(self, path: str | os.PathLike[str], title: str, wall: Callable[[], float]) -> None:
        self._path = Path(path)
        self._title = title
        self._wall = wall
        self._tasks: list[model.Task] = []
        self._texts = {False: model.MAX_TEXTS // 2, True: model.MAX_TEXTS // 2}
        self._pictures = pictures.MAX_ALL
        self._counts: Counter[str] = Counter()
        if not self._path.parent.is_dir():
            raise InvalidArgument(f"cannot write the report {self._path}: its folder does not exist")

    def add(self, result: TaskResult) -> None:
        """Note a result."""
        self._counts["stored"] += result.is_stored
        self._counts["retried"] += result.attempts > 1
        self._counts["parked"] += result.spent.parks > 0
        steps = self._bounded(steps_of(result.run) if result.run else (), is_good=result.ok)
        spent = result.spent.claim_seconds + result.spent.seconds
        began = 0.0 if result.is_stored or result.end is TaskEnd.REFUSED else self._wall() - spent
        self._tasks.append(task_of(result, steps, began))

    def _bounded(self, steps: tuple[model.Step, ...], *, is_good: bool) -> tuple[model.Step, ...]:
        self._texts[is_good] -= sum(len(step.code) + len(step.output) for step in steps)
        if self._texts[is_good] < 0:
            return ()
        self._pictures -= sum(len(one.data) for step in steps for one in step.pictures)
        return steps if self._pictures >= 0 else tuple(replace(step, pictures=()) for step in steps)

    def write(self) -> None:
        """Write the page, whole or not at all. Raises OSError."""
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        tasks = sorted(self._tasks, key=lambda task: task.key)
        try:
            draft.write_text(html(report(self._title, (), tasks=tasks, facts=self._facts())), encoding="utf-8")
            draft.replace(self._path)
        finally:
            draft.unlink(missing_ok=True)

    def _facts(self) -> Iterable[str]:
        for name, said in (
            ("stored", "from the checkpoint: this run has not worked on {}"),
            ("retried", "took more than one session"),
            ("parked", "gave the sandbox back for a while"),
        ):
            if count := self._counts[name]:
                tasks, them = ("1 task", "it") if count == 1 else (f"{count:,} tasks", "them")
                yield f"{tasks} {said.format(them)}."


def task_of(result: TaskResult, steps: tuple[model.Step, ...], began: float = 0.0) -> model.Task:
    """A task that has ended, as a report has it."""
    spent = result.spent
    return model.Task(
        key=result.key,
        end=result.end.value,
        is_failed=not result.ok,
        blame="" if result.ok else result.blame.value,
        message=result.message,
        prompt=result.run.task if result.run else "",
        answer="; ".join(result.answer),
        trace_id=result.trace_id,
        sandbox=result.sandbox_id,
        began=began,
        seconds=spent.seconds,
        wait=spent.claim_seconds,
        tokens=spent.input_tokens + spent.output_tokens,
        cpu=spent.cpu_seconds,
        count=result.steps,
        failures=result.failures,
        steps=steps,
    )


def steps_of(run: AgentRun) -> tuple[model.Step, ...]:
    """The steps of an agent as a report has them. The time of the policy between them is not known."""
    found: list[model.Step] = []
    start = 0.0
    for step in run.steps[-_MOST_STEPS:]:
        found.append(_step(step, start))
        start += step.seconds
    return tuple(found)


def _step(step: Step, start: float) -> model.Step:
    evidence = step.evidence
    is_failed = step.verdict in {Verdict.FAILED, Verdict.LOST, Verdict.GAVE_UP}
    made = _asked(step.action, step.number, evidence.outcome.value if evidence else step.verdict.value)
    made = replace(made, is_failed=is_failed, start=start, seconds=step.seconds)
    if evidence is None:
        return replace(made, output=made.output if step.verdict is Verdict.ACCEPTED else step.observation[:_MOST_TEXT])
    error = evidence.error
    # A figure is there itself.
    texts = [text for text in evidence.results if not (evidence.images and text.startswith("<Figure size"))]
    return replace(
        made,
        exception=f"{error.name}: {error.value}"[:_MOST_TEXT] if error else "",
        reason="" if evidence.ok or error else evidence.message,
        blame=evidence.blame.value if evidence.blame else "",
        output="\n".join(filter(None, (evidence.stdout, evidence.stderr, *texts)))[:_MOST_TEXT],
        pictures=tuple(pictures.made(image.data) for image in evidence.images if image.mime == pictures.PNG),
        rollback="done" if evidence.rollback and evidence.rollback.done else "",
        lost=", ".join(evidence.lost),
        changed=sum(map(len, (evidence.files.created, evidence.files.modified, evidence.files.deleted))),
        cpu=evidence.usage.cpu_seconds,
        memory=evidence.usage.peak_memory_bytes,
    )


def _asked(action: Action, number: int, end: str) -> model.Step:
    code = ""
    output = ""
    if isinstance(action, RunCode):
        code = action.code
    elif isinstance(action, RunCommand):
        code = action.command if isinstance(action.command, str) else json.dumps(action.command)
    elif isinstance(action, FinalAnswer):
        output = action.text or "; ".join(map(str, action.values))
    return model.Step(
        number=number,
        kind=kind_of(action),
        end=end,
        start=0.0,
        seconds=0.0,
        intent=action.intent,
        code=code[:_MOST_TEXT],
        output=output[:_MOST_TEXT],
    )


def line_of(step: model.Step) -> str:
    """A step as a line of the checkpoint; pictures are left out."""
    return json.dumps({"step": asdict(replace(step, pictures=(), frames=()))})


def step_of(line: str, number: int) -> model.Step:
    """Read a line of the checkpoint: what `line_of` has written, or an action that is taken. Raises ValueError."""
    said: Any = json.loads(line)
    if "step" not in said:
        return _asked(from_json(line), number, "recorded")
    try:
        known: dict[str, Any] = {}
        for name, value in said["step"].items():
            known[name] = tuple(value) if isinstance(value, list) else value
        return model.Step(**known)
    except (TypeError, AttributeError) as error:
        raise ValueError(f"cannot read a step: {error}") from error
