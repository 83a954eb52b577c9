"""What a host knows of its calls, in a file: a process that goes on after a kill answers from it, and runs none twice.

A call is written down before its tool runs, and its answer before it is sent. The file also has the id of the host: the
executor takes each process that opens it for the same host. One process has it open at a time.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sandfleet.errors import InvalidArgument, PreconditionFailed
from sandfleet.tools.ledger import MAX_EXECUTIONS, Answer, Failure, Kind
from sandfleet.tools.values import Wire

if TYPE_CHECKING:
    from sandfleet.tools.ledger import Received, Used

Done = TypeVar("Done")

_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS host (id TEXT NOT NULL, sandbox TEXT NOT NULL, version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS calls (id TEXT PRIMARY KEY, failure TEXT, json BLOB, blobs BLOB, sizes TEXT);
CREATE TABLE IF NOT EXISTS used (tool TEXT PRIMARY KEY, ran INTEGER NOT NULL, spent REAL NOT NULL);
CREATE TABLE IF NOT EXISTS callers (caller TEXT, tool TEXT, ran INTEGER NOT NULL, PRIMARY KEY (caller, tool));
"""
# A row that is written again gets the highest number: those that called longest ago are forgotten first.
_FORGET_CALLERS = "DELETE FROM callers WHERE rowid <= (SELECT max(rowid) FROM callers) - ?"


@dataclass(frozen=True, slots=True)
class Kept:
    """What a host before has left.

    calls    the answer of each call that it ran, or None where it has none.
    used     of each tool, how many calls have run, and what they have cost.
    callers  of each execution or service, how many calls of each tool it has made.
    """

    host_id: str = field(default_factory=lambda: os.urandom(16).hex())
    calls: Mapping[str, Answer | None] = field(default_factory=dict)
    used: Mapping[str, Used] = field(default_factory=dict)
    callers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


class NoFile:
    """Keeps nothing."""

    async def begun(self, call: Received, used: Used, of_caller: int) -> None:
        """The call is about to run, as one of so many of its caller. Raises OSError where it cannot be written down."""

    async def finished(self, call_id: str, answer: Answer) -> None:
        """The call has run; its answer goes out after this."""

    def forget(self, call_id: str, *, unless_running: bool) -> None:
        """Its answer has arrived, or is not wanted."""

    def forget_others(self, outstanding: Collection[str]) -> None:
        """Forget all calls but these."""

    async def close(self) -> None:
        """Let another process have it."""


class CallsFile(NoFile):
    """An SQLite database in a file of this user alone; it is to be on a disk of this machine."""

    def __init__(self, path: Path) -> None:
        """Use `opened`."""
        self._path = path
        # One thread, so that what is written keeps its order.
        self._thread = ThreadPoolExecutor(1, "sandfleet-calls")
        self._database: sqlite3.Connection

    @classmethod
    async def opened(cls, path: Path, sandbox_id: str) -> tuple[CallsFile, Kept]:
        """Open it, or make it; with what it has. Raises InvalidArgument, and PreconditionFailed (CallsFileInUse)."""
        made = cls(path)
        try:
            return made, await made._do(lambda: made._open(sandbox_id))
        except BaseException:  # Also a cancellation: the caller never gets the file.
            await made.close()
            raise

    def _open(self, sandbox_id: str) -> Kept:
        try:
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._database = sqlite3.connect(self._path, timeout=0.2, isolation_level=None)
            # Held until the end of this process, also where it is killed.
            self._database.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._database.execute("PRAGMA synchronous=FULL")
            self._database.execute("BEGIN EXCLUSIVE")
            for statement in _SCHEMA.split(";"):
                self._database.execute(statement)
            kept = self._read(sandbox_id)
            self._database.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise InvalidArgument(f"cannot keep calls in {self._path}: {error}") from error
            why = "another process, or another server of this one, has it open"
            raise PreconditionFailed(f"cannot keep calls in {self._path}: {why}", reason="CallsFileInUse") from error
        except (sqlite3.Error, OSError, ValueError) as error:
            raise InvalidArgument(f"cannot keep calls in {self._path}: {error}") from error
        return kept

    def _read(self, sandbox_id: str) -> Kept:
        """Raises ValueError."""
        rows = self._database.execute("SELECT id, sandbox, version FROM host").fetchall()
        if not rows:
            kept = Kept()
            self._database.execute("INSERT INTO host VALUES (?, ?, ?)", (kept.host_id, sandbox_id, _VERSION))
            return kept
        ((host_id, sandbox, version),) = rows
        if version != _VERSION or sandbox != sandbox_id:
            raise ValueError(f"it has the calls of sandbox {sandbox}, in version {version}")
        calls = {row[0]: _answer(*row[1:]) for row in self._database.execute("SELECT * FROM calls")}
        used = {tool: (ran, spent) for tool, ran, spent in self._database.execute("SELECT * FROM used")}
        callers: dict[str, dict[str, int]] = {}
        for caller, tool, ran in self._database.execute("SELECT * FROM callers ORDER BY rowid"):
            callers.setdefault(caller, {})[tool] = ran
        return Kept(host_id, calls, used, callers)

    async def begun(self, call: Received, used: Used, of_caller: int) -> None:
        counted = (call.caller, call.tool, of_caller)

        def write() -> None:
            with self._transaction():
                self._database.execute("INSERT OR REPLACE INTO calls (id) VALUES (?)", (call.id,))
                self._database.execute("INSERT OR REPLACE INTO used VALUES (?, ?, ?)", (call.tool, *used))
                self._database.execute("INSERT OR REPLACE INTO callers VALUES (?, ?, ?)", counted)
                self._database.execute(_FORGET_CALLERS, (MAX_EXECUTIONS,))

        try:
            await self._do(write)
        except sqlite3.Error as error:
            raise OSError(f"cannot write to {self._path}: {error}") from error

    async def finished(self, call_id: str, answer: Answer) -> None:
        """Write the answer down. Where that fails, the file says on that the call may have run, which is so."""
        row = _row(answer)
        statement = "UPDATE calls SET failure = ?, json = ?, blobs = ?, sizes = ? WHERE id = ?"
        await self._quietly(lambda: self._database.execute(statement, (*row, call_id)))

    def forget(self, call_id: str, *, unless_running: bool) -> None:
        """Its answer has arrived, or is not wanted; `unless_running`: where it has one."""
        statement = "DELETE FROM calls WHERE id = ? AND (? OR failure IS NOT NULL OR json IS NOT NULL)"
        self._later(lambda: self._database.execute(statement, (call_id, not unless_running)))

    def forget_others(self, outstanding: Collection[str]) -> None:
        """Forget all calls but these."""

        def delete() -> None:
            known = [row[0] for row in self._database.execute("SELECT id FROM calls")]
            gone = [(call_id,) for call_id in known if call_id not in outstanding]
            with self._transaction():
                self._database.executemany("DELETE FROM calls WHERE id = ?", gone)

        self._later(delete)

    async def close(self) -> None:
        """Let another process have it. Closing twice is no error."""

        def end() -> None:
            if hasattr(self, "_database"):
                self._database.close()

        try:
            await self._do(end)
        except RuntimeError:
            # It is closed already.
            return
        self._thread.shutdown(wait=False)

    def _transaction(self) -> sqlite3.Connection:
        self._database.execute("BEGIN")
        return self._database

    async def _do(self, work: Callable[[], Done]) -> Done:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _quietly(self, work: Callable[[], object]) -> None:
        try:
            await self._do(work)
        except sqlite3.Error:
            return

    def _later(self, work: Callable[[], object]) -> None:
        """What is not forgotten is forgotten by the next stream."""
        self._thread.submit(work)


def _row(answer: Answer) -> tuple[str | None, bytes | None, bytes | None, str | None]:
    if isinstance(answer, Wire):
        return None, answer.json, b"".join(answer.blobs), json.dumps([len(each) for each in answer.blobs])
    return json.dumps([answer.kind, answer.reason, answer.message, answer.may_have_run]), None, None, None


def _answer(failure: str | None, text: bytes | None, blobs: bytes | None, sizes: str | None) -> Answer | None:
    if failure is not None:
        kind, reason, message, may_have_run = json.loads(failure)
        return Failure(Kind(kind), reason, message, may_have_run)
    if text is None or blobs is None:
        return None
    parts, at = [], 0
    for size in json.loads(sizes or "[]"):
        parts.append(blobs[at : at + size])
        at += size
    return Wire(text, tuple(parts))


async def keeping_calls(path: str | PathLike[str] | None, sandbox_id: str) -> tuple[NoFile, Kept]:
    """The file of this path, with what it has; None: nothing is kept. Raises as `CallsFile.opened`."""
    if path is None:
        return NoFile(), Kept()
    return await CallsFile.opened(Path(path), sandbox_id)
