"""Walks the workspace for a snapshot, and tells each entry. For FileThreads; links are saved, never followed."""

import contextlib
import errno
import os
import stat
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from sandfleet_executor.core.snapshots.entries import (
    MAX_ATTRIBUTE_BYTES,
    MAX_DEPTH,
    MAX_ENTRIES,
    MAX_PATH_BYTES,
    USER,
    Attributes,
    Entry,
    Kind,
    Stamp,
    Totals,
    Tree,
    Unsaved,
    attribute_bytes,
    moment,
)
from sandfleet_executor.effects.files.trees import TooManyEntries, names_of_users
from sandfleet_executor.effects.files.walk import Trail
from sandfleet_executor.effects.snapshots.extents import extents_of

READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# Files up to this size are read while the session is frozen, as long as all of them have at most so many bytes.
SMALL_BYTES, MOST_SMALL_BYTES = 64 << 10, 64 << 20
_NO_ATTRIBUTES = (errno.ENOTSUP, errno.EPERM, errno.EACCES, errno.ENODATA, errno.ENOSYS)
_REASONS = {
    errno.EACCES: "PermissionDenied",
    errno.EPERM: "PermissionDenied",
    errno.ENOENT: "Vanished",
    errno.ENOTDIR: "Vanished",
    errno.ELOOP: "Vanished",
}
_IRREGULAR = {stat.S_IFSOCK: "Socket", stat.S_IFIFO: "Pipe", stat.S_IFCHR: "Device", stat.S_IFBLK: "Device"}

# An entry, the stamp of a file, and its data if they were read.
Tell = Callable[[Entry, Stamp | None, bytes | None], None]


class StoppedError(Exception):
    """The walk is not wanted any more."""


class Scan:
    """One walk. Small files are read on the way while `may_read` says so."""

    def __init__(
        self,
        tell: Tell,
        may_read: Callable[[], bool],
        is_known: Callable[[bytes, Stamp], bool] = lambda _path, _stamp: False,
    ) -> None:
        self.unsaved = Unsaved()
        self.stopped = False
        self.seconds = 0.0
        self._tell = tell
        self._may_read = may_read
        # Of a path and a stamp: whether an earlier save has these data.
        self._is_known = is_known
        self._entries = self._bytes = self._read = 0
        # Files with several names: (device, inode) → the first of the names.
        self._linked: dict[tuple[int, int], bytes] = {}

    @property
    def totals(self) -> Totals:
        return Totals(self._entries, self._bytes)

    def run(self, directory_fd: int) -> None:
        """Takes the descriptor over. Raises TooManyEntries, StoppedError, OSError where the top cannot be read."""
        begun = time.monotonic()
        with Trail(directory_fd) as trail:
            self._put_folder(trail, b"", os.fstat(trail.fd))
            self._walk(trail)
        self.seconds = time.monotonic() - begun

    def _walk(self, trail: Trail) -> None:
        levels = [self._names(trail.fd)]
        while levels:
            if self.stopped:
                raise StoppedError
            if not levels[-1]:
                levels.pop()
                if levels:
                    trail.leave()
                continue
            name = levels[-1].popleft()
            path = b"/".join((*trail.names, name))
            try:
                status = os.stat(name, dir_fd=trail.fd, follow_symlinks=False)
                if not stat.S_ISDIR(status.st_mode):
                    self._leaf(trail, name, path, status)
                elif len(trail.names) >= MAX_DEPTH - 1 or len(path) > MAX_PATH_BYTES - 256:
                    self.unsaved.add(path, "TooDeep")
                elif (inside := self._enter(trail, name, path, status)) is not None:
                    levels.append(inside)
            except OSError as error:
                self.unsaved.add(path, reason_of(error))

    def _names(self, fd: int) -> deque[bytes]:
        return names_of_users(fd, MAX_ENTRIES - self._entries)

    def _enter(self, trail: Trail, name: bytes, path: bytes, status: os.stat_result) -> deque[bytes] | None:
        """Goes into a folder; the names in it. A folder that may not be read is saved without what is in it."""
        trail.enter(name)
        try:
            self._put_folder(trail, path, status)
            return self._names(trail.fd)
        except OSError as error:
            self.unsaved.add(path, reason_of(error))
            trail.leave()
            return None

    def _put_folder(self, trail: Trail, path: bytes, status: os.stat_result) -> None:
        attributes: Attributes = ()
        with contextlib.suppress(PermissionError):
            fd = os.open(b".", READ | os.O_DIRECTORY, dir_fd=trail.fd)
            try:
                attributes = self._attributes(fd, path)
            finally:
                os.close(fd)
        mode = stat.S_IMODE(status.st_mode)
        modified = moment(status.st_mtime_ns)
        self._put(Entry(Tree.WORKSPACE, path, Kind.DIRECTORY, mode, modified, attributes=attributes))

    def _leaf(self, trail: Trail, name: bytes, path: bytes, status: os.stat_result) -> None:
        kind = stat.S_IFMT(status.st_mode)
        if kind in _IRREGULAR:
            self.unsaved.add(path, _IRREGULAR[kind])
        elif kind == stat.S_IFLNK:
            target = os.readlink(name, dir_fd=trail.fd)
            self._put(Entry(Tree.WORKSPACE, path, Kind.SYMLINK, 0o777, moment(status.st_mtime_ns), target))
        elif (first := self._linked.get((status.st_dev, status.st_ino))) is not None:
            self._put(Entry(Tree.WORKSPACE, path, Kind.HARD_LINK, target=first))
        else:
            fd = os.open(name, READ, dir_fd=trail.fd)
            try:
                self._file(fd, path)
            finally:
                os.close(fd)

    def _file(self, fd: int, path: bytes) -> None:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise FileNotFoundError(errno.ENOENT, "it was exchanged just now")
        entry = Entry(
            Tree.WORKSPACE,
            path,
            Kind.FILE,
            stat.S_IMODE(status.st_mode),
            moment(status.st_mtime_ns),
            attributes=self._attributes(fd, path),
            size=status.st_size,
            extents=extents_of(fd, status),
            linked=status.st_nlink > 1,
        )
        stamp = stamp_of(status)
        if entry.data_bytes and self._is_known(path, stamp):
            self._put(replace(entry, known=True), stamp)
        else:
            self._put(entry, stamp, self._data(fd, entry))
        if entry.linked:
            self._linked[status.st_dev, status.st_ino] = path

    def _data(self, fd: int, entry: Entry) -> bytes | None:
        """Of a small file, while the session stands still; None: they are read later."""
        size = entry.data_bytes
        if size > SMALL_BYTES or self._read + size > MOST_SMALL_BYTES or not self._may_read():
            return None
        data = b"".join(os.pread(fd, length, offset) for offset, length in entry.extents)
        self._read += len(data)
        return data if len(data) == size else None

    def _attributes(self, fd: int, path: bytes) -> Attributes:
        found, others = attributes_of(fd)
        if others or attribute_bytes(found) > MAX_ATTRIBUTE_BYTES:
            self.unsaved.add(path, "Attributes")
        return found if attribute_bytes(found) <= MAX_ATTRIBUTE_BYTES else ()

    def _put(self, entry: Entry, stamp: Stamp | None = None, data: bytes | None = None) -> None:
        self._entries += 1
        self._bytes += entry.data_bytes
        if self._entries > MAX_ENTRIES:
            raise TooManyEntries
        self._tell(entry, stamp, data)


def stamp_of(status: os.stat_result) -> Stamp:
    return Stamp(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def attributes_of(fd: int) -> tuple[Attributes, int]:
    """Those that code may set, and how many others there are; none where the file system has no attributes.

    Raises OSError.
    """
    try:
        names = sorted(map(os.fsencode, os.listxattr(fd)))
        own = tuple((name, os.getxattr(fd, name)) for name in names if name.startswith(USER))
    except OSError as error:
        if error.errno in _NO_ATTRIBUTES:
            return (), 0
        raise
    return own, sum(not name.startswith((USER, b"security.", b"trusted.")) for name in names)


def reason_of(error: OSError) -> str:
    return _REASONS.get(error.errno or 0, "ReadFailed")
