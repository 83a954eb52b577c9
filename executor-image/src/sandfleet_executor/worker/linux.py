"""The few system calls that Python 3.11 has no name for."""

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Orphans below this process become its children, not those of PID 1."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def stop_being_subreaper() -> None:
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def hide_from_peers() -> None:
    """No other process of the same user may trace this one or read its memory and descriptors."""
    _libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def show_to_peers() -> None:
    _libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)


def end_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def separated_user() -> bool:
    """Whether this is a user namespace of its own: its map is not the whole range of ids."""
    try:
        with open("/proc/self/uid_map", encoding="ascii") as file:  # noqa: PTH123 - pathlib is not needed in PID 1
            return file.read().split()[-1] != "4294967295"
    except (OSError, IndexError):
        return False


def kernel() -> str:
    """What the kernel says of itself, as user code sees it."""
    name = os.uname()
    return f"{name.sysname} {name.release} {name.version}"
