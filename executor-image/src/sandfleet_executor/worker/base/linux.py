"""What Python 3.11 lacks of Linux: a few system calls, and wait statuses as a shell shows them."""

import ctypes
import os
import resource
import signal

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
# More than any kernel has.
CAPABILITIES = 64

# Of a program that starts: the signals whose handling can be reset.
SIGNALS_TO_RESET = [number for number in signal.valid_signals() if number not in {signal.SIGKILL, signal.SIGSTOP}]

_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """From now on orphans below this process become its children instead of PID 1's."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def stop_being_subreaper() -> None:
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def hide_from_peers() -> None:
    """No other process of the same user may trace this one or read its memory and descriptors."""
    _libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def show_to_peers() -> None:
    _libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)


def keep_no_more_capabilities() -> None:
    """No program that this process becomes or starts can have a capability that it has not itself."""
    with open("/proc/self/status", encoding="ascii") as file:  # noqa: PTH123 - pathlib is not needed in PID 1
        own = int(file.read().partition("CapPrm:")[2].split(maxsplit=1)[0], 16)
    for number in range(CAPABILITIES):
        if not own >> number & 1:
            _libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)


def end_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def separated_user() -> bool:
    """Whether this is a separate user namespace: its map is not the whole range of ids."""
    try:
        with open("/proc/self/uid_map", encoding="ascii") as file:  # noqa: PTH123 - pathlib is not needed in PID 1
            return file.read().split()[-1] != "4294967295"
    except (OSError, IndexError):
        return False


def split_status(status: int) -> tuple[int, int]:
    """(exit code as a shell shows it, number of the signal or 0)."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return 128 + number, number
    return os.WEXITSTATUS(status), 0


def set_limit(name: str, value: int) -> None:
    """Sets a limit of the kernel ("RLIMIT_NOFILE"), soft and hard; no higher than this process may."""
    number = getattr(resource, name)
    most = resource.getrlimit(number)[1]
    value = int(value) if most == resource.RLIM_INFINITY else min(int(value), most)
    resource.setrlimit(number, (value, value))


def kernel() -> str:
    """The kernel's name and version, as user code sees them."""
    name = os.uname()
    return f"{name.sysname} {name.release} {name.version}"
