"""Copies of a context: its forks, which wait outside its tree and can go on from where the context was.

The context forks a middleman. The middleman forks the copies, and ends when the spawner knows them; then they are
children of the spawner. If the context were their parent, code would find processes in os.wait() that it never started.
If a fork went on as the context, it would have lost its own children.
"""

import contextlib
import os
import random
import signal
import socket
import stat
import sys
import time
import warnings
from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from ..base import frames, linux, process
from . import fork_safety

# A joined thread may take a moment to disappear.
LOOKS = 5
LOOK_SECONDS = 0.002
# Kept, because code may replace them.
_fork, _exit, _getpid = os.fork, os._exit, os.getpid


class CannotCopyError(Exception):
    """`reason` is one word in CamelCase."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Copies(NamedTuple):
    """In the context: the copies, and the socket to their middleman."""

    pids: list[int]
    middleman: int
    line: socket.socket


class Copy(NamedTuple):
    """In a copy: its number, and the signals that were blocked in the context."""

    number: int
    blocked: set[signal.Signals]


def check(most_bytes: int) -> None:
    """Raises CannotCopyError if a copy would be unsafe, or larger than `most_bytes` of resident memory."""
    if name := _unsafe_thread():
        raise CannotCopyError("ThreadsRunning", f"the thread {name[:100]!r} was running, and threads cannot be copied")
    used = process.resident_bytes()
    if used > most_bytes:
        raise CannotCopyError(
            "TooLarge", f"the interpreter had {used >> 20} MiB, and the limit of copies is {most_bytes >> 20} MiB"
        )


def make(count: int) -> Copies | Copy:
    """Forks the copies. Raises CannotCopyError, with no copy left, if not all can be made."""
    blocked = {signal.Signals(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())}
    state = random.getstate()
    copy: Copy | None = None
    try:
        made = _make(count)
        if isinstance(made, int):
            copy = Copy(made, blocked)
            # Python seeds the generator anew in each fork.
            random.setstate(state)
            return copy
        return made
    finally:
        if copy is None:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _make(count: int) -> Copies | int:
    """In the context the copies; in a copy its number."""
    ours, theirs = socket.socketpair()
    try:
        with warnings.catch_warnings():
            # About threads, which were looked at.
            warnings.simplefilter("ignore")
            middleman = _fork()
            if middleman == 0:
                ours.close()
                number = _be_middleman(count, theirs)
                theirs.close()
                return number
    except OSError as error:
        ours.close()
        raise CannotCopyError("ForkFailed", f"a process could not be made: {error.strerror}") from None
    finally:
        theirs.close()
    received = b""
    with contextlib.suppress(OSError):
        while not received.endswith(b"\n") and (data := ours.recv(4096)):
            received += data
    made = Copies([int(pid) for pid in received.split()], middleman, ours)
    if len(made.pids) != count:
        release(made)
        raise CannotCopyError("ForkFailed", "a process could not be made: the limit of processes or memory was reached")
    return made


def _be_middleman(count: int, line: socket.socket) -> int:
    """Forks the copies, and waits until they are released. Returns only in the copies: their numbers."""
    pids: list[int] = []
    try:
        for number in range(count):
            pid = _fork()
            if pid == 0:
                return number
            pids.append(pid)
    except OSError:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        pids = []
    except BaseException:  # noqa: BLE001 no code of the context may run in its middleman
        _exit(1)
    with contextlib.suppress(OSError):
        line.sendall(" ".join(map(str, pids)).encode() + b"\n")
        # Until the context closes its end, or has ended.
        line.recv(1)
    _exit(0)
    raise AssertionError


def release(made: Copies) -> None:
    """Ends the middleman: the copies become the spawner's children, because the context adopts none for that moment."""
    linux.stop_being_subreaper()
    try:
        made.line.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(made.middleman, 0)
    finally:
        linux.become_subreaper()


def freeze(keep: Collection[int]) -> None:
    """In a copy: closes what it shares with the context, but for the descriptors in `keep`.

    Held open by a copy, a pipe would never end, and a port never become free. Regular files stay open; their offsets
    are shared.
    """
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    os.close(null)
    dead, other = socket.socketpair()
    other.close()
    with dead:
        for fd in [int(name) for name in os.listdir("/proc/self/fd")]:  # noqa: PTH208 - numbers, not paths
            if fd > 2 and fd not in keep and fd != dead.fileno() and _is_shared(fd):
                os.dup2(dead.fileno(), fd, inheritable=os.get_inheritable(fd))


def _is_shared(fd: int) -> bool:
    try:
        mode = os.fstat(fd).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISCHR(mode) or stat.S_ISBLK(mode))


def wait(control: socket.socket) -> Mapping[str, Any]:
    """The request to become a context; its descriptors are in place then.

    Ends the process if the copy is not needed.
    """
    if frame := frames.receive_begin(control):
        return frame.header
    _exit(0)
    raise AssertionError


def thaw(copy: Copy) -> None:
    """Drops the signals that came while the copy waited, and takes signals again."""
    signal.set_wakeup_fd(-1)
    while signal.sigtimedwait(signal.valid_signals(), 0) is not None:
        pass
    signal.pthread_sigmask(signal.SIG_SETMASK, copy.blocked)
    linux.become_subreaper()


def seed_anew() -> None:
    """In a new context: of modules that were loaded ahead it has the state of random numbers, as all contexts do.

    Python seeds its own generator in each fork.
    """
    if numpy := sys.modules.get("numpy.random"):
        numpy.seed()


def reseed(name: str) -> None:
    """Seeds random numbers from the name: other numbers than in sibling copies, and the same in each run."""
    digest = sha256(name.encode()).digest()
    random.seed(digest)
    if numpy := sys.modules.get("numpy.random"):
        numpy.seed(int.from_bytes(digest[:4], "big"))


def _unsafe_thread() -> str | None:
    """The name of a thread that would be missing in a copy, or None."""
    names: list[str] = []
    for _ in range(LOOKS):
        names = fork_safety.unsafe_threads()
        if not names:
            return None
        time.sleep(LOOK_SECONDS)
    return names[0]
