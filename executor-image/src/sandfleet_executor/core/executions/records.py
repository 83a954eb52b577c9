"""The records in the files of the store. Each has a checksum, which tells a record that was cut off.

An id record says that an execution was begun; they are all of one size. A chunk holds some events of one execution.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sandfleet_executor.core.executions.events import Stored

CELL, COMMAND = 1, 2
FINGERPRINT_BYTES = 16

_CRC = struct.Struct("<I")
# number, kind, length of the id, fingerprint, id
_ID = struct.Struct("<QBB2x16s64s")
ID_BYTES = _CRC.size + _ID.size

# Payload bytes, number of the execution, first event, output and weight before it and behind the last, events, end
_CHUNK = struct.Struct("<IQQQQQQIB3x")
CHUNK_HEADER_BYTES = _CRC.size + _CHUNK.size
# In place of an execution's number, at the start of a file: executions from `first` on have all that they wrote there
# or later.
LOG_START = 1 << 63
# size of the message, output in it, weight of the event
_EVENT = struct.Struct("<III")


@dataclass(frozen=True, slots=True)
class Begun:
    """An execution that was begun: its number, its kind, and the fingerprint of its request."""

    id: str
    number: int
    kind: int
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class Chunk:
    """Events of one execution, as they stand behind the header."""

    number: int
    first: int
    count: int
    # Bytes of output and of events (as in memory) before the first, and up to the last.
    passed: int
    weight: int
    passed_after: int
    weight_after: int
    ended: bool
    # Bytes of the payload.
    size: int

    @property
    def next(self) -> int:
        """Number of the event after the last."""
        return self.first + self.count


@dataclass(frozen=True, slots=True)
class Kept:
    """An event to be stored: its message, the bytes of output in it, its size in memory."""

    data: bytes
    output: int
    weight: int


def encode_id(begun: Begun) -> bytes:
    name = begun.id.encode("ascii")
    body = _ID.pack(begun.number, begun.kind, len(name), begun.fingerprint, name)
    return _CRC.pack(zlib.crc32(body)) + body


def decode_ids(data: bytes) -> tuple[list[Begun], int]:
    """All good records, and the offset behind the last of them.

    One that was cut off is passed over: it never counted.
    """
    found, end = [], 0
    for offset in range(0, len(data) - ID_BYTES + 1, ID_BYTES):
        body = data[offset + _CRC.size : offset + ID_BYTES]
        if _CRC.unpack_from(data, offset)[0] != zlib.crc32(body):
            continue
        number, kind, length, fingerprint, name = _ID.unpack(body)
        if not number:
            continue
        found.append(Begun(name[:length].decode("ascii", "replace"), number, kind, fingerprint))
        end = offset + ID_BYTES
    return found, end


def encode_chunk(
    number: int, first: int, passed: int, weight: int, events: Sequence[Kept], *, ended: bool
) -> tuple[Chunk, bytes]:
    parts = [
        part for event in events for part in (_EVENT.pack(len(event.data), event.output, event.weight), event.data)
    ]
    size = sum(map(len, parts))
    after = passed + sum(event.output for event in events), weight + sum(event.weight for event in events)
    header = _CHUNK.pack(size, number, first, passed, weight, *after, len(events), ended)
    crc = zlib.crc32(header)
    for part in parts:
        crc = zlib.crc32(part, crc)
    chunk = Chunk(number, first, len(events), passed, weight, *after, ended, size)
    return chunk, b"".join((_CRC.pack(crc), header, *parts))


def decode_header(data: bytes) -> Chunk | None:
    """What a header says, unchecked; None where there is none."""
    if len(data) < CHUNK_HEADER_BYTES:
        return None
    size, number, first, passed, weight, passed_after, weight_after, count, ended = _CHUNK.unpack_from(data, _CRC.size)
    if not number or not count:
        return None
    return Chunk(number, first, count, passed, weight, passed_after, weight_after, bool(ended), size)


def is_whole(data: bytes, chunk: Chunk) -> bool:
    """Whether header and payload are as they were written."""
    end = CHUNK_HEADER_BYTES + chunk.size
    return len(data) >= end and _CRC.unpack_from(data)[0] == zlib.crc32(memoryview(data)[_CRC.size : end])


def events_of(chunk: Chunk, payload: bytes) -> Iterator[tuple[int, int, Stored]]:
    """(number, weight in memory, event) of a chunk that is whole."""
    offset = 0
    for number in range(chunk.first, chunk.next):
        size, output, weight = _EVENT.unpack_from(payload, offset)
        offset += _EVENT.size
        last = chunk.ended and number == chunk.next - 1
        yield number, weight, Stored(payload[offset : offset + size], output, last)
        offset += size
