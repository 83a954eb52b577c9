"""Frames from a context to its executor: always whole, and only while a cell runs."""

import select
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any

from ..base import frames, parts, tables
from . import signals, streams
from .shown import display

# By name: user code may replace the module's attributes.
_poll = select.poll
MAX_RESULTS = 1000
MAX_ID_CHARACTERS = 256


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
        # Whether its caller answers requests for input, and how many there were.
        self._takes_input = False
        self._inputs = 0
        # Results of this cell since it cleared its output, the display ids among them, and results above the limit.
        self._results = 0
        self._ids: set[str] = set()
        self.left_out = 0

    def open(self, *, takes_input: bool = False) -> None:
        """A cell begins."""
        self._takes_input = takes_input
        self._open, self._results, self.left_out = True, 0, 0
        self._ids.clear()

    def move(self, control: socket.socket) -> None:
        """Switches to the socket of a copy."""
        self._control = control

    def answer(self, header: Mapping[str, Any]) -> None:
        """Sends a frame between two cells."""
        with self._lock:
            self._send(dict(header), b"")

    def show(self, shown: display.Shown, *, last: bool = False) -> None:
        """Sends a result: the main one and updates of what was shown always, others up to a limit.

        `last`: only the end of the cell follows, and both are sent as one message: a message costs more than its
        content.
        """
        found, dropped = parts.to_parts(shown.bundle)
        listed = [{"mime": mime, "size": len(data)} for mime, data in found]
        header = {"event": "result", "main": shown.main, "parts": listed, "dropped": dropped}
        if shown.display_id:
            header |= {"display_id": shown.display_id[:MAX_ID_CHARACTERS], "update": shown.update}
        with self._interrupts.held(), self._lock:
            if not self._open:
                # Results of a thread that outlives its cell are dropped.
                return
            if not (shown.main or (shown.update and shown.display_id in self._ids)):
                if self._results >= MAX_RESULTS:
                    self.left_out += 1
                    return
                self._results += 1
            if shown.display_id:
                self._ids.add(shown.display_id)
            self._send(header, b"".join(data for _, data in found), hold=last)

    def clear(self, *, wait: bool) -> None:
        """Sends that the cell clears what it has shown and printed.

        Returns when the executor has read that: it reads what is printed from now on elsewhere, and must not take it
        for older.
        """
        with self._interrupts.held(), self._lock:
            if not self._open:
                return
            self._results = 0
            self._ids.clear()
            # In a signal handler of the user's the frame cannot be sent at once.
            waits = not self._writing
            self._send({"event": "cleared", "wait": wait, "answer": waits}, b"")
            if waits:
                self._receive("cleared")

    def ask_frame(self, name: str, language: str) -> socket.socket:
        """A socket from which a table of another context comes. Raises RefusedError."""
        with self._interrupts.held(), self._lock:
            if not self._open or self._writing:
                raise tables.RefusedError("NoTable", f"cannot read {name}: no cell runs")
            self._send({"event": "frame", "name": name, "language": language}, b"")
            said, fds = self._receive("frame")
            if not fds:
                raise tables.RefusedError(str(said.get("reason")), str(said.get("message")))
            return socket.socket(fileno=fds[0])

    def ask_input(self, prompt: str, password: bool) -> str:
        """A line that the cell's caller types. Raises StdinNotAvailable, and what an interrupt raises."""
        if not self._takes_input:
            streams.refuse()
        if threading.current_thread() is not threading.main_thread() or self._writing:
            raise streams.StdinNotAvailable("cannot read input: only the main thread of a cell can")
        self._inputs += 1
        number = str(self._inputs)
        with self._interrupts.held(), self._lock:
            self._send({"event": "input", "id": number, "prompt": prompt, "password": password}, b"")
        waiting = _poll()
        waiting.register(self._control, select.POLLIN)
        while True:
            # An interrupt may end the wait; a frame is then whole in the socket, or not there.
            waiting.poll()
            with self._interrupts.held(), self._lock:
                said, _ = self._receive("input")
            if said.get("id") == number:
                break
        text = said.get("text")
        if not isinstance(text, str):
            raise streams.StdinNotAvailable("cannot read input: the caller of this cell has refused it")
        return text

    def _receive(self, wanted: str) -> tuple[Mapping[str, Any], list[int]]:
        """The executor's answer; what comes too late, for code that has gone on, is dropped."""
        while True:
            frame, fds = frames.receive_with_fds(self._control, 1)
            if frame is None:
                # The executor has gone, and ends this process.
                return {"id": str(self._inputs)}, []
            if frame.header.get("op") == wanted:
                return frame.header, fds

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
