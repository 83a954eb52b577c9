"""SIGINT interrupts user code, and never the worker's own code."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupts:
    """Turns SIGINT into KeyboardInterrupt while the user's code runs; ignores it while the context is idle."""

    def __init__(self) -> None:
        self.seen = False
        self._open = False
        self._held = 0
        self._pending = False

    def install(self) -> None:
        """Restores the context's handler and mask of SIGINT, which code may have changed."""
        signal.signal(signal.SIGINT, self._on_signal)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    def open(self) -> None:
        """From now on an interrupt reaches user code."""
        self.seen = self._pending = False
        self._held = 0
        self._open = True

    def close(self) -> None:
        """From now on an interrupt is ignored."""
        while self._open:
            try:
                self._open = False
            except KeyboardInterrupt:
                # An interrupt at the very end of the cell.
                continue

    @contextmanager
    def held(self) -> Iterator[None]:
        """Raises an interrupt that comes inside the block (a frame is half sent) at the end of the block."""
        if threading.current_thread() is not threading.main_thread():
            # Signal handlers run only in the main thread.
            yield
            return
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
        if self._pending and not self._held:
            self._pending = False
            raise KeyboardInterrupt

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if not self._open:
            return
        self.seen = True
        if self._held:
            self._pending = True
            return
        raise KeyboardInterrupt
