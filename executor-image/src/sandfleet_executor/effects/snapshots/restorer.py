"""Fills a session from a snapshot: files and variables beside those that are there, then all at once in their place."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from sandfleet_executor.core.executions.outcomes import Cause
from sandfleet_executor.core.requests import check_id
from sandfleet_executor.core.snapshots.assembly import Assembly, Begin, Bytes, InvalidStream, Step
from sandfleet_executor.core.snapshots.entries import Entry, InvalidEntry, Kind, Totals, Tree
from sandfleet_executor.core.snapshots.session import (
    NoSessionError,
    NotEmptyError,
    NotPreparableError,
    Restored,
    SessionOpenError,
    Wanted,
    kept,
    went_back,
)
from sandfleet_executor.core.suspension.record import InUseError, Record
from sandfleet_executor.effects.contexts.state_store import RESTORING, SUSPENDED, Draft, StateStore
from sandfleet_executor.effects.files.files import new_partial_name
from sandfleet_executor.effects.files.threads import FileThreads
from sandfleet_executor.effects.namespace.children import NamespaceError
from sandfleet_executor.effects.session.session import Session
from sandfleet_executor.effects.snapshots import swap
from sandfleet_executor.effects.snapshots.fill import Filled, Filler
from sandfleet_executor.effects.snapshots.spool import Piece
from sandfleet_executor.effects.snapshots.swap import Mark, MarkFile
from sandfleet_executor.effects.suspension.suspender import INTERRUPT_SECONDS, KILL_SECONDS, Suspender

# Steps that a thread takes at once.
STEPS_AT_ONCE = 256


class StatesWriter:
    """The variables of a snapshot that is being restored, as states that mean nothing yet. Its methods block."""

    def __init__(self, states: StateStore, contexts: frozenset[str]) -> None:
        self._states = states
        self._contexts = contexts
        self._draft: Draft | None = None
        self.names: set[str] = set()

    def take(self, steps: Iterable[Step]) -> None:
        """Raises InvalidEntry and StateError."""
        for step in steps:
            match step:
                case Begin(entry):
                    self._begin(entry)
                case Bytes(_, data) if self._draft:
                    self._draft.write(bytes(data))
                case _ if self._draft:
                    self._draft.commit_whole()
                    self._draft = None

    def _begin(self, entry: Entry) -> None:
        if entry.kind is Kind.DIRECTORY:
            self._states.delete_all(RESTORING)
            return
        name = entry.path.decode("ascii", "replace")
        if name not in self._contexts:
            raise InvalidEntry(f"cannot restore the variables of {name[:80]!r}: there is no such context")
        self._draft = self._states.begin(RESTORING, name, entry.size)
        if entry.size > self._draft.room:
            self.close()
            raise InvalidEntry(f"cannot restore the variables of {name}: they are larger than the sandbox may keep")
        self.names.add(name)

    def close(self) -> None:
        if self._draft:
            self._draft.discard()
            self._draft = None


class Restorer:
    """`workspace_fd` stays its owner's; `folder` outlives the executor, None: nothing does."""

    def __init__(
        self, session: Session, suspender: Suspender, workspace_fd: int, threads: FileThreads, folder: Path | None
    ) -> None:
        self._session = session
        self._suspender = suspender
        self._workspace_fd = workspace_fd
        self._threads = threads
        self._marks = MarkFile(folder)

    async def restore(self, wanted: Wanted, pieces: AsyncIterator[Piece | Totals]) -> Restored:
        """Takes the pieces up to the totals that end them.

        Raises InvalidEntry, InvalidStream, NotEmptyError, NoSessionError, SessionOpenError, NotPreparableError,
        InUseError, BadRequest, StateError and OSError; then the session is as it was.
        """
        await self._check(wanted)
        assembly = Assembly()
        states = StatesWriter(self._session.states, frozenset(one.id for one in wanted.record.contexts))
        try:
            async with self._threads.hold(_nothing, self._filler, Filler.close) as filler:
                sent = await self._receive(assembly, pieces, states, filler)
                assembly.finish(sent)
                contexts = kept(wanted.record.contexts, frozenset(states.names))
                record = replace(wanted.record, contexts=contexts, session_id=self._session.session_id, tries=0)
                filled = await self._threads.run(filler.finish)
                if wanted.prepare:
                    await self._prepare(replace(record, session_id="", snapshot=wanted.prepare), filled)
                    return Restored(assembly.totals, filler.unrestored, ())
                ended = await self._put_in_place(record, filled)
                if wanted.undone_since is not None:
                    self._session.tell(went_back(wanted.undone_since))
                return Restored(assembly.totals, filler.unrestored, ended)
        finally:
            await asyncio.to_thread(states.close)
            await asyncio.to_thread(self._session.states.delete_all, RESTORING)

    async def recover(self) -> None:
        """At the start of an executor, before it serves: finishes what an earlier one has begun to put in place."""
        mark = await asyncio.to_thread(self._marks.read)
        if mark is None:
            return
        await self._exchange(mark)
        await asyncio.to_thread(self._finish, mark)
        await self._threads.run(swap.remove_forced, self._workspace_fd, bytes.fromhex(mark.old))

    def _filler(self) -> Filler:
        return Filler(self._workspace_fd, int(self._session.limits.disk_bytes))

    async def _check(self, wanted: Wanted) -> None:
        session = self._session
        if wanted.prepare:
            self._check_warm()
        elif not session.session_id:
            raise NoSessionError("cannot restore: the sandbox has no session yet")
        for one in wanted.record.contexts:
            check_id("context id", one.id)
        if not wanted.prepare:
            await session.packages.settled(None)
        self._suspender.check(wanted.record)
        if not wanted.replace and not await self._threads.run(swap.is_empty, self._workspace_fd):
            raise NotEmptyError("cannot restore: the workspace is not empty")
        if not (wanted.replace and wanted.force) and (live := session.executions.live()):
            raise InUseError("ExecutionRunning", f"{live[0].id} is running or waiting")

    def _check_warm(self) -> None:
        if self._session.session_id:
            raise SessionOpenError("cannot fill the sandbox: it has a session")
        if not self._suspender.lasts:
            raise NotPreparableError("cannot fill the sandbox: it has no place for variables that wait for a session")

    async def _receive(
        self, assembly: Assembly, pieces: AsyncIterator[Piece | Totals], states: StatesWriter, filler: Filler
    ) -> Totals:
        tree = Tree.VARIABLES
        async for piece in pieces:
            if isinstance(piece, Totals):
                return piece
            steps = list(assembly.feed(*piece))
            for start in range(0, len(steps), STEPS_AT_ONCE):
                tree = await self._take(steps[start : start + STEPS_AT_ONCE], tree, states, filler)
        raise InvalidStream("cannot restore: the stream ended before its end was said")

    async def _take(self, steps: Sequence[Step], tree: Tree, states: StatesWriter, filler: Filler) -> Tree:
        """Writes steps; those of variables with the executor's rights, those of files with the user's."""
        first = next((at for at, step in enumerate(steps) if _is_of(step, Tree.WORKSPACE)), len(steps))
        if tree is Tree.WORKSPACE:
            first = 0
        if steps[:first]:
            await asyncio.to_thread(states.take, steps[:first])
        if steps[first:]:
            await self._threads.run(filler.take, steps[first:])
            return Tree.WORKSPACE
        return tree

    async def _prepare(self, record: Record, filled: Filled) -> None:
        """Of a warm sandbox: no code of a user runs in it, and none begins before all is in place."""
        self._check_warm()
        self._session.restoring = True
        try:
            mark = await self._exchanged(record, filled)
        finally:
            self._session.restoring = False
        self._session.disk.count(0)
        await self._threads.run(swap.remove_forced, self._workspace_fd, bytes.fromhex(mark.old))

    async def _exchanged(self, record: Record, filled: Filled) -> Mark:
        mark = _mark(filled, record)
        await asyncio.to_thread(self._marks.write, mark)
        try:
            await self._exchange(mark)
        except OSError:
            await self._undo(mark)
            raise
        await asyncio.to_thread(self._finish, mark)
        if self._session.mounts.folders():
            # They lead to the folders that were there before.
            await self._session.namespaces.close()
        if self._session.mounts.of_machine():
            # The files API finds those in a namespace alone.
            with contextlib.suppress(NamespaceError):
                await self._session.namespaces.get()
        return mark

    async def _put_in_place(self, record: Record, filled: Filled) -> tuple[str, ...]:
        session = self._session
        session.restoring = True
        try:
            ended = await self._end_what_runs()
            mark = await self._exchanged(record, filled)
        finally:
            session.restoring = False
            session.services.release()
        await self._suspender.take_on(record)
        session.disk.count(0)
        session.journal.put("restored", {"session": record.session_id, "contexts": len(record.contexts)})
        await self._threads.run(swap.remove_forced, self._workspace_fd, bytes.fromhex(mark.old))
        return ended

    async def _end_what_runs(self) -> tuple[str, ...]:
        """Executions, contexts, services, and with the namespace all that is left: nothing writes any more."""
        session = self._session
        running = session.executions.live()
        for one in running:
            one.stop(Cause.INTERRUPT, INTERRUPT_SECONDS)
        await session.executions.ended(INTERRUPT_SECONDS + KILL_SECONDS)
        session.services.hold()
        session.services.apply((), keep_others=False)
        for context in session.contexts.all():
            await session.delete_context(context.id)
        await session.namespaces.close()
        return tuple(one.id for one in running)

    async def _exchange(self, mark: Mark) -> None:
        """The files, with the user's rights, from where the mark says. Raises OSError."""
        if not mark.emptied:
            await self._threads.run(swap.empty, self._workspace_fd, mark)
            mark = replace(mark, emptied=True)
            await asyncio.to_thread(self._marks.write, mark)
        await self._threads.run(swap.fill, self._workspace_fd, mark)

    async def _undo(self, mark: Mark) -> None:
        await self._threads.run(swap.undo, self._workspace_fd, mark)
        self._marks.forget()

    def _finish(self, mark: Mark) -> None:
        """The variables get the names by which the session finds them. Without the mark, the restore has happened."""
        states = self._session.states
        if states.exists:
            states.delete_all(SUSPENDED)
            states.move_all(RESTORING, SUSPENDED)
        self._suspender.keep(mark.record.encode())
        self._marks.forget()


def _mark(filled: Filled, record: Record) -> Mark:
    top = filled.top
    return Mark(
        new=filled.name.hex(),
        old=new_partial_name().hex(),
        late=tuple((name.hex(), mode) for name, mode in filled.late),
        mode=top.mode if top else None,
        modified_ns=top.modified_ns if top else 0,
        record=record.encode().decode("ascii"),
    )


def _is_of(step: Step, tree: Tree) -> bool:
    return isinstance(step, Begin) and step.entry.tree is tree


def _nothing() -> None:
    """There is nothing to close."""
