"""Where a report finds what it says: spans of this machine, journals, and the checkpoint of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sandfleet.cli.journals import files
from sandfleet.cli.traces import live
from sandfleet.driver import stored
from sandfleet.observe.report.assemble import report
from sandfleet.observe.report.journal import Journal
from sandfleet.observe.report.model import Report
from sandfleet.observe.spans.record import SANDBOX, SpanRecord
from sandfleet.observe.spans.store import MAX_READ, read


def report_of(asked: str, spans: Path, exported: Sequence[Path]) -> Report:
    """Make the report of a sandbox, a run, a trace, or of a file: a run's checkpoint, or a journal.

    Without exported journals those of sandboxes that live are read. Raises InvalidArgument, CheckpointError.
    """
    path = Path(asked)
    if stored.is_database(path):
        tasks = tuple(one.task() for one in stored.read(path))
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
