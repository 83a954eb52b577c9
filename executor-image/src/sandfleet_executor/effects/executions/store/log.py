"""Executions on disk, beside the workspace, where user code cannot see them: their begin, their events, their end.

`ids-N`     one record for each execution, written before its code runs; room for records is taken in advance, so
            that even on a full disk no execution runs twice
`log-N`     the events of executions that show little, all in one file, which is replaced when it is large
`big-N-P`   the events of one that shows more, in a few files of which the oldest goes when there is one more

Whatever a write has returned for survives the end of this process, however it comes. Nothing is synced: a machine that
loses power may lose the last half a minute, as it does of the workspace itself. Files of an earlier process are never
written to again, but for the ids, whose records are all of one size.
"""

import asyncio
import contextlib
from collections import OrderedDict
from dataclasses import dataclass, field

from sandfleet_executor.core.executions import records
from sandfleet_executor.core.executions.records import Begun, Chunk, Kept
from sandfleet_executor.effects.executions.store.files import File, Folder, store_error

# Ids that are known are never run again; those of the oldest executions are forgotten in halves of this.
MAX_IDS = 32_768
ID_ROOM_BYTES = MAX_IDS // 2 * records.ID_BYTES
# So many bytes of events are kept; the oldest go first.
LOG_BYTES = 2 << 20
LOG_FILES = 8
MAX_BIG_BYTES = 64 << 20
# Of one execution: in the log at most, then in so many files of its own.
SMALL_BYTES = 64 << 10
SMALL_CHUNKS = 32
PART_BYTES = 8 << 20
PARTS = 4
# The end goes into the log also where the rest does not, unless it is larger than this.
END_BYTES = 16 << 10


@dataclass(frozen=True, slots=True)
class Extent:
    """Consecutive chunks of one execution, from `offset` to `end`; None is the end of the file."""

    file: str
    offset: int
    end: int | None
    first: int


@dataclass(slots=True)
class Entry:
    """One execution that was begun."""

    begun: Begun
    # Chunks in the log, then files of its own.
    extents: list[Extent] = field(default_factory=list)
    # Bytes in the log, and in each file of its own.
    small: int = 0
    parts: list[int] = field(default_factory=list)
    next: int = 1
    passed: int = 0
    weight: int = 0
    ended: bool = False
    # It has ended in this process, which could not store all of it and holds it no longer.
    let_go: bool = False
    # Its newest own file, while it is live.
    file: File | None = None


class Store:
    """Threads make it, read, and do the writes that go on behind (`Write.behind`); the event loop does the rest."""

    def __init__(self, path: str) -> None:
        """Reads what an earlier process has left. Raises OSError."""
        self.folder = Folder(path)
        self.entries: OrderedDict[str, Entry] = OrderedDict()
        self._by_number: dict[int, Entry] = {}
        self._live: dict[int, Entry] = {}
        self._ids: list[int] = []
        self._ids_file: File | None = None
        self._in_ids: dict[int, int] = {}
        self._logs: list[int] = []
        self._log: File | None = None
        self._in_log: dict[int, list[Entry]] = {}
        # Names of files of big executions → bytes; the oldest first.
        self._big: OrderedDict[str, int] = OrderedDict()
        self._next_log = 1
        # Of executions before this one nothing may be left but their ids.
        self._known_from = 1
        self._next_number = 1
        # The highest in what an earlier process has shown.
        self._last_number = 0
        self._load()
        # Before the disk may be full; else it is tried again with the first execution.
        with contextlib.suppress(OSError):
            if not self._ids:
                self._turn_ids()

    # What is known

    def find(self, execution_id: str) -> Entry | None:
        return self.entries.get(execution_id)

    def has_forgotten(self, entry: Entry) -> bool:
        """Whether it may have shown something that is not kept any more."""
        return not entry.extents and entry.begun.number < self._known_from

    def tells(self, entry: Entry) -> bool:
        """Whether what stands here says how it went, or that it was cut off."""
        if entry.let_go or self.has_forgotten(entry):
            return False
        return bool(entry.extents) or not entry.ended

    def unfinished(self) -> list[Entry]:
        """Those that an earlier process began and did not bring to an end."""
        return [entry for entry in self._by_number.values() if self._is_left(entry)]

    def newest(self, most: int) -> list[Entry]:
        """The executions that were begun last, the oldest of them first."""
        return [self._by_number[number] for number in sorted(self._by_number)[-most:]]

    def _is_left(self, entry: Entry) -> bool:
        return not entry.ended and entry.begun.number not in self._live and not self.has_forgotten(entry)

    # Beginning

    def begin(self, execution_id: str, kind: int, fingerprint: bytes) -> Entry:
        """Notes that it begins, before it does.

        Where that fails it is known to this process alone: see `Writer.failed`.
        """
        number = self._next_number
        self._next_number += 1
        entry = Entry(Begun(execution_id, number, kind, fingerprint))
        self.entries[execution_id] = entry
        self._by_number[number] = self._live[number] = entry
        if len(self.entries) > MAX_IDS:
            self._forget_oldest()
        return entry

    def note(self, entry: Entry) -> None:
        """Writes the id of an execution that begins. Raises StoreError."""
        try:
            if self._ids_file is None or self._in_ids[self._ids[-1]] >= MAX_IDS // 2:
                self._turn_ids()
            assert self._ids_file is not None
            self._ids_file.append(records.encode_id(entry.begun))
        except OSError as error:
            raise store_error(error) from error
        self._in_ids[self._ids[-1]] += 1

    def _turn_ids(self) -> None:
        generation = self._ids[-1] + 1 if self._ids else 1
        file = File(self.folder, f"ids-{generation}")
        file.reserve(ID_ROOM_BYTES)
        if self._ids_file:
            self._ids_file.close()
        self._ids_file = file
        self._ids.append(generation)
        self._in_ids[generation] = 0
        while len(self._ids) > 2:
            oldest = self._ids.pop(0)
            del self._in_ids[oldest]
            self.folder.remove(f"ids-{oldest}")

    def _forget_oldest(self) -> None:
        oldest = next((entry for entry in self.entries.values() if entry.begun.number not in self._live), None)
        if oldest:
            del self.entries[oldest.begun.id]
            self._by_number.pop(oldest.begun.number, None)
            self._drop_parts(oldest)

    # Writing

    def place(self, entry: Entry, chunk: Chunk, data: bytes) -> "Write":
        """Where the next events of an execution go. Raises StoreError."""
        size = len(data)
        try:
            if _is_small(entry, chunk, size):
                if self._log is None or self._log.end + size > LOG_BYTES:
                    self._turn_log()
                assert self._log is not None
                return Write(self, entry, chunk, data, self._log)
            if entry.file is None or entry.file.end + size > PART_BYTES:
                self._turn_part(entry, chunk.first)
            assert entry.file is not None
            return Write(self, entry, chunk, data, entry.file)
        except OSError as error:
            raise store_error(error) from error

    def placed(self, write: "Write", offset: int) -> None:
        """It is written."""
        entry, file = write.entry, write.file
        if file is self._log:
            self._add_small(entry, self._logs[-1], offset, write.chunk, len(write.data))
        else:
            self._big[file.name] = file.end
            self._bound_big(entry)
        self._count(entry, write.chunk)

    def release(self, entry: Entry) -> None:
        """Nothing more is written of it."""
        self._close(entry)
        self._live.pop(entry.begun.number, None)

    @staticmethod
    def _close(entry: Entry) -> None:
        if entry.file:
            entry.file.close()
        entry.file = None

    def _add_small(self, entry: Entry, log: int, offset: int, chunk: Chunk, size: int) -> None:
        entry.extents.append(Extent(f"log-{log}", offset, offset + size, chunk.first))
        entry.small += size
        self._in_log[log].append(entry)

    def _turn_log(self) -> None:
        number = self._next_log
        file = File(self.folder, f"log-{number}")
        # Also executions whose end neither an earlier process nor this one could write.
        open_ones = [*self._live.values(), *self.unfinished()]
        begun = [entry.begun.number for entry in open_ones if not entry.extents]
        first = min(begun, default=self._next_number)
        file.append(records.encode_chunk(records.LOG_START, first, 0, 0, [Kept(b"", 0, 0)], ended=False)[1])
        self._next_log += 1
        if self._log:
            self._log.close()
        self._log = file
        self._logs.append(number)
        self._in_log[number] = []
        while len(self._logs) > LOG_FILES:
            self._drop_log(self._logs.pop(0))

    def _drop_log(self, number: int) -> None:
        name = f"log-{number}"
        for entry in self._in_log.pop(number):
            entry.extents = [extent for extent in entry.extents if extent.file != name]
            if entry.begun.number not in self._live:
                # Without its start or its end the rest is of no use.
                self._drop_parts(entry)
                entry.extents = []
        self.folder.remove(name)

    def _turn_part(self, entry: Entry, first: int) -> None:
        part = entry.parts[-1] + 1 if entry.parts else 1
        file = File(self.folder, f"big-{entry.begun.number}-{part}")
        self._close(entry)
        entry.file = file
        entry.parts.append(part)
        entry.extents.append(Extent(file.name, 0, None, first))
        self._big[file.name] = 0

    def _bound_big(self, entry: Entry) -> None:
        while len(entry.parts) > PARTS:
            self._drop_part(entry, entry.parts[0])
        while sum(self._big.values()) > MAX_BIG_BYTES:
            number, part = map(int, next(iter(self._big)).split("-")[1:])
            oldest = self._by_number.get(number)
            if oldest is None or oldest is entry:
                return
            self._drop_part(oldest, part)

    def _drop_parts(self, entry: Entry) -> None:
        for part in list(entry.parts):
            self._drop_part(entry, part)

    def _drop_part(self, entry: Entry, part: int) -> None:
        name = f"big-{entry.begun.number}-{part}"
        entry.parts.remove(part)
        entry.extents = [extent for extent in entry.extents if extent.file != name]
        self._big.pop(name, None)
        self.folder.remove(name)

    # Coming back

    def _load(self) -> None:
        found = self.folder.names()
        for prefix, numbers in found:
            if prefix == "ids":
                self._load_ids(numbers[0])
        for prefix, numbers in found:
            if prefix == "log":
                self._load_log(numbers[0])
            elif prefix == "big" and len(numbers) == 2:
                self._load_big(*numbers)
        for entry in self.entries.values():
            entry.extents.sort(key=lambda extent: extent.first)
        # Count those whose id could not be written, too: no other execution may get their number, and their events.
        self._next_number = max([*self._by_number, self._last_number]) + 1

    def _load_ids(self, generation: int) -> None:
        name = f"ids-{generation}"
        begun, end = records.decode_ids(self.folder.read(name))
        for one in begun:
            self.entries[one.id] = self._by_number[one.number] = Entry(one)
        if self._ids_file:
            self._ids_file.close()
        self._ids_file = File(self.folder, name, end)
        self._ids.append(generation)
        self._in_ids[generation] = len(begun)

    def _load_log(self, number: int) -> None:
        self._next_log = number + 1
        self._logs.append(number)
        self._in_log[number] = []
        data = self.folder.read(f"log-{number}")
        offset = 0
        while chunk := whole_chunk(data, offset):
            size = records.CHUNK_HEADER_BYTES + chunk.size
            if chunk.number == records.LOG_START and number == self._logs[0]:
                self._known_from = chunk.first
            if chunk.number != records.LOG_START:
                self._last_number = max(self._last_number, chunk.number)
            if entry := self._by_number.get(chunk.number):
                self._add_small(entry, number, offset, chunk, size)
                self._count(entry, chunk)
            offset += size

    def _load_big(self, number: int, part: int) -> None:
        name = f"big-{number}-{part}"
        self._last_number = max(self._last_number, number)
        entry = self._by_number.get(number)
        data = self.folder.read(name)
        first = whole_chunk(data, 0)
        if entry is None or first is None:
            self.folder.remove(name)
            return
        offset = 0
        while chunk := whole_chunk(data, offset):
            offset += records.CHUNK_HEADER_BYTES + chunk.size
            self._count(entry, chunk)
        entry.parts.append(part)
        # What stands behind was cut off.
        entry.extents.append(Extent(name, 0, offset, first.first))
        self._big[name] = len(data)

    @staticmethod
    def _count(entry: Entry, chunk: Chunk) -> None:
        """Where the next event of the execution would stand."""
        if chunk.next > entry.next:
            entry.next, entry.passed, entry.weight = chunk.next, chunk.passed_after, chunk.weight_after
        entry.ended = entry.ended or chunk.ended


def _is_small(entry: Entry, chunk: Chunk, size: int) -> bool:
    """Whether it goes into the log."""
    if chunk.ended and size <= END_BYTES:
        return True
    return not entry.parts and entry.small + size <= SMALL_BYTES and len(entry.extents) < SMALL_CHUNKS


@dataclass
class Write:
    """A chunk that is about to be written to a file."""

    store: Store
    entry: Entry
    chunk: Chunk
    data: bytes
    file: File

    def now(self) -> None:
        """Raises StoreError."""
        try:
            offset = self.file.append(self.data)
        except OSError as error:
            raise store_error(error) from error
        self.store.placed(self, offset)

    async def behind(self) -> None:
        """In a thread; not to be cancelled. Raises StoreError."""
        try:
            offset = await asyncio.to_thread(self.file.append, self.data)
        except OSError as error:
            raise store_error(error) from error
        self.store.placed(self, offset)


def whole_chunk(data: bytes, offset: int) -> Chunk | None:
    """The chunk at the offset; None where there is none, or where it was cut off."""
    view = data[offset : offset + records.CHUNK_HEADER_BYTES]
    chunk = records.decode_header(view)
    if chunk is None or not records.is_whole(data[offset : offset + records.CHUNK_HEADER_BYTES + chunk.size], chunk):
        return None
    return chunk
