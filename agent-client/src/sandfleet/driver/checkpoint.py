"""The checkpoint of a run: one SQLite file, shared by all processes of one machine that work on the run.

Each write is one transaction, so a process may be killed after any of them. What is written when:

- before a session is claimed: who works on the task, and the request id of the claim;
- before the agent begins: the sandbox's id;
- before an action is carried out: the action;
- at the end: the result, and the steps with their output. A task with a result is never run again.

A process that is gone, or has not been heard of for `DEAD_AFTER` seconds, is taken for dead: another one takes its
tasks on, in their sandboxes. A process that was only standing still notices with its next write that a task is not its
own any more.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from sandfleet.driver.result import TaskResult
from sandfleet.errors import SandfleetError

Answer = TypeVar("Answer")

VERSION = "1"
# Seconds: how often a process says that it lives, and after how long a silent one counts as dead.
BEAT, DEAD_AFTER = 2.0, 15.0
# How long a write may wait for those of other processes, in seconds.
_PATIENCE = 30.0
_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE drivers (owner TEXT PRIMARY KEY, pid INTEGER NOT NULL, beat REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE tasks (
    key TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, owner TEXT, attempt INTEGER NOT NULL DEFAULT 1,
    sandbox_id TEXT NOT NULL DEFAULT '', result TEXT
) WITHOUT ROWID;
CREATE TABLE actions (
    key TEXT NOT NULL, number INTEGER NOT NULL, action TEXT NOT NULL, PRIMARY KEY (key, number)
) WITHOUT ROWID;
"""


class CheckpointError(SandfleetError):
    """The checkpoint cannot be used: it is another program's, of another version, damaged, or the disk is full."""


class NotOurs(Exception):
    """Another process has taken the task on."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A task that is this process's own now.

    request_id  of the claim of this attempt: the same id gives the same sandbox.
    sandbox_id  of an attempt that another process has begun; "" for a new one.
    actions     that the agent has taken in that sandbox, as JSON.
    """

    key: str
    attempt: int
    request_id: str
    sandbox_id: str = ""
    actions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Busy:
    """Another process works on it."""


@dataclass(frozen=True, slots=True)
class Different:
    """The checkpoint knows the key, with another content."""


State = Taken | TaskResult | Busy | Different


class Checkpoint:
    """The tasks of one run and what has come of them. `path` None keeps it in memory.

    Its calls run in a thread of their own, one after the other. Times are seconds of the epoch. Raises CheckpointError.
    """

    def __init__(self, path: Path | None, now: float) -> None:
        self._thread = ThreadPoolExecutor(1, "sandfleet-checkpoint")
        self._owner = os.urandom(8).hex()
        self._path = path
        try:
            self._connection = self._thread.submit(self._open, now).result()
        except BaseException:  # The caller has no object to close.
            self._thread.shutdown(wait=False)
            raise

    async def close(self) -> None:
        """Give up all tasks that this process still has, and close the file."""
        # On a full disk the tasks are free when the process has been silent for a while.
        with suppress(CheckpointError):
            await self._do(lambda cursor: cursor.execute("DELETE FROM drivers WHERE owner = ?", (self._owner,)))
        await asyncio.get_running_loop().run_in_executor(self._thread, self._connection.close)
        self._thread.shutdown(wait=False)

    async def beat(self, now: float) -> None:
        """Say that this process lives."""
        row = (self._owner, os.getpid(), now)
        await self._do(lambda cursor: cursor.execute("INSERT OR REPLACE INTO drivers VALUES (?, ?, ?)", row))

    async def take(self, key: str, fingerprint: str, now: float) -> State:
        """Take a task on, unless it is done or another living process works on it."""
        return await self._do(lambda cursor: self._take(cursor, key, fingerprint, now))

    async def bound(self, taken: Taken, sandbox_id: str) -> None:
        """Note the sandbox of a task, in which its agent begins from the start. Raises NotOurs."""

        def write(cursor: sqlite3.Cursor) -> None:
            cursor.execute("DELETE FROM actions WHERE key = ?", (taken.key,))
            self._update(cursor, taken.key, "sandbox_id = ?", sandbox_id)

        await self._do(write)

    async def act(self, taken: Taken, number: int, action: str) -> None:
        """Note the action that the agent takes next. Raises NotOurs."""

        def write(cursor: sqlite3.Cursor) -> None:
            self._update(cursor, taken.key, "attempt = attempt")
            cursor.execute("INSERT OR REPLACE INTO actions VALUES (?, ?, ?)", (taken.key, number, action))

        await self._do(write)

    async def again(self, taken: Taken) -> Taken:
        """Begin the next attempt at a task: another claim, another sandbox. Raises NotOurs."""

        def write(cursor: sqlite3.Cursor) -> Taken:
            self._next_attempt(cursor, taken.key)
            return Taken(taken.key, taken.attempt + 1, self._request_id(cursor, taken.key, taken.attempt + 1))

        return await self._do(write)

    async def give_back(self, taken: Taken) -> None:
        """Leave a task whose sandbox was released to the next process that asks; no error if it is not ours."""

        def write(cursor: sqlite3.Cursor) -> None:
            self._next_attempt(cursor, taken.key)
            self._update(cursor, taken.key, "owner = NULL")

        with suppress(NotOurs):
            await self._do(write)

    async def finish(self, key: str, result: TaskResult, steps: Iterable[str] = ()) -> None:
        """Note how a task ended, and its steps in the place of the actions, for reports. Raises NotOurs."""
        rows = [(key, number, line) for number, line in enumerate(steps, 1)]

        def write(cursor: sqlite3.Cursor) -> None:
            self._update(cursor, key, "result = ?", json.dumps(result.to_json()))
            cursor.execute("DELETE FROM actions WHERE key = ?", (key,))
            cursor.executemany("INSERT INTO actions VALUES (?, ?, ?)", rows)

        await self._do(write)

    def _open(self, now: float) -> sqlite3.Connection:
        name = ":memory:" if self._path is None else str(self._path)
        try:
            connection = sqlite3.connect(name, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("BEGIN IMMEDIATE")
            if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                for statement in filter(str.strip, _SCHEMA.split(";")):
                    connection.execute(statement)
                rows = [("version", VERSION), ("run", os.urandom(16).hex())]
                connection.executemany("INSERT INTO meta VALUES (?, ?)", rows)
            self._check_version(connection)
            row = (self._owner, os.getpid(), now)
            connection.execute("INSERT INTO drivers VALUES (?, ?, ?)", row)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise CheckpointError(f"cannot use the checkpoint {name}: {error}", reason="CheckpointUnusable") from error
        return connection

    def _check_version(self, connection: sqlite3.Connection) -> None:
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not {"meta", "drivers", "tasks", "actions"} <= tables:
            raise CheckpointError(
                f"cannot use the checkpoint {self._path}: it is a database of another program",
                reason="CheckpointUnusable",
            )
        found = connection.execute("SELECT value FROM meta WHERE name = 'version'").fetchone()
        if found is None or found[0] != VERSION:
            version = found[0] if found else "unknown"
            raise CheckpointError(
                f"cannot use the checkpoint {self._path}: its version is {version}, and this program's is {VERSION};"
                " finish the run with the program that began it, or name a new file",
                reason="CheckpointVersion",
            )

    async def _do(self, work: Callable[[sqlite3.Cursor], Answer]) -> Answer:
        """Run one transaction."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._transaction, work)

    def _transaction(self, work: Callable[[sqlite3.Cursor], Answer]) -> Answer:
        cursor = self._connection.cursor()
        try:
            cursor.execute("BEGIN IMMEDIATE")
            try:
                answer = work(cursor)
                cursor.execute("COMMIT")
            except BaseException:  # Half a transaction must not stay open, whatever ended it.
                if self._connection.in_transaction:
                    cursor.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise CheckpointError(
                f"cannot write the checkpoint {self._path}: {error}", reason="CheckpointUnwritable"
            ) from error
        return answer

    def _take(self, cursor: sqlite3.Cursor, key: str, fingerprint: str, now: float) -> State:
        row = cursor.execute(
            "SELECT fingerprint, owner, attempt, sandbox_id, result FROM tasks WHERE key = ?", (key,)
        ).fetchone()
        if row is None:
            cursor.execute(
                "INSERT INTO tasks (key, fingerprint, owner) VALUES (?, ?, ?)", (key, fingerprint, self._owner)
            )
            return Taken(key, 1, self._request_id(cursor, key, 1))
        known, owner, attempt, sandbox_id, result = row
        if known != fingerprint:
            return Different()
        if result is not None:
            return stored_result(key, result)
        if owner is not None and owner != self._owner and self._lives(cursor, owner, now):
            return Busy()
        cursor.execute("UPDATE tasks SET owner = ? WHERE key = ?", (self._owner, key))
        found = cursor.execute("SELECT action FROM actions WHERE key = ? ORDER BY number", (key,)).fetchall()
        actions = tuple(action for (action,) in found)
        return Taken(key, attempt, self._request_id(cursor, key, attempt), sandbox_id, actions)

    def _lives(self, cursor: sqlite3.Cursor, owner: str, now: float) -> bool:
        found = cursor.execute("SELECT pid, beat FROM drivers WHERE owner = ?", (owner,)).fetchone()
        return found is not None and now - found[1] < DEAD_AFTER and _exists(found[0])

    def _update(self, cursor: sqlite3.Cursor, key: str, change: str, *values: str) -> None:
        cursor.execute(f"UPDATE tasks SET {change} WHERE key = ? AND owner = ?", (*values, key, self._owner))  # noqa: S608  our own words
        if cursor.rowcount != 1:
            raise NotOurs(key)

    def _next_attempt(self, cursor: sqlite3.Cursor, key: str) -> None:
        cursor.execute("DELETE FROM actions WHERE key = ?", (key,))
        self._update(cursor, key, "attempt = attempt + 1, sandbox_id = ''")

    def _request_id(self, cursor: sqlite3.Cursor, key: str, attempt: int) -> str:
        run = cursor.execute("SELECT value FROM meta WHERE name = 'run'").fetchone()[0]
        return hashlib.sha256(f"{run}\0{key}\0{attempt}".encode()).hexdigest()[:32]


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # Another user's.
        return True
    return True


def stored_result(key: str, text: str) -> TaskResult:
    """Read the result of a task as a checkpoint has it. Raises CheckpointError."""
    try:
        return TaskResult.from_json(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"cannot read the result of {key} in the checkpoint: {error}", reason="CheckpointDamaged", subject=key
        ) from error
