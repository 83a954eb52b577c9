"""Saving and restoring, as a context does it between two cells."""

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from typing import Any

from . import forksafe, packets, pickles, process, restoring, saving

# How long after its time a process that saves may still be there, in seconds.
GRACE_SECONDS = 5.0


class State:
    """Of one context."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self._namespace = namespace
        self._own = dict(namespace)
        self._environment = dict(os.environ)
        self._path = list(sys.path)
        # Processes that save: pid → when each has to be gone.
        self._watchers: dict[int, float] = {}
        pickles.use(namespace)

    def save(self, header: Mapping[str, Any], descriptor: int) -> None:
        """Has the variables saved by a copy of this process; returns at once."""
        self._end_late()
        bounds = saving.Bounds(**header["bounds"])
        with socket.socket(fileno=process.private(descriptor)) as sock:
            os.close(descriptor)
            try:
                items = list(saving.items(self._namespace, self._own, self._environment, self._path))
                pid = saving.start(sock, saving.Job(self._namespace, items, bounds, forksafe.unsafe_threads()))
            except Exception as error:  # noqa: BLE001 - what it looks at, and what runs at a fork, may be the user's
                with contextlib.suppress(OSError):
                    sock.sendall(packets.encode({"event": "refused", "message": pickles.describe(error)}))
            else:
                self._watchers[pid] = time.monotonic() + bounds.seconds + GRACE_SECONDS

    def restore(self, header: Mapping[str, Any], descriptor: int) -> None:
        """Blocks until it is done, or interrupted, or nobody listens any more."""
        with socket.socket(fileno=process.private(descriptor)) as sock:
            os.close(descriptor)
            # Whatever ends it early, the executor hears of it by the end of the socket.
            with contextlib.suppress(BaseException):
                restoring.restore(sock, self._namespace, header["count"], header["memo"])

    def forget_watchers(self) -> None:
        """In a copy: they are another's children."""
        self._watchers.clear()

    def _end_late(self) -> None:
        """Reaps those that are done; whoever is late hangs in code of the user's that runs after each fork."""
        for pid, until in list(self._watchers.items()):
            with contextlib.suppress(ProcessLookupError):
                if time.monotonic() > until:
                    os.kill(pid, signal.SIGKILL)
            try:
                ended, _ = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                ended = pid
            if ended:
                del self._watchers[pid]
