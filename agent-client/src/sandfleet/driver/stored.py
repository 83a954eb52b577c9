"""A run as its checkpoint has it: read without taking part in the run, also while its processes work on it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sandfleet.driver.actions import from_json
from sandfleet.driver.checkpoint import VERSION, CheckpointError, stored_result
from sandfleet.driver.result import TaskResult

# Of one question.
MAX_TASKS, MAX_ACTIONS = 100_000, 200
_MAGIC = b"SQLite format 3\0"


@dataclass(frozen=True, slots=True)
class StoredTask:
    """A task. `result` is None, and `actions` are what its agent has taken so far, while it is worked on."""

    key: str
    attempt: int
    sandbox_id: str
    result: TaskResult | None = None
    actions: tuple[object, ...] = ()


def is_database(path: Path) -> bool:
    """Whether a file may be a checkpoint."""
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def read(path: Path) -> tuple[StoredTask, ...]:
    """Read all tasks of a run. Raises CheckpointError."""
    try:
        with closing(sqlite3.connect(f"file:{path.resolve().as_posix()}?mode=ro", uri=True)) as connection:
            found = connection.execute("SELECT value FROM meta WHERE name = 'version'").fetchone()
            if found is None or found[0] != VERSION:
                raise CheckpointError(
                    f"cannot read the checkpoint {path}: its version is not {VERSION}", reason="CheckpointVersion"
                )
            rows = connection.execute(
                "SELECT key, attempt, sandbox_id, result FROM tasks ORDER BY key LIMIT ?", (MAX_TASKS,)
            ).fetchall()
            return tuple(_task(connection, *row) for row in rows)
    except sqlite3.Error as error:
        raise CheckpointError(f"cannot read the checkpoint {path}: {error}", reason="CheckpointUnusable") from error


def _task(connection: sqlite3.Connection, key: str, attempt: int, sandbox_id: str, result: str | None) -> StoredTask:
    if result is not None:
        return StoredTask(key, attempt, sandbox_id, stored_result(key, result))
    lines = connection.execute(
        "SELECT action FROM actions WHERE key = ? ORDER BY number LIMIT ?", (key, MAX_ACTIONS)
    ).fetchall()
    return StoredTask(key, attempt, sandbox_id, actions=tuple(_action(key, line) for (line,) in lines))


def _action(key: str, line: str) -> object:
    try:
        return from_json(line)
    except (ValueError, TypeError) as error:
        raise CheckpointError(
            f"cannot read an action of {key} in the checkpoint: {error}", reason="CheckpointDamaged", subject=key
        ) from error
