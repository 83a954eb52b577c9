"""Copies of a context: its forks, which wait outside its tree and can go on from where the context was.

They are children of the spawner. If the context were their parent, code would find processes in os.wait() that it never
started. If a fork went on as the context, it would have lost its own children.
"""

import contextlib
import os
import random
import select
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable, Collection, Mapping
from hashlib import sha256
from typing import Any, NamedTuple, NoReturn

from ..base import forks, frames, linux, process, seeds
from . import fork_safety, imports

# A joined thread may take a moment to disappear.
LOOKS = 5
LOOK_SECONDS = 0.002
# How long copies may take to let go of what they share with the context: hooks of the code at forks run before that.
FREEZE_SECONDS = 5.0
# Kept, because code may replace them.
_exit, _pipe, _close, _read, _write, _kill = os._exit, os.pipe, os.close, os.read, os.write, os.kill
_poll, _monotonic = select.poll, time.monotonic


class CannotCopyError(Exception):
    """`reason` is one word in CamelCase."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Copy(NamedTuple):
    """In a copy: its number, the signals that were blocked in the context, and the pipe that says that it is frozen."""

    number: int
    blocked: set[signal.Signals]
    frozen: int


def check(most_bytes: int) -> None:
    """Raises CannotCopyError if a copy would be unsafe, or larger than `most_bytes` of resident memory."""
    if name := _unsafe_thread():
        raise CannotCopyError("ThreadsRunning", f"the thread {name[:100]!r} was running, and threads cannot be copied")
    used = process.resident_bytes()
    if used > most_bytes:
        raise CannotCopyError(
            "TooLarge", f"the interpreter had {used >> 20} MiB, and the limit of copies is {most_bytes >> 20} MiB"
        )


def make(count: int, become: Callable[[Copy], NoReturn]) -> list[int]:
    """Forks the copies; their pids. In each copy it calls `become`, which has to `freeze`. Raises CannotCopyError, with
    no copy left, if not all can be made.

    It returns once all are frozen: until then they hold ports and pipes that the next cell may close.
    """
    blocked = {signal.Signals(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())}
    state = random.getstate()
    try:
        ours, theirs = _pipe()

        def become_copy(number: int) -> NoReturn:
            _close(ours)
            # Python seeds the generator anew in each fork.
            random.setstate(state)
            become(Copy(number, blocked, theirs))

        try:
            try:
                pids = forks.fork_away(count, become_copy)
            finally:
                _close(theirs)
            _check_made(pids, count, ours)
        finally:
            _close(ours)
    except OSError as error:
        raise CannotCopyError("ForkFailed", f"a process could not be made: {error.strerror}") from None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    return pids


def _check_made(pids: Collection[int], count: int, ours: int) -> None:
    """Raises CannotCopyError, with no copy left, unless all are made and frozen."""
    if len(pids) != count:
        _end(pids)
        raise CannotCopyError("ForkFailed", "a process could not be made: the limit of processes or memory was reached")
    if not _frozen(ours, count):
        _end(pids)
        raise CannotCopyError("CopyBroken", "the copy did not come to rest, perhaps for a hook that runs at forks")


def _frozen(ours: int, count: int) -> bool:
    """Whether so many copies say that they are frozen; waits for them."""
    poller = _poll()
    poller.register(ours, select.POLLIN)
    until = _monotonic() + FREEZE_SECONDS
    while count and poller.poll(max(0.0, until - _monotonic()) * 1000):
        said = _read(ours, count)
        if not said:
            return False
        count -= len(said)
    return not count


def _end(pids: Collection[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            _kill(pid, signal.SIGKILL)


def freeze(copy: Copy, keep: int) -> None:
    """In a copy: closes what it shares with the context, but for the descriptor `keep`, and says so.

    Held open by a copy, a pipe would never end, and a port never become free. Regular files stay open; their offsets
    are shared.
    """
    spared = {keep, copy.frozen}
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    os.close(null)
    dead, other = socket.socketpair()
    other.close()
    with dead:
        for fd in [int(name) for name in os.listdir("/proc/self/fd")]:  # noqa: PTH208 - numbers, not paths
            if fd > 2 and fd not in spared and fd != dead.fileno() and _is_shared(fd):
                os.dup2(dead.fileno(), fd, inheritable=os.get_inheritable(fd))
    _write(copy.frozen, b"f")
    _close(copy.frozen)


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

    Python seeds its own generator in each fork. A seed that the session asks for goes before both.
    """
    seed = seeds.seed()
    if seed is not None:
        random.seed(seed)
    if numpy := sys.modules.get("numpy.random"):
        numpy.seed(seed)
    elif seed is not None:
        imports.after("numpy.random", lambda module: module.seed(seed))


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
