"""The file of spans of one machine, one JSON object a line: programs and fleets append to it, commands read it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from sandfleet.errors import InvalidArgument
from sandfleet.observe.provider import FILE
from sandfleet.observe.spans.decode import span_of_line
from sandfleet.observe.spans.record import CONVERSATION, RUN, SANDBOX, SpanRecord

# A report of more spans would not be read.
MAX_READ = 200_000
_KINDS = (RUN, SANDBOX, CONVERSATION)


def default_path() -> Path:
    """Where `sandfleet dev --traces` keeps spans, and where `trace` and `report` look for them."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(os.environ.get(FILE) or Path(state) / "sandfleet" / "traces.jsonl")


def made(path: Path) -> Path:
    """Make the file for its owner alone, where it is missing. Raises InvalidArgument."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except OSError as error:
        raise InvalidArgument(f"cannot keep spans in {path}: {error.strerror}") from error
    return path.resolve()


def read(path: Path, *names: str) -> list[SpanRecord]:
    """Read the spans of all traces of runs, sandboxes, conversations or traces, by their start; "" names all.

    Raises InvalidArgument if the file cannot be read.
    """
    wanted = set(names)
    traces = {
        span.trace_id
        for span in _spans(path)
        if "" in wanted or span.trace_id in wanted or not wanted.isdisjoint(_names(span).values())
    }
    belonging = (span for span in _spans(path) if span.trace_id in traces)
    # A span that was written twice is one span.
    kept = {(span.trace_id, span.span_id): span for span in islice(belonging, MAX_READ)}
    return sorted(kept.values(), key=lambda span: span.start)


def newest(path: Path, count: int) -> list[tuple[str, str, int]]:
    """List the newest runs and sandboxes: kind, name, and when they began. Raises InvalidArgument."""
    began: dict[str, int] = {}
    traces: dict[tuple[str, str], set[str]] = {}
    for span in _spans(path):
        began[span.trace_id] = min(span.start, began.get(span.trace_id, span.start))
        for kind, name in _names(span).items():
            traces.setdefault((kind, name), set()).add(span.trace_id)
    listed = [(kind, name, min(began[trace] for trace in ids)) for (kind, name), ids in traces.items()]
    of_kind = (
        sorted((one for one in listed if one[0] == kind), key=lambda one: -one[2])[:count] for kind in _KINDS[:2]
    )
    return sorted((one for part in of_kind for one in part), key=lambda one: -one[2])


def _names(span: SpanRecord) -> dict[str, str]:
    return {kind: str(span.attributes[kind]) for kind in _KINDS if kind in span.attributes}


def _spans(path: Path) -> Iterator[SpanRecord]:
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            yield from filter(None, map(span_of_line, lines))
    except FileNotFoundError:
        raise InvalidArgument(
            f"cannot read spans: {path} does not exist; `sandfleet dev --traces` keeps them there"
        ) from None
    except OSError as error:
        raise InvalidArgument(f"cannot read spans from {path}: {error.strerror}") from error
