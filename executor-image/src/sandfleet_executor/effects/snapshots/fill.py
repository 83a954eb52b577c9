"""Writes the files of a snapshot beside the workspace's own, for FileThreads.

Every step starts at a folder that is open and takes one name, following no link. Modes that keep their owner out come
last, since the owner writes.
"""

import contextlib
import errno
import os
import stat
import threading
from collections.abc import Iterable
from dataclasses import dataclass

from sandfleet_executor.core.snapshots.assembly import Begin, Bytes, Step
from sandfleet_executor.core.snapshots.entries import Entry, InvalidEntry, Kind, Names, Unsaved, shown
from sandfleet_executor.effects.files.files import new_partial_name
from sandfleet_executor.effects.files.walk import Trail
from sandfleet_executor.effects.snapshots.spool import go_to
from sandfleet_executor.effects.snapshots.swap import remove_forced

OWNER = 0o700
_ZEROS = bytes(1 << 20)
_NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_IN_THE_WAY = (errno.ENOTDIR, errno.ELOOP, errno.ENOENT, errno.EEXIST)
_CANNOT = (errno.ENOTSUP, errno.EPERM, errno.EINVAL, errno.EACCES)


@dataclass(frozen=True, slots=True)
class Filled:
    """What was written: under which name in the workspace, and the modes to give when it has its place.

    `top` is the entry of the workspace's own top.
    """

    name: bytes
    late: tuple[tuple[bytes, int], ...]
    top: Entry | None


class Filler:
    """One tree that is being written, of at most `most` bytes. For any thread: it may be closed meanwhile."""

    def __init__(self, directory_fd: int, most: int) -> None:
        """`directory_fd` is the workspace and stays the caller's. Raises OSError."""
        self.unrestored = Unsaved()
        self._name = new_partial_name()
        self._workspace = os.dup(directory_fd)
        self._lock = threading.Lock()
        self._closed = self._done = False
        self._left = most
        self._fd = -1
        self._entry: Entry | None = None
        self._top: Entry | None = None
        # Folders on the way down, whose times and attributes come when nothing more is written to them.
        self._open: list[tuple[Names, Entry]] = []
        # Modes that would keep the owner out.
        self._late: list[tuple[Names, int]] = []
        os.mkdir(self._name, OWNER, dir_fd=self._workspace)
        self._trail = Trail(os.open(self._name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=self._workspace))

    def take(self, steps: Iterable[Step]) -> None:
        """Raises InvalidEntry, and OSError: EDQUOT where the limit is reached."""
        with self._lock:
            for step in steps:
                if self._closed:
                    return
                self._take(step)

    def finish(self) -> Filled:
        """Nothing more comes. What is written stays from now on: `close` leaves it. Raises OSError."""
        with self._lock:
            self._leave_folders(())
            late = []
            for names, mode in reversed(self._late):
                if len(names) == 1:
                    # Its mode would keep it from being moved to its place.
                    late.append((names[0], mode))
                else:
                    go_to(self._trail, names[:-1])
                    os.chmod(names[-1], mode, dir_fd=self._trail.fd)
            self._done = True
            return Filled(self._name, tuple(late), self._top)

    def close(self) -> None:
        """Removes what was written, unless it is finished."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._close_file()
            self._trail.__exit__()
            try:
                if not self._done:
                    remove_forced(self._workspace, self._name)
            finally:
                os.close(self._workspace)

    def _take(self, step: Step) -> None:
        match step:
            case Begin(entry):
                self._charge(entry)
                self._begin(entry, entry.names)
            case Bytes(offset, data):
                # gVisor tells no holes to the one who saves: without this a sparse file would come back full of zeros.
                while data and not _ZEROS.startswith(data):
                    written = os.pwrite(self._fd, data, offset)
                    data, offset = data[written:], offset + written
            case _:
                self._end_file()

    def _charge(self, entry: Entry) -> None:
        self._left -= entry.counted
        if self._left < 0:
            raise OSError(errno.EDQUOT, "the workspace's limit is reached")

    def _begin(self, entry: Entry, names: Names) -> None:
        if not names:
            self._top = entry
            return
        self._leave_folders(names)
        try:
            go_to(self._trail, names[:-1])
            self._make(entry, names)
        except OSError as error:
            if error.errno in _IN_THE_WAY:
                raise InvalidEntry(f"cannot restore {shown(entry.path)}: {(error.strerror or '').lower()}") from error
            raise

    def _make(self, entry: Entry, names: Names) -> None:
        fd, name = self._trail.fd, names[-1]
        match entry.kind:
            case Kind.DIRECTORY:
                os.mkdir(name, OWNER, dir_fd=fd)
                self._open.append((names, entry))
            case Kind.FILE:
                self._fd, self._entry = os.open(name, _NEW_FILE, 0o600, dir_fd=fd), entry
            case Kind.SYMLINK:
                os.symlink(entry.target, name, dir_fd=fd)
                times = (entry.modified_ns, entry.modified_ns)
                with contextlib.suppress(NotImplementedError):
                    os.utime(name, ns=times, dir_fd=fd, follow_symlinks=False)
            case Kind.HARD_LINK:
                self._link(entry, name)

    def _link(self, entry: Entry, name: bytes) -> None:
        target = os.dup(self._trail.fd)
        try:
            *above, old = entry.target.split(b"/")
            go_to(self._trail, tuple(above))
            if not stat.S_ISREG(os.stat(old, dir_fd=self._trail.fd, follow_symlinks=False).st_mode):
                raise InvalidEntry(f"cannot restore {shown(entry.path)}: it is another name of what is no file")
            os.link(old, name, src_dir_fd=self._trail.fd, dst_dir_fd=target, follow_symlinks=False)
        finally:
            os.close(target)

    def _end_file(self) -> None:
        entry = self._entry
        assert entry is not None
        os.ftruncate(self._fd, entry.size)
        self._set(self._fd, entry)
        self._close_file()

    def _close_file(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd, self._entry = -1, None

    def _leave_folders(self, names: Names) -> None:
        """Ends the folders that nothing more comes into: the next entry is `names`."""
        while self._open and self._open[-1][0] != names[: len(self._open[-1][0])]:
            place, entry = self._open.pop()
            go_to(self._trail, place)
            fd = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._trail.fd)
            try:
                mode = entry.mode if entry.mode & OWNER == OWNER else OWNER
                if mode != entry.mode:
                    self._late.append((place, entry.mode))
                self._set(fd, entry, mode)
            finally:
                os.close(fd)

    def _set(self, fd: int, entry: Entry, mode: int | None = None) -> None:
        """Attributes, mode and times of an open file or folder; the times last, since all others change them."""
        unrestored = set_attributes(fd, entry)
        os.fchmod(fd, entry.mode if mode is None else mode)
        os.utime(fd, ns=(entry.modified_ns, entry.modified_ns))
        if unrestored:
            self.unrestored.add(entry.path, "NotSupported")


def set_attributes(fd: int, entry: Entry) -> bool:
    """Whether the file system does not take one of them. Raises OSError where it has no room."""
    missing = False
    for name, value in entry.attributes:
        try:
            os.setxattr(fd, name, value)
        except OSError as error:
            if error.errno not in _CANNOT:
                raise
            missing = True
    return missing
