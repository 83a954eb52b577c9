"""Whole trees: listed, copied and removed.

Without recursion (a tree may have thousands of levels) and without following links.
"""

import errno
import heapq
import os
import stat
from collections import deque
from dataclasses import dataclass

from sandfleet_executor.core.files.paths import PARTIAL_PREFIX, Cursor
from sandfleet_executor.effects.files.walk import Trail, names_in, open_to_owner

MAX_COPIED_ENTRIES = 200_000
# Steps of one removal: code in the sandbox may make files as fast as they are removed.
MAX_REMOVALS = 10_000_000
# Of one page of a listing: paths and link texts may have 4 KiB each.
MAX_PAGE_BYTES = 4 << 20
COPY_CHUNK = 1 << 20
NO_LINK = b""


class NotARegularFile(Exception):
    """It is a pipe, a socket or a device."""


class TooManyEntries(Exception):
    """The tree has more entries than one operation takes."""


def names_of_users(directory_fd: int, most: int) -> deque[bytes]:
    """The names of a directory in order, without those of the executor's own unfinished writes.

    Raises TooManyEntries for more than `most`, and OSError.
    """
    names = []
    for name in names_in(directory_fd):
        if not name.startswith(PARTIAL_PREFIX):
            names.append(name)
        if len(names) > most:
            raise TooManyEntries
    return deque(sorted(names))


@dataclass(frozen=True, slots=True)
class Info:
    """What is at a path. `size` in bytes, `modified_ns` since the epoch, `target` the text of a symlink."""

    path: bytes
    kind: int
    size: int
    mode: int
    modified_ns: int
    uid: int
    gid: int
    target: bytes = NO_LINK


def describe(path: bytes, status: os.stat_result, directory_fd: int, name: bytes | None) -> Info:
    """`directory_fd` and `name` tell where the text of a symlink is."""
    target = NO_LINK
    if stat.S_ISLNK(status.st_mode) and name is not None:
        try:
            target = os.readlink(name, dir_fd=directory_fd)
        except OSError:
            # It has just changed; its state a moment ago is still a true answer.
            target = NO_LINK
    kind = stat.S_IFMT(status.st_mode)
    mode, owner = stat.S_IMODE(status.st_mode), (status.st_uid, status.st_gid)
    return Info(path, kind, status.st_size, mode, status.st_mtime_ns, *owner, target)


# ── listing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Level:
    """The next names of a directory in order, as many as one page can take; more are fetched when those are used up."""

    def __init__(self, fd: int, rest: Cursor, limit: int) -> None:
        # The entry of the cursor was given out already, and below it the names up to the cursor.
        self.seen = rest[0] if rest else None
        self.rest = rest[1:]
        self._limit = limit
        self._names = deque(self._fetch(fd, rest[0] if rest else b"", inclusive=True))

    def next(self, fd: int) -> bytes | None:
        if not self._names and self._full:
            self._names.extend(self._fetch(fd, self._last, inclusive=False))
        return self._names.popleft() if self._names else None

    def _fetch(self, fd: int, after: bytes, *, inclusive: bool) -> list[bytes]:
        names = (name for name in names_in(fd) if name > after or (inclusive and name == after))
        chosen = heapq.nsmallest(self._limit, names)
        self._full = len(chosen) == self._limit
        self._last = chosen[-1] if chosen else after
        return chosen


def list_tree(
    directory_fd: int, path: bytes, *, depth: int, limit: int, after: Cursor
) -> tuple[list[Info], Cursor | None]:
    """Takes the descriptor over. A directory below that may not be read is listed without its entries."""
    entries: list[Info] = []
    size = 0
    with Trail(directory_fd) as trail:
        levels = [_Level(trail.fd, after, limit + 1)]
        while levels:
            level = levels[-1]
            name = level.next(trail.fd)
            if name is None:
                levels.pop()
                if levels:
                    trail.leave()
                continue
            try:
                status = os.stat(name, dir_fd=trail.fd, follow_symlinks=False)
            except FileNotFoundError:
                continue
            place = (*trail.names, name)
            seen = name == level.seen
            if not seen:
                info = describe(b"/".join((path, *place)), status, trail.fd, name)
                size += len(info.path) + len(info.target) + 64
                if entries and (len(entries) == limit or size > MAX_PAGE_BYTES):
                    return entries, _cursor_of(entries[-1], path)
                entries.append(info)
            if stat.S_ISDIR(status.st_mode) and len(levels) < depth:
                _descend(trail, name, levels, level.rest if seen else (), limit + 1)
    return entries, None


def _cursor_of(info: Info, path: bytes) -> Cursor:
    return tuple(info.path[len(path) + 1 :].split(b"/"))


def _descend(trail: Trail, name: bytes, levels: list[_Level], rest: Cursor, limit: int) -> None:
    try:
        trail.enter(name)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    try:
        levels.append(_Level(trail.fd, rest, limit))
    except (FileNotFoundError, PermissionError):
        trail.leave()


# ── removing ─────────────────────────────────────────────────────────────────────────────────────────────────────────

# What a copy took: by inode, size and time of change of a file. Of a directory only that it was there.
Copied = dict[int, tuple[int, int]]
_DIRECTORY = (-1, -1)


def remove_any(directory_fd: int, name: bytes, copied: Copied | None = None) -> None:
    """Removes the entry, if there is one. With `copied`, only entries that are unchanged since they were copied."""
    try:
        _unlink(directory_fd, name, copied)
    except FileNotFoundError:
        return
    except IsADirectoryError:
        remove_tree(directory_fd, name, copied)


def _unlink(directory_fd: int, name: bytes, copied: Copied | None) -> None:
    """Removes an entry other than a directory. Raises OSError; EISDIR for a directory."""
    if copied is not None:
        status = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
        if copied.get(status.st_ino) != _print_of(status):
            raise OSError(errno.EBUSY, "it changed while it was moved, so the old one stays")
    os.unlink(name, dir_fd=directory_fd)


def remove_tree(directory_fd: int, name: bytes, copied: Copied | None = None) -> None:
    """Removes a directory with all that is below it, deepest first; stops at the first entry that cannot be removed.

    Directories that their owner has closed to itself are opened for it: what fills a disk can always be removed.
    """
    steps = 0
    with Trail(os.dup(directory_fd)) as trail:
        trail.enter(name)
        while trail.names:
            child, taken = _clear_opened(trail.fd, copied)
            steps += taken
            if steps > MAX_REMOVALS:
                raise TooManyEntries
            try:
                if child is not None:
                    trail.enter(child)
                else:
                    _remove_emptied(trail, trail.leave())
            except (FileNotFoundError, NotADirectoryError):
                # Exchanged meanwhile: the next look at the directory tells.
                continue


def _remove_emptied(trail: Trail, name: bytes) -> None:
    try:
        os.rmdir(name, dir_fd=trail.fd)
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
        # A process has added an entry meanwhile: try again.
        trail.enter(name)


def _clear_opened(fd: int, copied: Copied | None) -> tuple[bytes | None, int]:
    try:
        return _clear(fd, copied)
    except PermissionError:
        open_to_owner(fd)
        return _clear(fd, copied)


def _clear(fd: int, copied: Copied | None) -> tuple[bytes | None, int]:
    """Removes entries up to the first directory: its name, and how many steps it took.

    It is called again after that one, and starts over: what was removed does not come again. (Trying rmdir first would
    save looking into empty ones, but one that fails costs milliseconds on ext4.)
    """
    steps = 1
    for name in names_in(fd):
        steps += 1
        try:
            _unlink(fd, name, copied)
        except FileNotFoundError:
            continue
        except IsADirectoryError:
            return name, steps
    return None, steps


# ── copying ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def copy_tree(source_fd: int, source: bytes, target_fd: int, target: bytes) -> Copied:
    """Copies an entry, with modes and times, to a free name. Raises NotARegularFile, TooManyEntries,
    OSError.

    What was made so far stays after a failure: the caller removes it.
    """
    copied: Copied = {}
    levels: list[tuple[os.stat_result, deque[bytes]]] = []
    with Trail(os.dup(source_fd)) as old, Trail(os.dup(target_fd)) as new:
        names = deque([source])
        while True:
            if not names:
                if not levels:
                    return copied
                _finish_directory(new.fd, levels[-1][0])
                old.leave()
                new.leave()
                names = levels.pop()[1]
                continue
            name = names.popleft()
            new_name = name if levels else target
            status = os.stat(name, dir_fd=old.fd, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                os.mkdir(new_name, 0o700, dir_fd=new.fd)
                old.enter(name)
                new.enter(new_name)
                levels.append((status, names))
                names = deque(_take_names(old.fd, MAX_COPIED_ENTRIES - len(copied)))
                copied[status.st_ino] = _DIRECTORY
            else:
                _copy_entry(old.fd, name, new.fd, new_name, copied)


def _take_names(fd: int, limit: int) -> list[bytes]:
    names = []
    for name in names_in(fd):
        names.append(name)
        if len(names) > limit:
            raise TooManyEntries
    return names


def _print_of(status: os.stat_result) -> tuple[int, int]:
    return _DIRECTORY if stat.S_ISDIR(status.st_mode) else (status.st_size, status.st_mtime_ns)


def _copy_entry(old_fd: int, name: bytes, new_fd: int, new_name: bytes, copied: Copied) -> None:
    status = os.stat(name, dir_fd=old_fd, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        os.symlink(os.readlink(name, dir_fd=old_fd), new_name, dir_fd=new_fd)
    elif stat.S_ISREG(status.st_mode):
        status = _copy_file(old_fd, name, new_fd, new_name)
    else:
        raise NotARegularFile
    copied[status.st_ino] = _print_of(status)


def _copy_file(old_fd: int, name: bytes, new_fd: int, new_name: bytes) -> os.stat_result:
    flags = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    source = os.open(name, os.O_RDONLY | flags, dir_fd=old_fd)
    try:
        status = os.fstat(source)
        if not stat.S_ISREG(status.st_mode):
            raise NotARegularFile
        target = os.open(new_name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | flags, 0o600, dir_fd=new_fd)
        try:
            _copy_bytes(source, target, status.st_size)
            os.fchmod(target, stat.S_IMODE(status.st_mode))
            os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
        finally:
            os.close(target)
    finally:
        os.close(source)
    return status


def _copy_bytes(source: int, target: int, size: int) -> None:
    """Copies the size that was looked up: a file that grows on does not hold the copy, and counts as changed."""
    while size > 0 and (data := os.read(source, min(size, COPY_CHUNK))):
        size -= len(data)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(target, rest) :]


def _finish_directory(fd: int, status: os.stat_result) -> None:
    """Gives a copied directory its mode and time: last, because the mode may forbid writing."""
    own = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
    try:
        os.fchmod(own, stat.S_IMODE(status.st_mode))
        os.utime(own, ns=(status.st_atime_ns, status.st_mtime_ns))
    finally:
        os.close(own)
