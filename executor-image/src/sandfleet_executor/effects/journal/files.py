"""The files of the journal, by descriptors. Whatever a write has returned for survives the end of this process."""

import contextlib
import json
import os
from collections.abc import Iterator

from sandfleet_executor.core.journal import segments
from sandfleet_executor.core.journal.segments import Segment
from sandfleet_executor.effects.executions.store.files import Folder

# Bytes that a reader takes at once.
BLOCK_BYTES = 256 << 10
ABOUT_BYTES = 4096


class LineFile:
    """A file of whole lines that is only appended to."""

    def __init__(self, folder: Folder, name: str, size: int = 0) -> None:
        """Cuts off what stands behind `size`. Raises OSError."""
        self.size = size
        self._fd = folder.open(name, os.O_RDWR | os.O_CREAT)
        os.ftruncate(self._fd, size)

    def append(self, line: bytes) -> None:
        """All of it or nothing. Raises OSError."""
        written = 0
        try:
            while written < len(line):
                written += os.pwrite(self._fd, line[written:], self.size + written)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self.size)
            raise
        self.size += len(line)

    def close(self) -> None:
        os.close(self._fd)


def found(folder: Folder) -> list[Segment]:
    """The segments of all journals, in order. Raises OSError."""
    names = (segments.parse_name(name) for name in folder.listed())
    return [
        Segment(journal, first, folder.size(segments.name_of(journal, first)))
        for journal, first in sorted(name for name in names if name)
    ]


def write_about(folder: Folder, journal: int, pod: str, session: str) -> None:
    """Whose journal it is. Raises OSError."""
    text = json.dumps({"pod": pod, "session": session}).encode()
    name = f"about-{journal}"
    fd = folder.open(f"{name}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        os.write(fd, text)
    finally:
        os.close(fd)
    folder.rename(f"{name}.new", name)


def read_about(folder: Folder, journal: int) -> tuple[str, str]:
    """(pod, session); empty where it cannot be read."""
    try:
        values = json.loads(folder.read(f"about-{journal}")[:ABOUT_BYTES])
        return str(values["pod"]), str(values["session"])
    except (OSError, ValueError, KeyError, TypeError):
        return "", ""


def lines_of(folder: Folder, segment: Segment, skip: int) -> Iterator[bytes]:
    """Whole lines of a segment up to its size, in messages, without the first `skip` lines. Raises OSError."""
    fd = folder.open(segment.name, os.O_RDONLY)
    try:
        offset, rest = 0, b""
        while offset < segment.size:
            block = os.pread(fd, min(BLOCK_BYTES, segment.size - offset), offset)
            if not block:
                return
            offset += len(block)
            rest += block
            start = 0
            while skip and (end := rest.find(b"\n", start) + 1):
                start, skip = end, skip - 1
            rest = rest[start:]
            while not skip and (size := segments.whole_lines(rest)):
                if size == len(rest) and size < segments.MESSAGE_BYTES and offset < segment.size:
                    break
                yield rest[:size]
                rest = rest[size:]
    finally:
        os.close(fd)
