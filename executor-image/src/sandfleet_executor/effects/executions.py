"""All executions of the sandbox that are known: those that run, those that are stored, and those that could not be."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator

from sandfleet_executor.core.events import Finished, Started
from sandfleet_executor.core.outcomes import EXECUTOR_RESTARTED
from sandfleet_executor.core.records import CELL
from sandfleet_executor.effects.execution import AheadError, Execution, missed_or_read
from sandfleet_executor.effects.journal import Encode, Journal, Numbered, Readers
from sandfleet_executor.effects.store import MAX_IDS, Entry, Store
from sandfleet_executor.effects.storefiles import StoreError
from sandfleet_executor.effects.storereader import StoreReader

# What could not be stored is held in memory while there is room, in bytes and executions.
MAX_UNSTORED_BYTES = 16 << 20
MAX_UNSTORED = 256

_log = logging.getLogger(__name__)


class OtherRequestError(ValueError):
    """An execution of that id was another one."""


class ForgottenError(ValueError):
    """It ran, and what it showed is not kept any more."""


class UnknownExecutionError(LookupError):
    """There is none of that id."""


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


class Executions:
    def __init__(self, store: Store | None, encode: Encode) -> None:
        self._store = store
        self._encode = encode
        self._readers = Readers()
        self._live: dict[str, Execution] = {}
        self._unstored: OrderedDict[str, Execution] = OrderedDict()
        # Of those that no store knows: id → kind and fingerprint.
        self._begun: OrderedDict[str, tuple[int, bytes]] = OrderedDict()
        if store:
            # Now: to a later look one that had shown nothing could not be told from one that is forgotten.
            for entry in store.unfinished():
                self._replay(store, entry)

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
            journal = Journal(self._store, entry, self._encode, failed)
            made = Execution(execution_id, output_limit, journal, self._readers)
        self._live[execution_id] = made
        return made

    async def end(self, execution: Execution) -> None:
        """It has come to its end: all of it is stored, or held while there is room."""
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
            journal = Journal(store, entry, self._encode)
            try:
                journal.prepare(end, entry.passed, entry.weight).now()
                end = []
            except StoreError as error:
                # It is the same each time that it is asked for.
                end[-1] = (end[-1][0], lost_end(error.reason))
            journal.close()
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
                # Its end is known to have been another than what is stored says.
                entry.let_go = True


def lost_end(not_stored: str = "") -> Finished:
    """Of an execution that ran when its executor ended."""
    said, lost = EXECUTOR_RESTARTED, ("variables", "processes", "tmp")
    return Finished(said.outcome, said.blame, said.reason, said.message, lost=lost, not_stored=not_stored)
