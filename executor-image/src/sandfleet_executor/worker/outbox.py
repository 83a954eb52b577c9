"""What a context says to its executor: whole frames only, and only while a cell is open."""

import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any

from . import display, frames, signals

MAX_RESULTS = 1000


class Outbox:
    """Frames of one cell at a time, from the main thread, from threads of the user's and from handlers of signals."""

    def __init__(self, control: socket.socket, interrupts: signals.Interrupts, flush: Callable[[], None]) -> None:
        self._control = control
        self._interrupts = interrupts
        # Output that came before a frame is in the pipe before it.
        self._flush = flush
        self._lock = threading.RLock()
        self._open = False
        self._writing = False
        # Whole frames that are not written yet.
        self._late: list[bytes] = []
        self._results = 0

    def open(self) -> None:
        """A cell begins."""
        self._open, self._results = True, 0

    def move(self, control: socket.socket) -> None:
        """To another socket: that of a copy."""
        self._control = control

    def answer(self, header: Mapping[str, Any]) -> None:
        """Between two cells."""
        with self._lock:
            self._send(dict(header), b"")

    def show(self, bundle: Mapping[str, Any], *, main: bool = False, last: bool = False) -> None:
        """Sends a result. The main one always goes; of the others as many as the limit allows.

        `last`: nothing but the end follows, and both go in one piece. A message costs more than what is in it.
        """
        parts, dropped = display.to_parts(bundle)
        listed = [{"mime": mime, "size": len(data)} for mime, data in parts]
        header = {"event": "result", "main": main, "parts": listed, "dropped": dropped}
        with self._interrupts.held(), self._lock:
            # A thread that outlives its cell has nowhere to show anything.
            if self._open and (main or self._results < MAX_RESULTS):
                self._send(header, b"".join(data for _, data in parts), hold=last)
            self._results += not main

    def left_out(self) -> int:
        """Results of this cell over the limit."""
        return max(self._results - MAX_RESULTS, 0)

    def close(self, error: Mapping[str, Any] | None, done: Mapping[str, Any]) -> None:
        """The cell's last frames."""
        with self._lock:
            if error is not None:
                self._send({"event": "error", **error}, b"", hold=True)
            self._open = False
            self._send({"event": "done", **done}, b"")

    def _send(self, header: dict[str, Any], payload: bytes, *, hold: bool = False) -> None:
        self._late.append(frames.encode(header, payload))
        if self._writing or hold:
            # A handler of the user's runs in the middle of a frame of the same thread: after it, then.
            return
        self._writing = True
        try:
            self._flush()
            while self._late:
                # The same list all along: a frame is appended to the one that was looked up before a handler ran.
                waiting = tuple(self._late)
                del self._late[: len(waiting)]
                self._control.sendall(b"".join(waiting))
        finally:
            self._writing = False
