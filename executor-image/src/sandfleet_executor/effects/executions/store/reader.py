"""Reads the stored events of one execution."""

import contextlib
import os
from dataclasses import dataclass, field

from sandfleet_executor.core.executions import records
from sandfleet_executor.core.executions.events import Event, Gap, Stored
from sandfleet_executor.core.executions.records import Chunk
from sandfleet_executor.effects.executions.store.files import Folder
from sandfleet_executor.effects.executions.store.log import Entry, Extent


@dataclass(frozen=True, slots=True)
class Found:
    """Events that stand one behind the other. Without any there is nothing from the position on."""

    events: list[tuple[int, Stored]] = field(default_factory=list)
    # Bytes of output before the first, and of events (as in memory) up to the last.
    passed: int = 0
    weight: int = 0

    def after(self, position: int, seen: int) -> list[tuple[int, Event]]:
        """With a gap for the events missing since `position`; `seen` is the output up to there, in bytes."""
        first = self.events[0][0]
        if first == position:
            return [*self.events]
        gap = Gap(stream=0, dropped_bytes=max(0, self.passed - seen), dropped_events=first - position)
        return [(first - 1, gap), *self.events]


class StoreReader:
    """Blocks on the disk: to be called in a thread, by one at a time."""

    def __init__(self, folder: Folder, entry: Entry) -> None:
        self._folder = folder
        self._entry = entry
        # Where the last read ended, so that the next need not look from the start of the file.
        self._file, self._offset = "", 0

    def read(self, position: int, most: int) -> Found:
        """The events from `position`, or from the first that is kept behind it, of at most `most` bytes or one."""
        extents = list(self._entry.extents)
        for index, extent in enumerate(extents):
            if index + 1 < len(extents) and extents[index + 1].first <= position:
                continue
            # It may have been removed meanwhile, for newer ones.
            with contextlib.suppress(FileNotFoundError):
                found = self._read(extent, position, most)
                if found.events:
                    return found
        return Found()

    def _read(self, extent: Extent, position: int, most: int) -> Found:
        fd = self._folder.open(extent.file, os.O_RDONLY)
        try:
            return self._scan(fd, extent, position, most)
        finally:
            os.close(fd)

    def _scan(self, fd: int, extent: Extent, position: int, most: int) -> Found:
        offset = extent.offset
        if self._file == extent.file and self._offset >= offset:
            offset = self._offset
        while extent.end is None or offset < extent.end:
            chunk = records.decode_header(os.pread(fd, records.CHUNK_HEADER_BYTES, offset))
            if chunk is None or chunk.number != self._entry.begun.number:
                break
            size = records.CHUNK_HEADER_BYTES + chunk.size
            if chunk.next > position:
                data = os.pread(fd, size, offset)
                # What cannot be read is missing: the gap before the next says so.
                if records.is_whole(data, chunk):
                    self._file, self._offset = extent.file, offset
                    return _take(chunk, data, position, most)
            offset += size
        return Found()


def _take(chunk: Chunk, data: bytes, position: int, most: int) -> Found:
    events: list[tuple[int, Stored]] = []
    passed, weight, size = chunk.passed, chunk.weight, 0
    for number, heavy, event in records.events_of(chunk, data[records.CHUNK_HEADER_BYTES :]):
        if number >= position:
            size += event.size
            if events and size > most:
                break
            events.append((number, event))
        else:
            passed += event.output
        weight += heavy
    return Found(events, passed, weight)
