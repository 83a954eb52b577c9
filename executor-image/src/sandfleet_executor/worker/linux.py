"""The few system calls that Python 3.11 has no name for."""

import ctypes
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
