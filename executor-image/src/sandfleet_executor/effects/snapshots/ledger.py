"""Which files a save has read, so that the next one need not read them again: path and stamp, in the order of the walk.

A stamp (inode, size, time of modification, time of change) says that a file is as it was when
- its pages were written back before it was read, so that the next store through a mapping changes its time, too,
- it had the stamp before and after it was read,
- the stamp was older than `YOUNG_NS` when the walk began: a change that follows has another time.
Code in a sandbox can set no time of change, and no clock. `tells_changes` tries all of it on the file system at hand.
"""

import contextlib
import marshal
import mmap
import os
import struct
import time
from collections.abc import Callable, Iterator
from typing import BinaryIO

from sandfleet_executor.core.snapshots.entries import Names, Stamp
from sandfleet_executor.effects import linux
from sandfleet_executor.effects.files.files import new_partial_name

# A time of change that is younger may stand for two changes: clocks of file systems tick every few milliseconds.
YOUNG_NS = 2_000_000_000
# How far the times of a file system may be from the clock of this machine.
OWN_CLOCK_NS = 1_000_000_000
# Longer than such a tick, in seconds.
TICK = 0.02
_PREFIX = struct.Struct(">I")
_PAGE = 4096

Line = tuple[Names, Stamp]


class Ledger:
    """Written by one save, then read by the next."""

    def __init__(self, fd: int) -> None:
        """Takes the descriptor over, of a file without a name."""
        self.save_id = os.urandom(16).hex()
        self._file: BinaryIO = os.fdopen(fd, "w+b", buffering=1 << 16)

    def put(self, path: bytes, stamp: Stamp) -> None:
        """Raises OSError."""
        record = marshal.dumps((path, stamp.inode, stamp.size, stamp.modified_ns, stamp.changed_ns))
        self._file.write(_PREFIX.pack(len(record)))
        self._file.write(record)

    def __iter__(self) -> Iterator[Line]:
        self._file.seek(0)
        while prefix := self._file.read(_PREFIX.size):
            path, *stamp = marshal.loads(self._file.read(_PREFIX.unpack(prefix)[0]))  # noqa: S302 - our own file
            yield tuple(path.split(b"/")), Stamp(*stamp)

    def close(self) -> None:
        self._file.close()


class Earlier:
    """What an earlier save has read. Asked in the order of the walk."""

    def __init__(self, ledger: Ledger | None) -> None:
        self._lines = iter(ledger) if ledger is not None else iter(())
        self._line = next(self._lines, None)

    def has(self, path: bytes, stamp: Stamp) -> bool:
        """Whether the file of this path has had this stamp."""
        names = tuple(path.split(b"/"))
        while self._line is not None and self._line[0] < names:
            self._line = next(self._lines, None)
        return self._line == (names, stamp)


def is_old(stamp: Stamp, walked_ns: int) -> bool:
    return walked_ns - stamp.changed_ns > YOUNG_NS


def tells_changes(directory_fd: int) -> bool:
    """Whether each change of a file changes its stamp here, also one through a mapping. Blocks for some ticks."""
    try:
        with _file_in(directory_fd) as fd:
            os.write(fd, bytes(_PAGE))
            if abs(os.fstat(fd).st_ctime_ns - time.time_ns()) > OWN_CLOCK_NS:
                # The times are another machine's.
                return False
            with mmap.mmap(fd, _PAGE) as first:
                first[0] = 1
                again = _changes(fd, lambda: first.__setitem__(0, 2))
            with mmap.mmap(fd, _PAGE) as second:
                return again and _changes(fd, lambda: second.__setitem__(0, 3))
    except (OSError, ValueError):
        return False


def _changes(fd: int, change: Callable[[], None]) -> bool:
    linux.write_back(fd)
    before = os.fstat(fd).st_ctime_ns
    time.sleep(TICK)
    change()
    return os.fstat(fd).st_ctime_ns > before


@contextlib.contextmanager
def _file_in(directory_fd: int) -> Iterator[int]:
    """A new file without a name. Leaves no trace in the folder. Raises OSError."""
    flags = os.O_RDWR | os.O_CLOEXEC
    try:
        fd = os.open(b".", os.O_TMPFILE | flags, 0o600, dir_fd=directory_fd)
    except OSError:
        name, times = new_partial_name(), os.fstat(directory_fd)
        fd = os.open(name, os.O_CREAT | os.O_EXCL | flags, 0o600, dir_fd=directory_fd)
        os.unlink(name, dir_fd=directory_fd)
        os.utime(directory_fd, ns=(times.st_atime_ns, times.st_mtime_ns))
    try:
        yield fd
    finally:
        os.close(fd)
