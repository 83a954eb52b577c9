"""Where a report finds what it says: spans of this machine, journals, and the checkpoint of a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from sandfleet.cli.journals import files
from sandfleet.cli.traces import live
from sandfleet.codeact.conversation import FinalAnswer, RunCode, RunCommand
from sandfleet.driver import stored
from sandfleet.observe.report.assemble import report
from sandfleet.observe.report.journal import Journal
from sandfleet.observe.report.model import Report, Task
from sandfleet.observe.spans.record import SANDBOX, SpanRecord
from sandfleet.observe.spans.store import MAX_READ, read


def report_of(asked: str, spans: Path, exported: Sequence[Path]) -> Report:
    """Make the report of a sandbox, a run, a trace, or of a file: a run's checkpoint, or a journal.

    Without exported journals those of sandboxes that live are read. Raises InvalidArgument, CheckpointError.
    """
    path = Path(asked)
    if stored.is_database(path):
        tasks = tuple(map(task, stored.read(path)))
        traces = [one.trace_id for one in tasks if one.trace_id]
        found, missing = _spans(spans, traces or [asked])
        running = [one.sandbox for one in tasks if one.sandbox and not one.end]
        name = path.name
    elif path.is_file():
        exported, tasks, running, name = [path, *exported], (), [], path.name
        found, missing = _spans(spans, [one.sandbox for one in map(journal, exported) if one.sandbox])
    else:
        tasks, running, name = (), [], asked
        found, missing = _spans(spans, [asked])
        running = _sandboxes(found) or [asked]
    if exported:
        return report(name, found, map(journal, exported), tasks, missing)
    journals, why = live.journals(running) if running else ([], [])
    return report(name, found, journals, tasks, (*missing, *why))


def _spans(path: Path, names: Sequence[str]) -> tuple[list[SpanRecord], list[str]]:
    if not path.exists():
        return [], [f"{path} does not exist: `sandfleet dev --traces` keeps spans there."]
    found = read(path, *names)
    if len(found) >= MAX_READ:
        return found, [f"The newest spans are missing: a report reads {MAX_READ}."]
    return found, []


def _sandboxes(spans: Sequence[SpanRecord]) -> list[str]:
    return list(dict.fromkeys(str(one.attributes[SANDBOX]) for one in spans if SANDBOX in one.attributes))


def journal(path: Path) -> Journal:
    """Read an exported journal. Raises InvalidArgument."""
    found = Journal()
    for record in files.records_of(str(path)):
        found.take(record.kind, record.body, record.at)
    return found


def task(one: stored.StoredTask) -> Task:
    """A task as a report has it."""
    result = one.result
    if result is None:
        asked = tuple(map(_action, one.actions))
        return Task(key=one.key, sandbox=one.sandbox_id, asked=asked, steps=len(asked))
    spent = result.spent
    return Task(
        key=one.key,
        end=result.end.value,
        is_failed=not result.ok,
        message=result.message,
        answer="; ".join(result.answer),
        trace_id=result.trace_id,
        sandbox=result.sandbox_id or one.sandbox_id,
        seconds=spent.seconds,
        wait=spent.claim_seconds,
        tokens=spent.input_tokens + spent.output_tokens,
        cpu=spent.cpu_seconds,
        steps=result.steps,
    )


def _action(action: object) -> tuple[str, str, str]:
    """Kind, code and intent."""
    match action:
        case RunCode():
            return "run_code", action.code, action.intent
        case RunCommand():
            return "run_command", action.command if isinstance(action.command, str) else json.dumps(action.command), ""
        case FinalAnswer():
            return "final_answer", "", str(action.value)
    return "other", "", ""
