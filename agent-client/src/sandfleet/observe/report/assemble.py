"""The report of spans, journals and a checkpoint: whatever of them is there, and what is missing. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from sandfleet.observe.report import traced
from sandfleet.observe.report.journal import Journal
from sandfleet.observe.report.model import MAX_SESSIONS, MAX_TEXTS, Report, Session, Step, Task
from sandfleet.observe.report.pictures import within_bounds
from sandfleet.observe.spans.record import SpanRecord
from sandfleet.observe.spans.tree import Node, trees

_NO_CODE = (
    "Code and output are missing: they are in the journal of a sandbox that lives, in one that was exported before its "
    "end (--journal FILE), or in spans that were made with OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true."
)
_NO_JOURNAL = "There is no journal: plots, names of changed files and answers of reviewers are missing."
_NO_SPANS = "There are no spans: where the time went, what the agent intended and its own end are not known."
_NO_FLEET = "The fleet's spans are missing: what claims waited for is not shown."
_NO_EXECUTOR = "The executors' spans are missing: the phases of executions are not shown."


def report(
    name: str,
    spans: Sequence[SpanRecord],
    journals: Iterable[Journal] = (),
    tasks: Iterable[Task] = (),
    missing: Iterable[str] = (),
    *,
    facts: Iterable[str] = (),
) -> Report:
    """Make the report of a session or a run. `missing`: what is known to be missing already."""
    roots, kept, tasks = trees(spans), list(journals), list(tasks)
    found = [*_traced(traced.sessions_in(roots), kept)]
    every = _with_tasks(found, tasks)
    if len(every) > MAX_SESSIONS:
        missing = (
            *missing,
            f"{len(every) - MAX_SESSIONS} sessions that went well are missing: a page has {MAX_SESSIONS}.",
        )
        every = sorted(every, key=lambda one: not one.is_failed)[:MAX_SESSIONS]
    made = _bounded(_in_words(every))
    told = (*missing, *_missing(made, spans, roots, has_journal=bool(kept), has_tasks=any(one.steps for one in tasks)))
    return Report(name=name, sessions=made, missing=told, facts=tuple(facts))


def _traced(found: Sequence[traced.Traced], journals: Sequence[Journal]) -> Iterator[Session]:
    """The sessions of spans, each with its journal, and those of journals without spans."""
    calls = {id(one): one.calls() for one in found}
    seen = {call for some in calls.values() for call in some}
    by_call = {call: journal for journal in journals for call in journal.executions}
    by_name = {journal.sandbox: journal for journal in journals if journal.sandbox}
    used = set()
    for one in found:
        known = (by_call[call] for call in calls[id(one)] if call in by_call)
        journal = next(known, None) or by_name.get(one.sandbox) or Journal()
        # What no span tells of is shown once, also where several agents used the sandbox.
        unseen = [] if id(journal) in used else [ran for call, ran in journal.all() if call not in seen]
        used.add(id(journal))
        yield traced.session(one, journal, unseen)
    yield from (_of_journal(one) for one in journals if id(one) not in used and one.executions)


def _in_words(sessions: Sequence[Session]) -> list[Session]:
    """Name the sessions of an evaluation in words: its keys are lists of policy, task and number.

    Where all are of one policy, the names go without it: two evaluations can be compared task by task.
    """
    parts = [_of_evaluation(one.key) for one in sessions]
    alone = len({each[0] for each in parts if each}) == 1 and all(parts)
    named = [(f"{each[1]} {each[2]}" if alone else f"{each[1]} {each[2]}, {each[0]}") if each else "" for each in parts]
    return [replace(one, key=name or one.key) for one, name in zip(sessions, named, strict=True)]


def _of_evaluation(key: str) -> tuple[str, str, int] | None:
    try:
        match json.loads(key):
            case [str(policy), str(task), int(number)]:
                return policy, task, number
    except ValueError:
        pass
    return None


def _of_journal(journal: Journal) -> Session:
    """A session of which there are no spans."""
    recorded = [one for _, one in journal.all()]
    start = min(one.begun for one in recorded)
    ordered = sorted(recorded, key=lambda one: one.begun)
    steps = tuple(traced.journal_step(one, place, start) for place, one in enumerate(ordered, 1))
    end, bad = traced.verdict(steps)
    return Session(
        key=f"sandbox {journal.sandbox}" if journal.sandbox else "journal",
        sandbox=journal.sandbox,
        end=end,
        is_failed=bad is not None,
        message=traced.said_of(bad) if bad else "",
        began=start,
        seconds=max(step.start + step.seconds for step in steps),
        count=len(steps),
        failures=sum(step.is_failed for step in steps),
        steps=steps,
        bars=tuple(_bar(step) for step in steps),
    )


def _bar(step: Step) -> tuple[int, str, str, float, float, bool]:
    said = step.kind if step.end == "ok" else f"{step.kind}: {step.end}"
    return 0, said, "journal", round(step.start * 1e3, 3), round(step.seconds * 1e3, 3), step.is_failed


def _with_tasks(sessions: Sequence[Session], tasks: Sequence[Task]) -> list[Session]:
    """The sessions, each with what the checkpoint says of its task, and the tasks of which nothing else is known."""
    if not tasks:
        return list(sessions)
    traces = {one.trace_id: one for one in sessions if one.trace_id}
    boxes = {one.sandbox: one for one in sessions if one.sandbox}
    made, used = [], set()
    for task in tasks:
        found = traces.get(task.trace_id) or boxes.get(task.sandbox)
        if found is not None:
            used.add(id(found))
        made.append(_of_task(task) if found is None else _told(found, task))
    # Attempts before the last one, and other sessions of the same trace.
    return [*made, *(one for one in sessions if id(one) not in used)]


def _of_task(task: Task) -> Session:
    return _told(Session(key=task.key, end="", is_failed=False, seconds=task.seconds), task)


def _told(session: Session, task: Task) -> Session:
    """The driver has the last word on how a task ended."""
    return replace(
        session,
        key=task.key,
        sandbox=session.sandbox or task.sandbox,
        trace_id=session.trace_id or task.trace_id,
        end=task.end or "running",
        is_failed=task.is_failed,
        blame=task.blame,
        message=task.message or session.message if task.is_failed else task.message,
        task=session.task or task.prompt,
        answer=task.answer or session.answer,
        began=session.began or task.began,
        wait=task.wait if task.end else session.wait,
        seconds=task.seconds if task.end else session.seconds,
        tokens=task.tokens or session.tokens,
        cpu=task.cpu or session.cpu,
        count=task.count or len(session.steps),
        failures=task.failures or session.failures,
        steps=_together(session.steps, task.steps),
    )


def _together(traced_: Sequence[Step], told: Sequence[Step]) -> tuple[Step, ...]:
    """The steps of spans with what the driver knows of them; those that say what was run where they do not match."""
    if len(traced_) != len(told):
        return tuple(told if told and not any(step.code for step in traced_) else traced_)
    names = ("intent", "code", "output", "exception", "pictures")
    return tuple(
        replace(step, **{name: getattr(step, name) or getattr(other, name) for name in names})
        for step, other in zip(traced_, told, strict=True)
    )


def _missing(
    sessions: Sequence[Session],
    spans: Sequence[SpanRecord],
    roots: Iterable[Node],
    *,
    has_journal: bool,
    has_tasks: bool,
) -> list[str]:
    steps = [step for session in sessions for step in session.steps]
    said = []
    if not any(step.code for step in steps):
        said.append(_NO_CODE)
    elif not has_journal and not has_tasks:
        said.append(_NO_JOURNAL)
    if not spans:
        return [_NO_SPANS, *said]
    services = {span.service for span in spans}
    if "sandfleet-fleet" not in services:
        said.append(_NO_FLEET)
    if "sandfleet-executor" not in services:
        said.append(_NO_EXECUTOR)
    orphans = sum(node.is_orphan for root in roots for _, node in root.walk())
    if orphans:
        said.append(f"{orphans} spans have parents that are missing: some were dropped, or not exported yet.")
    unshown = [picture.why for step in steps for picture in step.pictures if not picture.data]
    if unshown:
        said.append(f"{len(unshown)} plots are not shown ({'; '.join(sorted(set(unshown)))}).")
    return said


def _bounded(sessions: Sequence[Session]) -> tuple[Session, ...]:
    """The sessions with as much text and as many pictures as a page holds: those that went wrong first."""
    left, kept = MAX_TEXTS, {}
    order = sorted(sessions, key=lambda one: not one.is_failed)
    shown = iter(within_bounds(picture for one in order for step in one.steps for picture in step.pictures))
    for session in order:
        left -= sum(len(step.code) + len(step.output) for step in session.steps)
        steps = tuple(
            replace(step, pictures=tuple(next(shown) for _ in step.pictures)) if step.pictures else step
            for step in session.steps
        )
        bare = tuple(replace(step, code="", output="") for step in steps) if left < 0 else steps
        kept[id(session)] = replace(session, steps=bare)
    return tuple(kept[id(session)] for session in sessions)
