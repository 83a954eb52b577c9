"""The folders of a manifest, opened without following a link: code may have put one in the place of a folder."""

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from . import failures
from .manifest import Folder

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Opened(NamedTuple):
    """A folder that is open: its path here, its path as the module sees it, and whether that may write."""

    place: str
    path: str
    may_write: bool


@contextlib.contextmanager
def opened(workspace: str, folders: Iterable[Folder]) -> Iterator[list[Opened]]:
    """The folders, which stay open for the body. Raises SkillRefused."""
    with contextlib.ExitStack() as stack:
        found = []
        for folder in folders:
            fd = _open(workspace, folder.path)
            stack.callback(os.close, fd)
            # The name leads to what was opened, wherever its path leads by now.
            found.append(Opened(f"/proc/self/fd/{fd}", folder.path, folder.may_write))
        yield found


def _open(workspace: str, path: str) -> int:
    try:
        fd = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for name in path.split("/") if path != "." else ():
            above = fd
            try:
                fd = _step(name, above)
            finally:
                os.close(above)
    except OSError as error:
        is_missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        why = "there is no such folder, or it is a link" if is_missing else error.strerror
        raise failures.SkillRefused(f"cannot open the folder {path}: {why}", reason="NoFolder") from None
    return fd


def _step(name: str, above: int) -> int:
    """Opens a folder in another one. Raises OSError."""
    fd = os.open(name, _FLAGS, dir_fd=above)
    # gVisor follows a link in spite of O_NOFOLLOW beside O_DIRECTORY. Only a folder has its own number.
    found, there = os.fstat(fd), os.lstat(name, dir_fd=above)
    if (found.st_dev, found.st_ino) != (there.st_dev, there.st_ino):
        os.close(fd)
        raise NotADirectoryError
    return fd
