"""Puts restored files in the place of the workspace's own, and finishes that after a crash.

The mark is written when all files are there, and says how far it has come: after it, whatever dies, the next executor
brings the workspace to the restored state. Before it, the next executor finds an unfinished folder and removes it.
"""

import contextlib
import json
import os
import stat
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sandfleet_executor.core.files.paths import PARTIAL_PREFIX
from sandfleet_executor.effects.files.walk import Trail, names_in

MARK, UNFINISHED = "restore.json", "restore.tmp"
OWNER = 0o700


@dataclass(frozen=True)
class Mark:
    """`new` has the restored files, `old` gets the others; names are in hex, since any byte may be in them.

    `emptied`: all of the others are in `old`. `late` are the modes of folders when they have their places.
    """

    new: str
    old: str
    emptied: bool = False
    late: tuple[tuple[str, int], ...] = ()
    # Of the workspace's own top; None: as it is.
    mode: int | None = None
    modified_ns: int = 0
    # What brings the contexts and services back, for the next executor.
    record: str = ""

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode("ascii")


def decode(text: bytes) -> Mark:
    """Raises ValueError, KeyError and TypeError for what is no mark."""
    said: dict[str, Any] = json.loads(text)
    late = tuple((str(name), int(mode)) for name, mode in said["late"])
    return Mark(**{**said, "late": late})


class MarkFile:
    """Where the mark stands. `folder` None: there is no place that outlives the executor."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def write(self, mark: Mark) -> None:
        """Raises OSError."""
        if self._folder is None:
            return
        unfinished = self._folder / UNFINISHED
        with unfinished.open("wb") as file:
            file.write(mark.encode())
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(self._folder / MARK)

    def read(self) -> Mark | None:
        if self._folder is None:
            return None
        try:
            return decode((self._folder / MARK).read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            self.forget()
            return None

    def forget(self) -> None:
        if self._folder is not None:
            with contextlib.suppress(OSError):
                (self._folder / MARK).unlink(missing_ok=True)


def empty(directory_fd: int, mark: Mark) -> None:
    """Moves what is in the workspace into `old`. May be repeated. Raises OSError."""
    old = bytes.fromhex(mark.old)
    with contextlib.suppress(FileExistsError):
        os.mkdir(old, OWNER, dir_fd=directory_fd)
    fd = _folder(directory_fd, old)
    try:
        for name in _own_names(directory_fd):
            _make_movable(directory_fd, name)
            os.rename(name, name, src_dir_fd=directory_fd, dst_dir_fd=fd)
    finally:
        os.close(fd)


def fill(directory_fd: int, mark: Mark) -> None:
    """Moves what is in `new` into the empty workspace. May be repeated. Raises OSError."""
    new = bytes.fromhex(mark.new)
    with contextlib.suppress(FileNotFoundError):
        fd = _folder(directory_fd, new)
        try:
            for name in list(names_in(fd)):
                os.rename(name, name, src_dir_fd=fd, dst_dir_fd=directory_fd)
        finally:
            os.close(fd)
    for folder, mode in mark.late:
        os.chmod(bytes.fromhex(folder), mode, dir_fd=directory_fd)
    remove_forced(directory_fd, new)
    if mark.mode is not None:
        # Its owner has to reach it.
        os.chmod(directory_fd, mark.mode | OWNER)
        os.utime(directory_fd, ns=(mark.modified_ns, mark.modified_ns))


def undo(directory_fd: int, mark: Mark) -> None:
    """Brings the workspace back to what it was before `empty` and `fill`. Raises OSError."""
    new, old = bytes.fromhex(mark.new), bytes.fromhex(mark.old)
    for source, target in ((None, new), (old, None)):
        fds = [_folder(directory_fd, one) for one in (source, target)]
        try:
            for name in _own_names(fds[0]):
                os.rename(name, name, src_dir_fd=fds[0], dst_dir_fd=fds[1])
        finally:
            for fd in fds:
                os.close(fd)
    remove_forced(directory_fd, new)
    os.rmdir(old, dir_fd=directory_fd)


def _folder(directory_fd: int, name: bytes | None) -> int:
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.dup(directory_fd) if name is None else os.open(name, flags, dir_fd=directory_fd)


def is_empty(directory_fd: int) -> bool:
    """Whether code finds nothing in the workspace. Raises OSError."""
    return not _own_names(directory_fd)


def _own_names(directory_fd: int) -> list[bytes]:
    return [name for name in names_in(directory_fd) if not name.startswith(PARTIAL_PREFIX)]


def _make_movable(directory_fd: int, name: bytes) -> None:
    """A folder that its owner may not write to cannot be moved into another one."""
    status = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
    if stat.S_ISDIR(status.st_mode) and status.st_mode & OWNER != OWNER:
        os.chmod(name, stat.S_IMODE(status.st_mode) | OWNER, dir_fd=directory_fd)


def remove_forced(directory_fd: int, name: bytes) -> None:
    """Removes an entry with all below it, whatever modes are in it. What is gone is no error. Raises OSError."""
    try:
        os.unlink(name, dir_fd=directory_fd)
    except FileNotFoundError:
        return
    except IsADirectoryError:
        _remove_folder(directory_fd, name)


def _remove_folder(directory_fd: int, top: bytes) -> None:
    with Trail(os.dup(directory_fd)) as trail:
        _go_into(trail, top)
        while trail.names:
            if (inside := _clear(trail.fd)) is not None:
                _go_into(trail, inside)
            else:
                name = trail.leave()
                os.rmdir(name, dir_fd=trail.fd)


def _go_into(trail: Trail, name: bytes) -> None:
    _make_movable(trail.fd, name)
    trail.enter(name)


def _clear(fd: int) -> bytes | None:
    """Removes entries up to the first folder: its name, or None where all is gone."""
    for name in names_in(fd):
        try:
            os.unlink(name, dir_fd=fd)
        except IsADirectoryError:
            return name
        except FileNotFoundError:
            continue
    return None
