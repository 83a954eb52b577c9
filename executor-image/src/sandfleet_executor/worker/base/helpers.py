"""Forks of a process that do something beside it, and end soon."""

import contextlib
import os
import signal
import time


class Helpers:
    """Children, each with the time at which it is killed: it may hang in code of the user's."""

    def __init__(self) -> None:
        self._until: dict[int, float] = {}

    def add(self, pid: int, seconds: float) -> None:
        self._until[pid] = time.monotonic() + seconds

    def forget(self) -> None:
        """In a copy of the process: they are not its children."""
        self._until.clear()

    def reap(self) -> None:
        """Reaps those that have ended, and kills late ones."""
        for pid, until in list(self._until.items()):
            with contextlib.suppress(ProcessLookupError):
                if time.monotonic() > until:
                    os.kill(pid, signal.SIGKILL)
            try:
                ended, _ = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                ended = pid
            if ended:
                del self._until[pid]
