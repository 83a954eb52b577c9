"""All known executions of the sandbox: running, stored, and held in memory because they could not be stored."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Coroutine, Mapping
from typing import Protocol

from sandfleet_executor.core.errors import RpcError
from sandfleet_executor.core.executions.events import Finished, Started
from sandfleet_executor.core.executions.outcomes import EXECUTOR_RESTARTED, Cause
from sandfleet_executor.core.executions.records import CELL
from sandfleet_executor.effects.executions.execution import AheadError, Execution, Recording, missed_or_read
from sandfleet_executor.effects.executions.store.files import StoreError
from sandfleet_executor.effects.executions.store.log import MAX_IDS, Entry, Store
from sandfleet_executor.effects.executions.store.reader import StoreReader
from sandfleet_executor.effects.executions.store.recorder import Encode, Numbered, Readers, Recorder

# What could not be stored is held in memory while there is room, in bytes and executions.
MAX_UNSTORED_BYTES = 16 << 20
MAX_UNSTORED = 256
# Executions whose results may have come before their records when an executor is killed.
MAX_SHOWN = 64

_log = logging.getLogger(__name__)


class OtherRequestError(RpcError, ValueError, code="ALREADY_EXISTS", reason="ExecutionMismatch"):
    """The id belongs to an execution of another request."""


class ForgottenError(RpcError, ValueError, code="ALREADY_EXISTS", reason="ResultForgotten"):
    """The execution ran, and its events are not kept any more."""


class UnknownExecutionError(RpcError, LookupError, code="NOT_FOUND", reason="ExecutionNotFound"):
    """There is no execution of that id."""


class Replay:
    """An execution that has ended, as it is stored."""

    def __init__(self, store: Store, entry: Entry, readers: Readers, end: Numbered) -> None:
        # What comes behind the stored events, where it could not be stored.
        self._end = end
        self._store = store
        self._entry = entry
        self._readers = readers

    async def batches(self, after: int = 0, seen: int = 0) -> AsyncIterator[Numbered]:
        """As of an Execution."""
        entry = self._entry
        last = self._end[-1][0] if self._end else entry.next - 1
        if after > last:
            raise AheadError(f"cannot go on after event {after} of {entry.begun.id}: it ended with {last}")
        reader, position = StoreReader(self._store.folder, entry), after + 1
        with self._readers.one():
            while position < entry.next:
                found = await asyncio.to_thread(reader.read, position, self._readers.most)
                if not found.events:
                    raise ForgottenError(f"cannot show {entry.begun.id}: it is forgotten")
                batch = found.after(position, seen)
                yield batch
                position = batch[-1][0] + 1
                seen += sum(missed_or_read(event) for _, event in batch)
            if rest := [(number, event) for number, event in self._end if number >= position]:
                yield rest


Stream = Execution | Replay


class Recordings(Protocol):
    """The journal, as executions know it."""

    def begin(self, execution_id: str, kind: int) -> Recording:
        """Of an execution that begins."""

    def lost(self, execution_id: str, kind: int, end: Finished) -> None:
        """One that ran when an earlier executor ended."""

    def shown(self, ended: Mapping[str, int]) -> None:
        """The newest that have ended with an earlier executor, the oldest first: id and kind."""


class Executions:
    def __init__(self, store: Store | None, encode: Encode, recordings: Recordings | None = None) -> None:
        self._store = store
        self._encode = encode
        self._recordings = recordings
        self._readers = Readers()
        self._live: dict[str, Execution] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._unstored: OrderedDict[str, Execution] = OrderedDict()
        # Executions that no store knows: id → kind and fingerprint.
        self._begun: OrderedDict[str, tuple[int, bytes]] = OrderedDict()
        # Why no execution runs any more.
        self._ending = Cause.NONE
        if store:
            if recordings:
                recordings.shown({entry.begun.id: entry.begun.kind for entry in store.newest(MAX_SHOWN) if entry.ended})
            # Now: later, an execution without events could not be told from a forgotten one.
            for entry in store.unfinished():
                self._replay(store, entry)
                if recordings:
                    recordings.lost(entry.begun.id, entry.begun.kind, lost_end())

    def repeated(self, kind: int, execution_id: str, fingerprint: bytes) -> Stream | None:
        """The execution that was started before with the same request; None for an id that is new.

        Raises OtherRequestError and ForgottenError.
        """
        known = self._known(execution_id)
        if known is None:
            return None
        if known != (kind, fingerprint):
            raise OtherRequestError(
                f"cannot start execution {execution_id}: that id was used before, for another request"
            )
        return self._stream(execution_id)

    def find(self, kind: int, execution_id: str) -> Stream:
        """Raises UnknownExecutionError."""
        known = self._known(execution_id)
        if known is None or known[0] != kind:
            what = "cell" if kind == CELL else "command"
            raise UnknownExecutionError(f"cannot attach to {execution_id}: no {what} of that id was started")
        try:
            return self._stream(execution_id)
        except ForgottenError as error:
            raise UnknownExecutionError(f"cannot attach to {execution_id}: what it showed is forgotten") from error

    def begin(self, kind: int, execution_id: str, fingerprint: bytes, output_limit: int) -> Execution:
        """A new execution, noted before it runs."""
        if self._store is None:
            self._remember(kind, execution_id, fingerprint)
            made = Execution(execution_id, output_limit, readers=self._readers)
        else:
            entry = self._store.begin(execution_id, kind, fingerprint)
            failed = ""
            try:
                self._store.note(entry)
            except StoreError as error:
                failed = error.reason
                _log.warning("%s", error)
            recorder = Recorder(self._store, entry, self._encode, failed)
            made = Execution(execution_id, output_limit, recorder, self._readers)
        if self._recordings:
            made.recording = self._recordings.begin(execution_id, kind)
        self._live[execution_id] = made
        if self._ending is not Cause.NONE:
            made.stop(self._ending, 0)
        return made

    def stop_all(self, why: Cause) -> None:
        """The sandbox is ending: all executions end with this cause, and those that begin from now on."""
        self._ending = why
        for execution in self._live.values():
            execution.stop(why, 0)

    @property
    def running(self) -> int:
        """How many run or wait for their turn."""
        return len(self._tasks)

    def live(self) -> list[Execution]:
        """Those that run or wait for their turn, the oldest first."""
        return list(self._live.values())

    def run(self, execution: Execution, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Takes an execution to its end in the background, and the end to the store."""
        task = asyncio.create_task(self._carry(execution, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def ended(self, seconds: float) -> None:
        """Waits until all have ended, for so many seconds at most."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    async def _carry(self, execution: Execution, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        finally:
            await self.end(execution)

    async def end(self, execution: Execution) -> None:
        """Ends the execution: all events are stored, or held in memory while there is room."""
        await execution.settle()
        self._live.pop(execution.id, None)
        execution.close()
        if execution.not_stored:
            self._hold(execution)

    def _known(self, execution_id: str) -> tuple[int, bytes] | None:
        entry = self._store.find(execution_id) if self._store else None
        return (entry.begun.kind, entry.begun.fingerprint) if entry else self._begun.get(execution_id)

    def _stream(self, execution_id: str) -> Stream:
        if found := self._live.get(execution_id) or self._unstored.get(execution_id):
            return found
        store = self._store
        entry = store.find(execution_id) if store else None
        if store and entry and store.tells(entry):
            return self._replay(store, entry)
        raise ForgottenError(
            f"cannot show execution {execution_id}: it was started before, and what it showed is forgotten"
        )

    def _replay(self, store: Store, entry: Entry) -> Replay:
        """What is stored. One that an earlier executor did not bring to an end gets it now."""
        end: Numbered = []
        if not entry.ended:
            end = [(entry.next, lost_end())]
            if entry.next == 1:
                end = [(1, Started(entry.begun.id)), (2, lost_end())]
            recorder = Recorder(store, entry, self._encode)
            try:
                recorder.prepare(end, entry.passed, entry.weight).now()
                end = []
            except StoreError as error:
                # It is the same each time that it is asked for.
                end[-1] = (end[-1][0], lost_end(error.reason))
            recorder.close()
        return Replay(store, entry, self._readers, end)

    def _remember(self, kind: int, execution_id: str, fingerprint: bytes) -> None:
        self._begun[execution_id] = (kind, fingerprint)
        if len(self._begun) > MAX_IDS:
            self._begun.popitem(last=False)

    def _hold(self, execution: Execution) -> None:
        self._unstored[execution.id] = execution
        while len(self._unstored) > MAX_UNSTORED or (
            len(self._unstored) > 1 and sum(one.size for one in self._unstored.values()) > MAX_UNSTORED_BYTES
        ):
            name, _ = self._unstored.popitem(last=False)
            if entry := self._store.find(name) if self._store else None:
                # Its real end is not the one that the store would give it.
                entry.let_go = True


def lost_end(not_stored: str = "") -> Finished:
    """Of an execution that ran when its executor ended."""
    said, lost = EXECUTOR_RESTARTED, ("variables", "processes", "tmp")
    return Finished(said.outcome, said.blame, said.reason, said.message, lost=lost, not_stored=not_stored)
