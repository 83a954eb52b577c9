"""Orphans: processes that the context's children left behind become the context's children, which has to reap them."""

import contextlib
import gc
import os
import resource
from pathlib import Path
from subprocess import Popen

# Up to this number ended children are left alone: user code may still wait for them.
MANY_ENDED = 16
CELLS_BETWEEN = 8


class Orphans:
    """Keeps ended orphans below the limit of processes, and leaves exit codes alone that code may ask for."""

    def __init__(self) -> None:
        self._cells = 0

    def reap(self) -> None:
        """Call before each cell. Looks every few cells, and always when the limit of processes is near."""
        self._cells += 1
        if not _any_ended() or (self._cells % CELLS_BETWEEN and not _crowded()):
            return
        ended = _ended_children()
        if len(ended) > MANY_ENDED:
            for pid in ended - _owned():
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)


def _any_ended() -> bool:
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def _crowded() -> bool:
    """Whether more than half of the allowed processes exist."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    return 0 < limit < 2 * sum(name.isdecimal() for name in os.listdir("/proc"))  # noqa: PTH208 - before a cell


def _ended_children() -> set[int]:
    own = str(os.getpid())
    ended = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # State and parent follow the name, which may hold any text.
            state, parent = (folder / "stat").read_bytes().rpartition(b")")[2].split(None, 2)[:2]
            if state == b"Z" and parent.decode() == own:
                ended.add(int(folder.name))
    return ended


def _owned() -> set[int]:
    """Children that belong to an object of the user's: a subprocess.Popen or a process of multiprocessing."""
    found = set()
    for each in gc.get_objects():
        # type() instead of isinstance(): a user's class may answer anything, and run code.
        kind = type(each)
        if issubclass(kind, Popen) or kind.__module__ == "multiprocessing.popen_fork":
            pid = object.__getattribute__(each, "__dict__").get("pid")
            if isinstance(pid, int):
                found.add(pid)
    return found
