"""Interrupts of statements: each ends the cell for which it came, and never the next one."""

import contextlib
import os
import select
import signal
import socket
import threading
from collections.abc import Callable, Iterator

# An interrupt is repeated so often, in seconds, until the cell has ended: one between two statements is not heard.
AGAIN_SECONDS = 0.05
READ_BYTES = 4096


class StoppedError(Exception):
    """The cell was interrupted."""


def wakeups() -> int:
    """A descriptor from which each signal of this process is read, as its number."""
    woken, wake = os.pipe()
    for descriptor in (woken, wake):
        os.set_blocking(descriptor, False)
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    return woken


class Stop:
    """Interrupts: a thread hears them while statements work, and a socket that is being read is shut down.

    A cell takes the lock where it begins and where it ends. What is read or done under it concerns the cell that runs.
    """

    def __init__(self, interrupt: Callable[[], None], woken: int, again: float = AGAIN_SECONDS) -> None:
        self._interrupt, self._woken, self._again = interrupt, woken, again
        self._changed = threading.Condition()
        # The cell that runs, or 0; they are counted from 1.
        self._cell = self._cells = 0
        self._asked = False
        self._reading: socket.socket | None = None
        threading.Thread(target=self._listen, name="interrupts", daemon=True).start()

    @property
    def asked(self) -> bool:
        """Whether the cell was interrupted."""
        return self._asked

    @contextlib.contextmanager
    def cell(self) -> Iterator[None]:
        with self._changed:
            # What has come before was for an earlier cell.
            self._came()
            self._cells += 1
            self._cell, self._asked = self._cells, False
        try:
            yield
        finally:
            with self._changed:
                self._cell = 0
                self._changed.notify()

    def check(self) -> None:
        """Raises StoppedError."""
        if self._asked:
            raise StoppedError

    @contextlib.contextmanager
    def reading(self, sock: socket.socket) -> Iterator[None]:
        self._reading = sock
        try:
            self.check()
            yield
        finally:
            self._reading = None

    def _came(self) -> bool:
        """Reads the signals that have come; whether one was an interrupt."""
        with contextlib.suppress(BlockingIOError):
            return signal.SIGINT in os.read(self._woken, READ_BYTES)
        return False

    def _listen(self) -> None:
        while True:
            select.select([self._woken], [], [])
            with self._changed:
                # An interrupt between two cells is dropped.
                if not (self._came() and self._cell):
                    continue
                self._asked, cell = True, self._cell
                while self._cell == cell:
                    self._interrupt()
                    if sock := self._reading:
                        with contextlib.suppress(OSError):
                            sock.shutdown(socket.SHUT_RDWR)
                    self._changed.wait(self._again)


@contextlib.contextmanager
def within(seconds: float, interrupt: Callable[[], None]) -> Iterator[None]:
    """Interrupts what takes longer than this, and nothing after the block."""
    lock, over = threading.Lock(), False

    def end() -> None:
        with lock:
            if not over:
                interrupt()

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        with lock:
            over = True
        timer.cancel()
