"""The variables of a context: saved and restored between two cells, when the executor asks."""

import contextlib
import os
import socket
import sys
from collections.abc import Mapping
from typing import Any

from ...base import packets, process
from ...base.helpers import Helpers
from .. import fork_safety
from . import pickles, restore, save

# How long a process that saves may outlive its time, in seconds.
GRACE_SECONDS = 5.0


class Variables:
    """The variables of one context."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self._namespace = namespace
        self._own = dict(namespace)
        self._environment = dict(os.environ)
        self._path = list(sys.path)
        # Processes that save.
        self._watchers = Helpers()
        pickles.use(namespace)

    def save(self, header: Mapping[str, Any], descriptor: int) -> None:
        """Starts a process that saves the variables, and returns at once."""
        self._watchers.reap()
        bounds = save.Bounds(**header["bounds"])
        with socket.socket(fileno=process.private_copy(descriptor)) as sock:
            os.close(descriptor)
            try:
                items = list(save.items(self._namespace, self._own, self._environment, self._path))
                pid = save.start(sock, save.Job(self._namespace, items, bounds, fork_safety.unsafe_threads()))
            except Exception as error:  # noqa: BLE001 - objects, and hooks that run at a fork, may be the user's
                with contextlib.suppress(OSError):
                    sock.sendall(packets.encode({"event": "refused", "message": pickles.describe(error)}))
            else:
                self._watchers.add(pid, bounds.seconds + GRACE_SECONDS)

    def restore(self, header: Mapping[str, Any], descriptor: int) -> None:
        """Blocks until all is restored, or an interrupt comes, or the executor has gone."""
        with socket.socket(fileno=process.private_copy(descriptor)) as sock:
            os.close(descriptor)
            # If it ends early, the executor notices the end of the socket.
            with contextlib.suppress(BaseException):
                restore.restore(sock, self._namespace, header["count"], header["memo"])

    def forget_watchers(self) -> None:
        """In a copy of the context: the watchers are the context's children."""
        self._watchers.forget()
