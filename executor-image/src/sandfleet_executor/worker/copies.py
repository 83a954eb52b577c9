"""Copies of a context: forks of it that wait, outside its tree, to go on from where it was.

The context forks a middleman, which forks the copies and ends when the spawner knows them: they are then the spawner's children.
Was the context the parent, code would meet processes that it never started in os.wait(); was it the child, its own would be gone.
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
from pathlib import Path
from typing import Any, NamedTuple

from . import child, forksafe, linux

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# A thread that was joined may take a moment to be gone.
LOOKS = 5
LOOK_SECONDS = 0.002
# Code may replace them.
_fork, _exit, _getpid = os.fork, os._exit, os.getpid


class CannotCopyError(Exception):
    """`reason` is one word in CamelCase."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Made(NamedTuple):
    """In the context: the copies, and the line to the middleman that holds them."""

    pids: list[int]
    middleman: int
    line: socket.socket


class Born(NamedTuple):
    """In a copy: which one it is, and the signals that were blocked in the context."""

    number: int
    blocked: set[signal.Signals]


def check(most_bytes: int) -> None:
    """Raises CannotCopyError where a copy would be unsafe, or of more than `most_bytes` resident."""
    if name := _thread_in_the_way():
        raise CannotCopyError("ThreadsRunning", f"the thread {name[:100]!r} was running, and threads cannot be copied")
    used = int(Path("/proc/self/statm").read_bytes().split()[1]) * PAGE_BYTES
    if used > most_bytes:
        raise CannotCopyError(
            "TooLarge", f"the interpreter had {used >> 20} MiB, and the limit of copies is {most_bytes >> 20}"
        )


def make(count: int) -> Made | Born:
    """Forks. Raises CannotCopyError when not all can be made, and none is there then."""
    blocked = {signal.Signals(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())}
    state = random.getstate()
    born: Born | None = None
    try:
        made = _make(count)
        if isinstance(made, int):
            born = Born(made, blocked)
            # Every child seeds it anew.
            random.setstate(state)
            return born
        return made
    finally:
        if born is None:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _make(count: int) -> Made | int:
    ours, theirs = socket.socketpair()
    try:
        with warnings.catch_warnings():
            # Of pools that were looked at.
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
    said = b""
    with contextlib.suppress(OSError):
        while not said.endswith(b"\n") and (data := ours.recv(4096)):
            said += data
    made = Made([int(pid) for pid in said.split()], middleman, ours)
    if len(made.pids) != count:
        release(made)
        raise CannotCopyError("ForkFailed", "a process could not be made: the limit of processes or memory was reached")
    return made


def _be_middleman(count: int, line: socket.socket) -> int:
    """Returns in the copies alone."""
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
    except BaseException:  # noqa: BLE001 nothing of the context may run in its middleman
        _exit(1)
    with contextlib.suppress(OSError):
        line.sendall(" ".join(map(str, pids)).encode() + b"\n")
        # Until it is told, or nobody is there to tell it.
        line.recv(1)
    _exit(0)
    raise AssertionError


def release(made: Made) -> None:
    """The middleman ends, and his children go to the spawner: for this moment the context adopts none."""
    linux.stop_being_subreaper()
    try:
        made.line.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(made.middleman, 0)
    finally:
        linux.become_subreaper()


def freeze(keep: Collection[int]) -> None:
    """In a copy: lets go of everything that it shares with the one that goes on.

    Held open by a copy, a pipe would never end and a port never be free. What regular files hold is left: their offsets are shared.
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
    """What it is to be, once it is told; its descriptors are in place then. Ends the process when nobody has use for it."""
    if frame := child.receive(control):
        return frame.header
    _exit(0)
    raise AssertionError


def thaw(born: Born) -> None:
    """What was sent to it while it waited was not meant for what it becomes."""
    signal.set_wakeup_fd(-1)
    while signal.sigtimedwait(signal.valid_signals(), 0) is not None:
        pass
    signal.pthread_sigmask(signal.SIG_SETMASK, born.blocked)
    linux.become_subreaper()


def reseed(name: str) -> None:
    """Other draws than its siblings, and the same at every run: by the name."""
    digest = sha256(name.encode()).digest()
    random.seed(digest)
    if numpy := sys.modules.get("numpy.random"):
        numpy.seed(int.from_bytes(digest[:4], "big"))


def _thread_in_the_way() -> str | None:
    """The name of a thread that would be missing in a copy."""
    names: list[str] = []
    for _ in range(LOOKS):
        names = forksafe.unsafe_threads()
        if not names:
            return None
        time.sleep(LOOK_SECONDS)
    return names[0]
