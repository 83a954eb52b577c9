"""Frames from a context to its executor: always whole, and only while a cell runs."""

import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any

from ..base import frames
from . import display, signals

MAX_RESULTS = 1000


class Outbox:
    """Sends the frames of one cell at a time, from the main thread, the user's threads and signal handlers."""

    def __init__(self, control: socket.socket, interrupts: signals.Interrupts, flush: Callable[[], None]) -> None:
        self._control = control
        self._interrupts = interrupts
        # Called before each frame: earlier output is in the pipe before it.
        self._flush = flush
        self._lock = threading.RLock()
        self._open = False
        self._writing = False
        # Whole frames that are not sent yet.
        self._waiting: list[bytes] = []
        self._results = 0

    def open(self) -> None:
        """A cell begins."""
        self._open, self._results = True, 0

    def move(self, control: socket.socket) -> None:
        """Switches to the socket of a copy."""
        self._control = control

    def answer(self, header: Mapping[str, Any]) -> None:
        """Sends a frame between two cells."""
        with self._lock:
            self._send(dict(header), b"")

    def show(self, bundle: Mapping[str, Any], *, main: bool = False, last: bool = False) -> None:
        """Sends a result: the main one always, others up to a limit.

        `last`: only the end of the cell follows, and both are sent as one message: a message costs more than its
        content.
        """
        parts, dropped = display.to_parts(bundle)
        listed = [{"mime": mime, "size": len(data)} for mime, data in parts]
        header = {"event": "result", "main": main, "parts": listed, "dropped": dropped}
        with self._interrupts.held(), self._lock:
            # Results of a thread that outlives its cell are dropped.
            if self._open and (main or self._results < MAX_RESULTS):
                self._send(header, b"".join(data for _, data in parts), hold=last)
            self._results += not main

    def left_out(self) -> int:
        """The number of results of this cell above the limit."""
        return max(self._results - MAX_RESULTS, 0)

    def close(self, error: Mapping[str, Any] | None, done: Mapping[str, Any]) -> None:
        """Sends the last frames of the cell."""
        with self._lock:
            if error is not None:
                # The value may be larger than a header.
                value = error["value"].encode("utf-8", "backslashreplace")
                self._send({"event": "error", **error, "value": ""}, value, hold=True)
            self._open = False
            self._send({"event": "done", **done}, b"")

    def _send(self, header: dict[str, Any], payload: bytes, *, hold: bool = False) -> None:
        self._waiting.append(frames.encode(header, payload))
        if self._writing or hold:
            # A signal handler of the user's runs inside _send of the same thread: its frame follows the current one.
            return
        self._writing = True
        try:
            self._flush()
            while self._waiting:
                # The list is changed in place: a handler may run between its look-up and the append.
                waiting = tuple(self._waiting)
                del self._waiting[: len(waiting)]
                self._control.sendall(b"".join(waiting))
        finally:
            self._writing = False
