"""The program of a context whose language is not Python: its process, and the signals of the context around it."""

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

from . import frames, linux, tree

READ_BYTES = 4096
# The kernel's states of a process that runs or is ready to, or waits for a disk.
WORKING_STATES = ("R", "D")
STOPPED_STATES = ("T", "t")


class Program:
    """A live interpreter in a process group of its own."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def ended(self, status: int) -> None:
        """Takes its end. This process ends in the same way, unless the program begins anew."""
        end_like(status)

    @property
    def is_working(self) -> bool:
        """Whether it runs now, or has ended."""
        found = tree.read_process(self.pid)
        return found is not None and found.state in WORKING_STATES

    @property
    def is_stopped(self) -> bool:
        """Whether a signal has stopped it."""
        found = tree.read_process(self.pid)
        return found is not None and found.state in STOPPED_STATES

    def signal(self, *numbers: int) -> None:
        """Signals its group; that is no error if it has ended."""
        with contextlib.suppress(ProcessLookupError):
            for number in numbers:
                os.killpg(self.pid, number)

    def children(self) -> set[int]:
        """The pids of its children; empty if the kernel does not tell."""
        try:
            with open(f"/proc/{self.pid}/task/{self.pid}/children", "rb") as file:  # noqa: PTH123 - before each cell
                return {int(pid) for pid in file.read().split()}
        except OSError:
            return set()

    def kill_below(self, spared: set[int]) -> None:
        """Kills all processes below it, but for the spared ones and those below them."""
        processes = tree.scan()
        kept = spared.union(*(tree.descendants(processes, pid) for pid in spared))
        tree.send_signal(set(tree.descendants(processes, self.pid)) - kept, signal.SIGKILL)


class Watch:
    """The signals of a context: interrupts, and ends of its children. If the program ends, this process does too."""

    def __init__(self) -> None:
        linux.become_subreaper()
        self.woken, wake = os.pipe()
        for fd in (self.woken, wake):
            os.set_blocking(fd, False)
        for number in (signal.SIGCHLD, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def poller(self, other: int) -> Callable[[float | None], set[int]]:
        """A call that waits so many milliseconds for signals and for `other`, and returns what is ready."""
        poller = select.poll()
        for fd in (self.woken, other):
            poller.register(fd, select.POLLIN)
        return lambda milliseconds: {fd for fd, _ in poller.poll(milliseconds)}

    def was_interrupted(self, ready: set[int], program: Program) -> bool:
        """Reads which signals came; whether one was an interrupt. Reaps children."""
        if self.woken not in ready:
            return False
        with contextlib.suppress(BlockingIOError):
            numbers = os.read(self.woken, READ_BYTES)
            if signal.SIGCHLD in numbers:
                _reap(program)
            return signal.SIGINT in numbers
        return False

    def requests(self, control: socket.socket, program: Program) -> Iterator[tuple[frames.Frame, list[int]]]:
        """Gives the executor's requests until it closes the socket. An interrupt between two cells is dropped."""
        wait = self.poller(control.fileno())
        while True:
            ready = wait(None)
            self.was_interrupted(ready, program)
            if control.fileno() not in ready:
                continue
            frame, fds = frames.receive_with_fds(control, 1)
            if frame is None:
                return
            yield frame, fds

    def await_end(self, program: Program, seconds: float) -> None:
        """Ends this process as the program does, if that happens within so many seconds."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            _reap(program)
            select.select([self.woken], [], [], left)
            with contextlib.suppress(BlockingIOError):
                os.read(self.woken, READ_BYTES)


def _reap(program: Program) -> None:
    """Reaps the program, and orphans of its children."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid == program.pid:
            program.ended(status)


def end_like(status: int) -> NoReturn:
    """Ends this process in the way that the wait status tells."""
    code, number = linux.split_status(status)
    if number:
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(code)
