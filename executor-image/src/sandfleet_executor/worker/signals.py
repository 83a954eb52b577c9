"""SIGINT: an interrupt of the user's code, and of nothing else."""

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
        """SIGINT is the context's again, whatever code did to its handler or mask."""
        signal.signal(signal.SIGINT, self._on_signal)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    def open(self) -> None:
        """From here on an interrupt reaches the user's code."""
        self.seen = self._pending = False
        self._held = 0
        self._open = True

    def close(self) -> None:
        """From here on an interrupt is ignored."""
        while self._open:
            try:
                self._open = False
            except KeyboardInterrupt:
                # It came in the last moment of the cell.
                continue

    @contextmanager
    def held(self) -> Iterator[None]:
        """An interrupt that comes inside (half a frame is written) is raised at the end of it."""
        if threading.current_thread() is not threading.main_thread():
            # Handlers only ever run in the main thread.
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
