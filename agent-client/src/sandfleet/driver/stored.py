"""A run as its checkpoint has it: read without taking part in the run, also while its processes work on it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from sandfleet.driver.checkpoint import VERSION, CheckpointError, stored_result
from sandfleet.driver.report import step_of, task_of
from sandfleet.driver.result import TaskResult
from sandfleet.observe.report.model import Step, Task

# Of one question.
MAX_TASKS, MAX_ACTIONS = 100_000, 200
_MAGIC = b"SQLite format 3\0"


@dataclass(frozen=True, slots=True)
class StoredTask:
    """A task. `result` is None, and `steps` are the actions that its agent has taken so far, while it is worked on."""

    key: str
    attempt: int
    sandbox_id: str
    result: TaskResult | None = None
    steps: tuple[Step, ...] = ()

    def task(self) -> Task:
        """The task as a report has it."""
        if self.result is None:
            return Task(key=self.key, sandbox=self.sandbox_id, steps=self.steps, count=len(self.steps))
        return replace(task_of(self.result, self.steps), sandbox=self.result.sandbox_id or self.sandbox_id)


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
    ended = None if result is None else stored_result(key, result)
    lines = connection.execute(
        "SELECT action FROM actions WHERE key = ? ORDER BY number LIMIT ?", (key, MAX_ACTIONS)
    ).fetchall()
    steps = tuple(_step(key, line, number) for number, (line,) in enumerate(lines, 1))
    return StoredTask(key, attempt, sandbox_id, ended, steps)


def _step(key: str, line: str, number: int) -> Step:
    try:
        return step_of(line, number)
    except (ValueError, TypeError) as error:
        raise CheckpointError(
            f"cannot read an action of {key} in the checkpoint: {error}", reason="CheckpointDamaged", subject=key
        ) from error
