"""The files of a journal: what is in one, and which go when there are too many."""

from collections.abc import Sequence
from dataclasses import dataclass

from sandfleet_executor.core.journal import records
from sandfleet_executor.core.journal.records import BadRecordError, Head

# A file takes records up to this size; so many bytes are kept in all, also of the journals of earlier pods.
SEGMENT_BYTES = 4 << 20
MAX_BYTES = 64 << 20
# One message of a reader, unless one line is larger.
MESSAGE_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Segment:
    """One file: where it is, its first record, its bytes."""

    journal: int
    first: int
    size: int

    @property
    def name(self) -> str:
        return name_of(self.journal, self.first)


@dataclass(frozen=True, slots=True)
class Scan:
    """What is good in a file: the head before its first record and the newest, and the bytes up to there."""

    before: Head
    head: Head
    size: int
    # A whole line stands behind that, which does not follow: more than a write that was cut off.
    damaged: bool = False


def name_of(journal: int, first: int) -> str:
    """Of the file with the records from `first` on."""
    return f"{journal}-{first}"


def parse_name(name: str) -> tuple[int, int] | None:
    """(journal, first record); None for another file."""
    parts = name.split("-")
    if len(parts) != 2 or not all(part.isascii() and part.isdecimal() and len(part) < 20 for part in parts):
        return None
    return int(parts[0]), int(parts[1])


def scan(data: bytes) -> Scan | None:
    """Reads a file from its begin; None where its first line is no whole record."""
    end = data.find(b"\n")
    try:
        if end < 0:
            return None
        first = records.read(data[:end])
    except BadRecordError:
        return None
    before = Head(first.head.number - 1, first.prev)
    head, offset = first.head, end + 1
    while (end := data.find(b"\n", offset)) >= 0:
        try:
            record = records.read(data[offset:end])
        except BadRecordError:
            return Scan(before, head, offset, damaged=True)
        if not records.follows(record, head):
            return Scan(before, head, offset, damaged=True)
        head, offset = record.head, end + 1
    return Scan(before, head, offset)


def surplus(kept: Sequence[Segment], most: int = MAX_BYTES) -> list[Segment]:
    """The oldest segments, which have to go so that `most` bytes are kept. The newest stays in any case."""
    total, gone = sum(each.size for each in kept), []
    for each in kept[:-1]:
        if total <= most:
            break
        total -= each.size
        gone.append(each)
    return gone


def whole_lines(data: bytes) -> int:
    """Bytes of the lines in `data` that are whole, up to one message; the first one also where it is larger."""
    end = data.rfind(b"\n", 0, MESSAGE_BYTES) + 1
    return end or data.find(b"\n") + 1
