"""What a walk has found, in a file without a name, and the data of its files behind it.

The walk writes it while the session is frozen, so that no slow reader holds the session up.
"""

import marshal
import os
import stat
import struct
import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from sandfleet_executor.core.snapshots.entries import Entry, Kind, Stamp, Tree, Unsaved
from sandfleet_executor.effects import linux
from sandfleet_executor.effects.files.walk import Trail
from sandfleet_executor.effects.snapshots.ledger import Ledger, is_old
from sandfleet_executor.effects.snapshots.scan import READ, reason_of, stamp_of

# Of one piece.
PIECE_BYTES, PIECE_ENTRIES = 256 << 10, 256
_PREFIX = struct.Struct(">I")
_ZEROS = bytes(PIECE_BYTES)

Found = tuple[Entry, Stamp | None, bytes | None]


def unnamed_file(folder: Path) -> int:
    """A descriptor of a file that ends with it. Raises OSError."""
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:
        path = folder / f"spool-{os.getpid()}-{os.urandom(6).hex()}"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        path.unlink()
        return fd


class Spool:
    """Written by one walk, then read once."""

    def __init__(self, fd: int) -> None:
        """Takes the descriptor over."""
        self._file: BinaryIO = os.fdopen(fd, "w+b", buffering=1 << 20)

    def put(self, entry: Entry, stamp: Stamp | None, data: bytes | None) -> None:
        """Raises OSError."""
        record = marshal.dumps((_plain(entry), _plain_stamp(stamp) if stamp else (), data))
        self._file.write(_PREFIX.pack(len(record)))
        self._file.write(record)

    def __iter__(self) -> Iterator[Found]:
        self._file.seek(0)
        while prefix := self._file.read(_PREFIX.size):
            entry, stamp, data = marshal.loads(self._file.read(_PREFIX.unpack(prefix)[0]))  # noqa: S302 - our own file
            yield _entry(entry), Stamp(*stamp) if stamp else None, data

    def close(self) -> None:
        self._file.close()


def _plain(entry: Entry) -> tuple[Any, ...]:
    return (
        entry.path,
        entry.kind.value,
        entry.mode,
        entry.modified_ns,
        entry.target,
        entry.attributes,
        entry.size,
        entry.extents,
        entry.linked,
        entry.known,
    )


def _entry(plain: tuple[Any, ...]) -> Entry:
    path, kind, *rest = plain
    return Entry(Tree.WORKSPACE, path, Kind(kind), *rest)


def _plain_stamp(stamp: Stamp) -> tuple[int, int, int, int]:
    return stamp.inode, stamp.size, stamp.modified_ns, stamp.changed_ns


# Entries, and data that belong to them or to earlier ones.
Piece = tuple[list[Entry], bytes]


class Pieces:
    """What the spool and the workspace have, piece by piece. For any threads."""

    def __init__(
        self, spool: Spool, directory_fd: int, unsaved: Unsaved, ledger: Ledger | None = None, walked_ns: int = 0
    ) -> None:
        """Takes spool and descriptor over. `ledger` gets what a later save leaves out.

        `walked_ns`: when the walk began, in nanoseconds of the epoch.
        """
        self._ledger, self._walked_ns = ledger, walked_ns
        self._spool = spool
        self._trail = Trail(directory_fd)
        self._unsaved = unsaved
        self._pieces = self._gathered()
        # A save that is cancelled closes it while a thread reads the next piece.
        self._lock = threading.Lock()

    def next(self) -> Piece | None:
        """The next piece; None at the end. Raises OSError where the spool cannot be read."""
        with self._lock:
            return next(self._pieces, None)

    def close(self) -> None:
        with self._lock:
            self._pieces.close()
            self._trail.__exit__()
            self._spool.close()

    def _gathered(self) -> Generator[Piece, None, None]:
        entries: list[Entry] = []
        data = bytearray()
        for entry, stamp, known in self._spool:
            entries.append(entry)
            for block in self._blocks(entry, stamp, known):
                data += block
                if len(data) >= PIECE_BYTES:
                    yield entries, bytes(data)
                    entries, data = [], bytearray()
            if len(entries) >= PIECE_ENTRIES:
                yield entries, bytes(data)
                entries, data = [], bytearray()
        if entries or data:
            yield entries, bytes(data)

    def _blocks(self, entry: Entry, stamp: Stamp | None, data: bytes | None) -> Iterator[bytes]:
        """`data`: what was read on the walk."""
        if entry.known or data is not None:
            if stamp is not None and (entry.known or self._is_still(entry, stamp, data)):
                self._note(entry, stamp)
            return iter(() if entry.known or data is None else (data,))
        return self._read(entry, stamp)

    def _note(self, entry: Entry, stamp: Stamp) -> None:
        if self._ledger is not None and entry.data_bytes and is_old(stamp, self._walked_ns):
            self._ledger.put(entry.path, stamp)

    def _is_still(self, entry: Entry, stamp: Stamp, data: bytes | None) -> bool:
        """Whether the file has these data when its pages are clean. Until then a mapping changes it without a sign."""
        if self._ledger is None or not entry.data_bytes or not is_old(stamp, self._walked_ns):
            return False
        try:
            fd = self._open(entry)
        except OSError:
            return False
        try:
            linux.write_back(fd)
            return (
                stamp_of(os.fstat(fd)) == stamp
                and b"".join(_blocks(fd, entry)) == data
                and stamp_of(os.fstat(fd)) == stamp
            )
        except OSError:
            return False
        finally:
            os.close(fd)

    def _read(self, entry: Entry, stamp: Stamp | None) -> Iterator[bytes]:
        """The data of a file, as many bytes as its entry says: what is missing by now is zeros, and is told."""
        left = entry.data_bytes
        if left == 0:
            return
        try:
            fd = self._open(entry)
        except OSError as error:
            self._unsaved.add(entry.path, reason_of(error))
        else:
            try:
                clean = self._ledger is not None and _is_written_back(fd)
                same = stamp_of(os.fstat(fd)) == stamp
                for block in _blocks(fd, entry):
                    left -= len(block)
                    yield block
                same = same and left == 0 and stamp_of(os.fstat(fd)) == stamp
            finally:
                os.close(fd)
            if not same:
                self._unsaved.add(entry.path, "Changed")
            elif clean and stamp is not None:
                self._note(entry, stamp)
        while left:
            block = _ZEROS[: min(left, PIECE_BYTES)]
            left -= len(block)
            yield block

    def _open(self, entry: Entry) -> int:
        *above, name = entry.names
        go_to(self._trail, tuple(above))
        fd = os.open(name, READ, dir_fd=self._trail.fd)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise FileNotFoundError
        return fd


def _is_written_back(fd: int) -> bool:
    try:
        linux.write_back(fd)
    except OSError:
        return False
    return True


def _blocks(fd: int, entry: Entry) -> Iterator[bytes]:
    """Stops at what cannot be read any more: the bytes behind it would be taken for others."""
    for offset, length in entry.extents:
        at, end = offset, offset + length
        while at < end:
            try:
                block = os.pread(fd, min(PIECE_BYTES, end - at), at)
            except OSError:
                return
            if not block:
                return
            at += len(block)
            yield block


def go_to(trail: Trail, names: tuple[bytes, ...]) -> None:
    """To the folder of these names below the top, following no link. Raises OSError, and then stands at the top."""
    common = 0
    while common < min(len(names), len(trail.names)) and names[common] == trail.names[common]:
        common += 1
    try:
        while len(trail.names) > common:
            trail.leave()
        for name in names[common:]:
            trail.enter(name)
    except OSError:
        while trail.names:
            trail.leave()
        raise
