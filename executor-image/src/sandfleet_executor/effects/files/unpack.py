"""Writes what a tar stream holds, for FileThreads.

Every step starts at a directory that is open and takes one name, following no link: wherever a name leads by then, it
is below the directory that was asked for. A file comes under a name of Sandfleet's own and takes its place when it is
whole.
"""

import contextlib
import errno
import os
import stat
import threading
from collections.abc import Callable
from functools import partial as bound
from typing import IO, Protocol, cast

import zstandard

from sandfleet_executor.core.files.tar import ArchiveError, Entry, Kind, Reader
from sandfleet_executor.core.files.unpacking import (
    PERMISSIONS,
    Bounds,
    Budget,
    Refused,
    Skips,
    Stopped,
    check_symlink,
    names_of,
)
from sandfleet_executor.effects.files.files import new_partial_name
from sandfleet_executor.effects.files.walk import Pins, Spot, Trail, find, make_directory
from sandfleet_executor.effects.linux import rename_noreplace

_FULL = (errno.ENOSPC, errno.EDQUOT)
_NO_RENAMEAT2 = (errno.ENOSYS, errno.EINVAL)
_IN_THE_WAY = (errno.ENOTDIR, errno.ELOOP)
# Memory of one decompression, whatever its archive asks for.
_WINDOW_BYTES = 8 << 20
_WRITE_BYTES = 128 << 10
# Times beyond are no file system's.
_LAST_SECOND = 1 << 34
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class _Sink(Protocol):
    def write(self, data: bytes, /) -> int: ...


class Unpacker:
    """One archive that is being unpacked. For any thread: it may be closed while a piece is written."""

    def __init__(
        self,
        roots: Pins,
        path: bytes,
        *,
        compressed: bool = False,
        keep_existing: bool = False,
        bounds: Bounds | None = None,
    ) -> None:
        self.files = self.directories = self.links = self.bytes = 0
        self.skips = Skips()
        self.stopped: Stopped | None = None
        self._keep = keep_existing
        self._budget = Budget(bounds or Bounds())
        self._reader = Reader()
        self._file: _File | None = None
        self._lock = threading.Lock()
        self._closed = False
        with find(roots, path, follow_last=True, make_parents=True) as spot:
            self._trail = Trail(_open_directory(spot))
            # Real directories between the tree's root and what is unpacked: a link may go up so far and is still
            # inside.
            self._above = len(spot.directory_names) + (spot.name is not None)
        self._sink = _decompressing(_Tar(self)) if compressed else _Tar(self)

    def feed(self, data: bytes, room: int | None = None) -> bool:
        """Takes a piece, for which there are so many bytes of room. False when there is no use in another one."""
        with self._lock:
            if self._closed or self.stopped is not None:
                return False
            if room is not None:
                self._budget.room = self._budget.counted + room
            self._budget.received += len(data)
            try:
                self._sink.write(data)
            except Stopped as stopped:
                self._stop(stopped)
            except (ArchiveError, zstandard.ZstdError) as error:
                self._stop(Stopped("INVALID_ARCHIVE", str(error)))
            return self.stopped is None

    @property
    def counted(self) -> int:
        """Bytes that it has taken on the disk, or a little more."""
        return self._budget.counted

    def finish(self) -> None:
        """The last piece has come."""
        with self._lock:
            if self.stopped is None and not self._reader.ended:
                self._stop(Stopped("TRUNCATED", "the archive ends before its end"))

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                self._drop_file()
                self._trail.__exit__()

    def _stop(self, stopped: Stopped) -> None:
        self.stopped = stopped
        self._drop_file()

    def _drop_file(self) -> None:
        if self._file is not None:
            self._file.discard()
            self._file = None

    def take(self, data: bytes) -> None:
        """A piece of the tar itself. Raises Stopped, ArchiveError."""
        self._budget.add_bytes(len(data))
        for event in self._reader.feed(data):
            if isinstance(event, Entry):
                self._budget.add_entry(event.size)
                self._attempt(event.path, bound(self._begin, event))
            elif isinstance(event, memoryview):
                if self._file is not None:
                    self._attempt(self._file.path, bound(self._write, event))
            elif self._file is not None:
                self._attempt(self._file.path, self._end)

    def _attempt(self, path: bytes, step: Callable[[], None]) -> None:
        """One step of an entry: what fails is left out, but a full disk stops everything."""
        try:
            step()
        except Refused as refused:
            self._drop_file()
            self.skips.add(path, str(refused))
        except OSError as error:
            self._drop_file()
            self._home()
            if error.errno in _FULL:
                raise Stopped("NO_SPACE", "no space is left") from error
            self.skips.add(path, (error.strerror or str(error)).lower())

    def _home(self) -> None:
        """Back to where it stands safely, after a step that failed in between."""
        while self._trail.names:
            self._trail.leave()

    def _begin(self, entry: Entry) -> None:
        names = names_of(entry.path)
        if not names:
            # The top itself: its owner made it as it is.
            return
        match entry.kind:
            case Kind.DIRECTORY:
                self._go(names)
                _set_directory(self._trail.fd, entry.mode)
            case Kind.FILE:
                self._go(names[:-1])
                self._file = _File(entry, names[-1], self._trail.fd)
            case Kind.SYMLINK:
                check_symlink(entry.link, self._above + len(names) - 1)
                self._go(names[:-1])
                self._place(names[-1], lambda partial, fd: os.symlink(entry.link, partial, dir_fd=fd))
            case Kind.HARDLINK:
                self._hard_link(names, names_of(entry.link))
            case _:
                raise Refused(f"it is a {entry.kind.value}")

    def _go(self, names: tuple[bytes, ...]) -> None:
        """Enters the directory of these names below the top; makes missing ones. Raises Refused, OSError."""
        trail = self._trail
        common = 0
        while common < min(len(names), len(trail.names)) and names[common] == trail.names[common]:
            common += 1
        while len(trail.names) > common:
            trail.leave()
        for name in names[common:]:
            try:
                self._enter(name)
            except OSError as error:
                if error.errno in _IN_THE_WAY:
                    raise Refused("a link or a file has the name of its directory") from error
                raise

    def _enter(self, name: bytes) -> None:
        try:
            self._trail.enter(name)
        except FileNotFoundError:
            self.directories += make_directory(name, self._trail.fd)
            self._trail.enter(name)

    def _place(self, name: bytes, make: Callable[[bytes, int], None]) -> None:
        """Makes something under a name of our own and gives it its own."""
        fd = self._trail.fd
        partial = new_partial_name()
        make(partial, fd)
        try:
            _take_name(partial, name, fd, keep=self._keep)
        except BaseException:  # Whatever it was, nothing stays half-made.
            with contextlib.suppress(OSError):
                os.unlink(partial, dir_fd=fd)
            raise
        self.links += 1

    def _hard_link(self, names: tuple[bytes, ...], target: tuple[bytes, ...]) -> None:
        if not target:
            raise Refused("it is a link to a directory")
        self._go(target[:-1])
        source = os.dup(self._trail.fd)
        try:
            if not stat.S_ISREG(os.stat(target[-1], dir_fd=source, follow_symlinks=False).st_mode):
                raise Refused("it is a hard link to what is no file")
            self._go(names[:-1])
            self._place(
                names[-1],
                lambda partial, fd: os.link(
                    target[-1], partial, src_dir_fd=source, dst_dir_fd=fd, follow_symlinks=False
                ),
            )
        finally:
            os.close(source)

    def _write(self, data: memoryview) -> None:
        assert self._file is not None
        self._file.write(data)

    def _end(self) -> None:
        assert self._file is not None
        self.bytes += self._file.commit(keep=self._keep)
        self.files += 1
        self._file = None


class _Tar:
    """Where a decompressor writes to: no more than a piece at a time."""

    def __init__(self, unpacker: Unpacker) -> None:
        self._unpacker = unpacker

    def write(self, data: bytes) -> int:
        self._unpacker.take(data)
        return len(data)


def _decompressing(sink: _Tar) -> _Sink:
    decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES)
    return cast("_Sink", decompressor.stream_writer(cast("IO[bytes]", sink), write_size=_WRITE_BYTES))


class _File:
    """A file that is being written."""

    def __init__(self, entry: Entry, name: bytes, directory_fd: int) -> None:
        self.path = entry.path
        self._entry = entry
        self._name = name
        self._partial = new_partial_name()
        self._fd = os.open(self._partial, _NEW_FILE, 0o600, dir_fd=directory_fd)
        self._directory_fd = os.dup(directory_fd)

    def write(self, data: memoryview) -> None:
        while data:
            data = data[os.write(self._fd, data) :]

    def commit(self, *, keep: bool) -> int:
        """Its size. Raises OSError, Refused, and then nothing has changed."""
        os.fchmod(self._fd, self._entry.mode & PERMISSIONS)
        modified = max(0, min(self._entry.modified, _LAST_SECOND))
        os.utime(self._fd, (modified, modified))
        _take_name(self._partial, self._name, self._directory_fd, keep=keep)
        self._close()
        return self._entry.size

    def discard(self) -> None:
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                # The user's own code may have removed it, or its directory may be closed to us by now.
                os.unlink(self._partial, dir_fd=self._directory_fd)
            self._close()

    def _close(self) -> None:
        os.close(self._fd)
        os.close(self._directory_fd)
        self._fd = -1


def _open_directory(spot: Spot) -> int:
    if spot.name is not None:
        make_directory(spot.name, spot.directory_fd)
    return spot.open(os.O_PATH | os.O_DIRECTORY)


def _set_directory(fd: int, mode: int) -> None:
    own = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
    try:
        # The unpacking itself has to write there.
        os.fchmod(own, mode & PERMISSIONS | 0o700)
    finally:
        os.close(own)


def _take_name(partial: bytes, name: bytes, fd: int, *, keep: bool) -> None:
    """Renames in a directory. Raises Refused where an existing entry is kept, and OSError."""
    try:
        if keep:
            _rename_to_free(partial, name, fd)
        else:
            os.rename(partial, name, src_dir_fd=fd, dst_dir_fd=fd)
    except FileExistsError as error:
        raise Refused("something of its name is there") from error
    except IsADirectoryError as error:
        raise Refused("a directory of its name is there") from error


def _rename_to_free(partial: bytes, name: bytes, fd: int) -> None:
    try:
        rename_noreplace(partial, fd, name, fd)
    except OSError as error:
        if error.errno not in _NO_RENAMEAT2:
            raise
        # Not at once, where the kernel cannot: what user code puts there in between is lost.
        with contextlib.suppress(FileNotFoundError):
            os.stat(name, dir_fd=fd, follow_symlinks=False)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from error
        os.rename(partial, name, src_dir_fd=fd, dst_dir_fd=fd)
