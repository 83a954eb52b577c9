"""Operations on single files. All block, are run in FileThreads, and wait for no other process.

Every function raises, beside what it says: InvalidPath, RootUnavailable, NotARegularFile, TooManyEntries, OSError.
"""

import contextlib
import errno
import os
import secrets
import stat
import threading
from dataclasses import dataclass, field

from sandfleet_executor.core.files.paths import PARTIAL_PREFIX, Cursor, InvalidPath, Tree
from sandfleet_executor.effects.files import trees
from sandfleet_executor.effects.files.trees import Info, NotARegularFile, TooManyEntries, describe
from sandfleet_executor.effects.files.walk import Pins, Spot, find, make_directory, not_a_directory
from sandfleet_executor.effects.linux import rename_noreplace

NEW_FILE_MODE = 0o644
# Where renameat2 is not to be had, or not with its flag.
_NO_RENAMEAT2 = (errno.ENOSYS, errno.EINVAL)


def look(roots: Pins, path: bytes) -> Info:
    """What is at the path; of a symlink, the link itself."""
    with find(roots, path, follow_last=False) as spot:
        return describe_spot(spot)


def describe_spot(spot: Spot) -> Info:
    return describe(spot.path, spot.stat(), spot.directory_fd, spot.name)


def directory_at(roots: Pins, path: bytes) -> tuple[Tree, tuple[bytes, ...]]:
    """Where a directory really is: its tree, and the names from there."""
    with find(roots, path, follow_last=True) as spot:
        if not stat.S_ISDIR(spot.stat().st_mode):
            raise not_a_directory()
        return spot.root, spot.directory_names if spot.name is None else (*spot.directory_names, spot.name)


class Download:
    """A regular file that is open for reading. For any thread: it may be closed during a read."""

    def __init__(self, roots: Pins, path: bytes) -> None:
        with find(roots, path, follow_last=True) as spot:
            # Opening a pipe would wake up its writer, so it is looked at first, and again after opening.
            _check_regular(spot.stat())
            self._fd = spot.open(os.O_RDONLY)
            try:
                status = os.fstat(self._fd)
                _check_regular(status)
            except BaseException:  # Whatever it was: an object that was never made closes nothing.
                os.close(self._fd)
                raise
            self.info = describe(spot.path, status, spot.directory_fd, None)
        self._lock = threading.Lock()

    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes; fewer, or none, behind the file's end."""
        with self._lock:
            return os.pread(self._fd, size, offset) if self._fd >= 0 else b""

    def close(self) -> None:
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1


class Upload:
    """A file that is written under a name that cannot be guessed, and moved to its place by `commit`.

    For any thread.
    """

    def __init__(self, roots: Pins, path: bytes, mode: int) -> None:
        """`mode` 0 keeps that of the old file; a new one gets 0644. Missing parents are made."""
        with find(roots, path, follow_last=True, make_parents=True) as spot:
            if spot.name is None or spot.directory:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            self._mode = mode or _mode_of_old(spot) or NEW_FILE_MODE
            self._path = spot.path
            self._name = spot.name
            self._partial = new_partial_name()
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self._fd = os.open(self._partial, flags, 0o600, dir_fd=spot.directory_fd)
            self._directory_fd = os.dup(spot.directory_fd)
        self._lock = threading.Lock()

    def write(self, data: bytes) -> None:
        with self._lock:
            rest = memoryview(data)
            while rest and self._fd >= 0:
                rest = rest[os.write(self._fd, rest) :]

    def commit(self) -> Info:
        """Puts the file in its place. Raises OSError, and then nothing has changed."""
        with self._lock:
            os.fchmod(self._fd, self._mode)
            status = os.fstat(self._fd)
            os.rename(self._partial, self._name, src_dir_fd=self._directory_fd, dst_dir_fd=self._directory_fd)
            self._close()
            return describe(self._path, status, -1, None)

    def discard(self) -> None:
        """Removes the unfinished file. After `commit` there is nothing to remove."""
        with self._lock:
            if self._fd >= 0:
                try:
                    os.unlink(self._partial, dir_fd=self._directory_fd)
                except FileNotFoundError:
                    # The user's own code removed it.
                    pass
                finally:
                    self._close()

    def _close(self) -> None:
        os.close(self._fd)
        os.close(self._directory_fd)
        self._fd = self._directory_fd = -1


def _mode_of_old(spot: Spot) -> int | None:
    """The permission bits of the file that will be replaced; raises what opening it for writing would raise."""
    try:
        status = spot.stat()
        _check_regular(status)
        # The new file comes by a rename, which asks only the directory: so the old one's permission is asked for here.
        os.close(spot.open(os.O_WRONLY))
    except FileNotFoundError:
        return None
    except OSError as error:
        # A program that is running cannot be written to, but it can be replaced.
        if error.errno != errno.ETXTBSY:
            raise
    return stat.S_IMODE(status.st_mode) & 0o777


def _check_regular(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise NotARegularFile


def new_partial_name() -> bytes:
    return PARTIAL_PREFIX + secrets.token_hex(12).encode()


@dataclass(frozen=True, slots=True)
class Page:
    entries: list[Info] = field(default_factory=list)
    # None at the end.
    cursor: Cursor | None = None


def list_directory(roots: Pins, path: bytes, *, depth: int, limit: int, after: Cursor) -> Page:
    """Entries by name, each directory's before the next name, `depth` levels down, after a cursor."""
    with find(roots, path, follow_last=True) as spot:
        fd = spot.open(os.O_PATH | os.O_DIRECTORY)
        entries, cursor = trees.list_tree(fd, spot.path, depth=depth, limit=limit, after=after)
        return Page(entries, cursor)


def make_dir(roots: Pins, path: bytes) -> bool:
    """Makes a directory and its parents; False when it was there. FileExistsError when something else is."""
    with find(roots, path, follow_last=True, make_parents=True) as spot:
        if spot.name is None:
            return False
        if make_directory(spot.name, spot.directory_fd):
            return True
        if not stat.S_ISDIR(os.stat(spot.name, dir_fd=spot.directory_fd, follow_symlinks=False).st_mode):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        return False


def remove(roots: Pins, path: bytes, *, recursive: bool) -> None:
    """Removes the entry at the path; of a symlink, the link itself."""
    with find(roots, path, follow_last=False, change=True) as spot:
        name = _name_below_root(spot)
        if not stat.S_ISDIR(spot.stat().st_mode):
            os.unlink(name, dir_fd=spot.directory_fd)
        elif recursive:
            trees.remove_tree(spot.directory_fd, name)
        else:
            os.rmdir(name, dir_fd=spot.directory_fd)


def _name_below_root(spot: Spot) -> bytes:
    if spot.name is None:
        raise PermissionError(errno.EPERM, "it is the root of the sandbox's files")
    return spot.name


def remove_leftovers(roots: Pins, places: list[bytes]) -> int:
    """Removes files of ours that were on their way when an executor was killed; how many.

    For when none is on its way.
    """
    removed = 0
    for place in places:
        with contextlib.suppress(OSError, InvalidPath, TooManyEntries), find(roots, place, follow_last=False) as spot:
            if spot.name is not None and spot.name.startswith(PARTIAL_PREFIX):
                trees.remove_any(spot.directory_fd, spot.name)
                removed += 1
    return removed


def move(roots: Pins, source: bytes, target: bytes, *, overwrite: bool) -> Info:
    """Renames, or copies and removes where the two are on different file systems (/workspace and /tmp).

    FileExistsError when the target is there and may not be overwritten. Nothing of the source is removed before all of
    it is at the target; what changed there meanwhile stays, and is an OSError (ENOTEMPTY).
    """
    with find(roots, source, follow_last=False, change=True) as old:
        _name_below_root(old)
        is_directory = stat.S_ISDIR(old.stat().st_mode)
        with find(roots, target, follow_last=False, make_parents=True) as new:
            _name_below_root(new)
            if new.directory and not is_directory:
                raise not_a_directory()
            try:
                _rename(old.directory_fd, _name_below_root(old), new, overwrite=overwrite)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                _move_across(old, new, overwrite=overwrite)
            return describe_spot(new)


def _rename(directory_fd: int, name: bytes, new: Spot, *, overwrite: bool) -> None:
    target = _name_below_root(new)
    if not overwrite:
        try:
            rename_noreplace(name, directory_fd, target, new.directory_fd)
        except OSError as error:
            if error.errno not in _NO_RENAMEAT2:
                raise
            _refuse_existing(new)
        else:
            return
    try:
        os.rename(name, target, src_dir_fd=directory_fd, dst_dir_fd=new.directory_fd)
    except FileExistsError as error:
        # Some file systems say so of a directory that is not empty.
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY)) from error


def _refuse_existing(spot: Spot) -> None:
    try:
        spot.stat()
    except FileNotFoundError:
        return
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def _move_across(old: Spot, new: Spot, *, overwrite: bool) -> None:
    if not overwrite:
        _refuse_existing(new)
    name = _name_below_root(old)
    partial = new_partial_name()
    try:
        copied = trees.copy_tree(old.directory_fd, name, new.directory_fd, partial)
        _rename(new.directory_fd, partial, new, overwrite=overwrite)
    except BaseException:  # Interrupted or not, no partial copy is left behind.
        trees.remove_any(new.directory_fd, partial)
        raise
    trees.remove_any(old.directory_fd, name, copied)
