"""Spans in one SQLite file of this machine: a bounded number, the oldest go first."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Self

from sandfleet.errors import InvalidArgument
from sandfleet.observe.spans.decode import span_of_line
from sandfleet.observe.spans.record import CONVERSATION, RUN, SANDBOX, SpanEvent, SpanRecord

# About 1 GiB.
MAX_KEPT = 1_000_000
# Of one question: a report of more would be read by no one.
MAX_READ = 200_000
# How many spans are written between two looks at the bound.
_LOOK_EVERY = 10_000
_MAGIC = b"SQLite format 3\0"
_COLUMNS = "trace_id, span_id, parent_id, name, service, start, end, attributes, events, links, error"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS spans (
    trace_id TEXT NOT NULL, span_id TEXT NOT NULL, parent_id TEXT NOT NULL, name TEXT NOT NULL, service TEXT NOT NULL,
    start INTEGER NOT NULL, end INTEGER NOT NULL, attributes TEXT NOT NULL, events TEXT NOT NULL, links TEXT NOT NULL,
    error TEXT NOT NULL, PRIMARY KEY (trace_id, span_id)
);
CREATE TABLE IF NOT EXISTS names (kind TEXT NOT NULL, name TEXT NOT NULL, trace_id TEXT NOT NULL,
    PRIMARY KEY (kind, name, trace_id)) WITHOUT ROWID;
"""
_KINDS = (RUN, SANDBOX, CONVERSATION)


def default_path() -> Path:
    """Where `sandfleet dev --traces` keeps spans, and where `trace` and `report` look for them."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(os.environ.get("SANDFLEET_TRACES") or Path(state) / "sandfleet" / "traces.db")


class SpanStore:
    """One file. Each method may be called from one thread at a time."""

    def __init__(self, connection: sqlite3.Connection, *, most: int = MAX_KEPT) -> None:
        self._connection = connection
        self._most = most
        self._unlooked = 0

    @classmethod
    def open(cls, path: Path, *, most: int = MAX_KEPT) -> Self:
        """Open the file to write; made where it is missing, for its owner alone. Raises InvalidArgument."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=10)
            # What a power loss takes are spans.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = OFF")
            connection.executescript(_SCHEMA)
        except (OSError, sqlite3.Error) as error:
            raise InvalidArgument(f"cannot keep spans in {path}: {error}") from error
        return cls(connection, most=most)

    def add(self, spans: Sequence[SpanRecord]) -> None:
        """Keep the spans; one that is known already stays as it is. Raises sqlite3.Error."""
        names = {
            (kind, str(span.attributes[kind]), span.trace_id)
            for span in spans
            for kind in _KINDS
            if kind in span.attributes
        }
        with self._connection as transaction:
            transaction.execute("BEGIN")
            marks = ", ".join("?" * 11)
            transaction.executemany(
                f"INSERT OR IGNORE INTO spans ({_COLUMNS}) VALUES ({marks})",  # noqa: S608  constants
                map(_row, spans),
            )
            transaction.executemany("INSERT OR IGNORE INTO names VALUES (?, ?, ?)", names)
            self._unlooked += len(spans)
            if self._unlooked >= min(_LOOK_EVERY, self._most):
                self._unlooked = 0
                self._drop_oldest(transaction)

    def _drop_oldest(self, transaction: sqlite3.Connection) -> None:
        """Rows have rising numbers, in the order in which they came."""
        (newest,) = transaction.execute("SELECT max(rowid) FROM spans").fetchone()
        transaction.execute("DELETE FROM spans WHERE rowid <= ?", ((newest or 0) - self._most,))
        transaction.execute("DELETE FROM names WHERE trace_id NOT IN (SELECT trace_id FROM spans)")

    def count(self) -> int:
        """How many spans are kept."""
        return int(self._connection.execute("SELECT count(*) FROM spans").fetchone()[0])

    def of(self, name: str) -> list[SpanRecord]:
        """The spans of all traces of a run, a sandbox, a conversation or of one trace, by their start."""
        rows = self._connection.execute(
            f"SELECT {_COLUMNS} FROM spans WHERE trace_id = ?1 OR trace_id IN"  # noqa: S608  constants
            " (SELECT trace_id FROM names WHERE name = ?1) ORDER BY start LIMIT ?2",
            (name, MAX_READ),
        )
        return [_record(row) for row in rows]

    def newest(self, kind: str, count: int) -> list[tuple[str, int]]:
        """The newest runs, sandboxes or conversations, and when they began, in nanoseconds since the epoch."""
        rows = self._connection.execute(
            "SELECT names.name, min(spans.start) AS began FROM names JOIN spans USING (trace_id)"
            " WHERE names.kind = ? GROUP BY names.name ORDER BY began DESC LIMIT ?",
            (kind, count),
        )
        return [(str(name), int(began)) for name, began in rows]

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def read(path: Path, name: str) -> list[SpanRecord]:
    """The spans of `name` in a store, or in a file of lines. Raises InvalidArgument where it cannot be read."""
    try:
        with path.open("rb") as file:
            is_store = file.read(len(_MAGIC)) == _MAGIC
        if is_store:
            with closing(_reading(path)) as connection:
                return SpanStore(connection).of(name)
        with path.open(encoding="utf-8", errors="replace") as lines:
            return belonging(filter(None, map(span_of_line, lines)), name)
    except FileNotFoundError:
        raise InvalidArgument(
            f"cannot read spans: {path} does not exist; `sandfleet dev --traces` keeps them there"
        ) from None
    except (OSError, sqlite3.Error) as error:
        raise InvalidArgument(f"cannot read spans from {path}: {error}") from error


def read_all(path: Path, names: Sequence[str]) -> list[SpanRecord]:
    """The spans of several traces, runs or sandboxes, as many as one question reads. Raises InvalidArgument."""
    found: dict[tuple[str, str], SpanRecord] = {}
    for name in dict.fromkeys(names):
        if len(found) >= MAX_READ:
            break
        found |= {(one.trace_id, one.span_id): one for one in read(path, name)}
    return sorted(found.values(), key=lambda one: one.start)


def newest(path: Path, count: int) -> list[tuple[str, str, int]]:
    """The newest runs and sandboxes of a store: kind, name, and when they began. Raises InvalidArgument."""
    try:
        with closing(_reading(path)) as connection:
            store = SpanStore(connection)
            found = [(kind, *one) for kind in (RUN, SANDBOX) for one in store.newest(kind, count)]
    except sqlite3.Error as error:
        raise InvalidArgument(f"cannot read spans from {path}: {error}") from error
    return sorted(found, key=lambda one: -one[2])


def _reading(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{path.resolve().as_posix()}?mode=ro", uri=True)


def belonging(spans: Iterable[SpanRecord], name: str) -> list[SpanRecord]:
    """The spans of all traces that `name` names; "": of all traces."""
    kept = [span for _, span in zip(range(MAX_KEPT), spans, strict=False)]
    wanted = {
        span.trace_id
        for span in kept
        if not name or name == span.trace_id or name in {span.attributes.get(kind) for kind in _KINDS}
    }
    return sorted((span for span in kept if span.trace_id in wanted), key=lambda span: span.start)[:MAX_READ]


def _row(span: SpanRecord) -> tuple[str | int, ...]:
    events = json.dumps([asdict(event) for event in span.events]) if span.events else "[]"
    return (
        span.trace_id,
        span.span_id,
        span.parent_id,
        _sound(span.name),
        _sound(span.service),
        span.start,
        span.end,
        json.dumps(dict(span.attributes)),
        events,
        json.dumps(span.links),
        _sound(span.error),
    )


def _sound(text: str) -> str:
    """Without lone surrogates, which SQLite refuses."""
    return text.encode("utf-8", "replace").decode()


def _record(row: tuple[str, str, str, str, str, int, int, str, str, str, str]) -> SpanRecord:
    trace_id, span_id, parent_id, name, service, start, end, attributes, events, links, error = row
    return SpanRecord(
        trace_id=trace_id,
        span_id=span_id,
        parent_id=parent_id,
        name=name,
        service=service,
        start=start,
        end=end,
        attributes=json.loads(attributes),
        events=tuple(SpanEvent(**one) for one in json.loads(events)),
        links=tuple(json.loads(links)),
        error=error,
    )
