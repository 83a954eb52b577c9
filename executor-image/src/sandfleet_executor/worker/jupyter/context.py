"""A context of any Jupyter kernel: the program of a kernelspec, driven over sockets inside the session.

The messages of the kernel become output, results and errors of a cell (messages.py). There is no front end: messages
of widgets are dropped and counted, and a request for input goes to the caller of the cell, if that takes any. The
context says {"event":"ready"} once the kernel has answered; a kernel that ends before that ends this process in the
same way.
"""

import os
import select
import socket
import time
from collections.abc import Mapping
from typing import Any, NoReturn

from ..base import answers, frames, kernels, linux, process, program
from . import messages
from .kernel import Kernel
from .prompts import Prompts

# How often a starting kernel is asked whether it is there, in seconds.
ASK_SECONDS = 0.5
# How long a cell whose reply is there waits in silence for the word that it is over, in seconds.
IDLE_SECONDS = 5.0
# How long an interrupt waits for the kernel to say that the cell's code runs, in seconds.
BEGIN_SECONDS = 0.5
WRITE_BYTES = select.PIPE_BUF


class ContextLoop:
    """Serves the requests of one context."""

    def __init__(self, control: socket.socket, spec: kernels.Kernel) -> None:
        self._control = control
        self._watch = program.Watch()
        self._kernel = Kernel(spec)
        self._meter = process.Meter(self._kernel.pid)
        self._spared: set[int] = set()
        # When an interrupt came that the cell has not got, or got; 0: none came.
        self._asked = 0.0
        self._told = False

    def serve(self) -> None:
        """Returns when the executor has closed the socket. If the kernel ends, this process ends in the same way."""
        self._await_kernel()
        frames.send(self._control, {"event": "ready"})
        while True:
            ready = self._wait(self._control.fileno())
            # An interrupt between two cells is dropped, as are messages.
            self._watch.was_interrupted(ready, self._kernel)
            for _ in self._kernel.received():
                pass
            if self._control.fileno() not in ready:
                continue
            frame, fds = frames.receive_with_fds(self._control, 1)
            if frame is None:
                return
            match frame.header.get("op"):
                case "execute":
                    self._execute(frame.payload, takes_input=frame.header.get("input") is True)
                case "input":
                    # An answer for code that has gone on.
                    continue
                case "complete" | "inspect":
                    self._look(frame.header, frame.payload.decode("utf-8", "replace"), fds[0])
                case unknown:
                    raise frames.FrameError(f"cannot do {unknown!r}")

    def _wait(self, *descriptors: int, seconds: float | None = None) -> set[int]:
        milliseconds = None if seconds is None else max(0, round(seconds * 1000))
        return self._kernel.wait(self._watch.woken, *descriptors, milliseconds=milliseconds)

    def _await_kernel(self) -> None:
        """Until the kernel has answered on both sockets: what it publishes before is lost."""
        asked: set[str] = set()
        missing = {"kernel_info_reply", "status"}
        due = 0.0
        while missing:
            if time.monotonic() >= due:
                asked.add(self._kernel.ask("kernel_info_request", {}))
                due = time.monotonic() + ASK_SECONDS
            self._watch.was_interrupted(self._wait(seconds=due - time.monotonic()), self._kernel)
            for message in self._kernel.received():
                if messages.asked_by(message) in asked:
                    missing.discard(message["msg_type"])
        self._kernel.has_started()

    # Cells

    def _execute(self, source: bytes, *, takes_input: bool) -> None:
        self._meter.start()
        # Processes that earlier cells left in the background.
        self._spared, self._asked, self._told = self._kernel.children(), 0.0, False
        # What was printed before this cell is not its output.
        self._hear(self._wait(seconds=0))
        request = {"code": source.decode("utf-8", "replace"), "silent": False, "store_history": True}
        request |= {"user_expressions": {}, "allow_stdin": takes_input, "stop_on_error": False}
        cell = messages.Cell(self._kernel.ask("execute_request", request))
        self._prompts = Prompts(self._control, self._kernel, taken=takes_input)
        silent_since = time.monotonic()
        while not cell.over:
            answers = (self._control.fileno(),) if self._prompts.waits else ()
            ready = self._wait(*answers, seconds=BEGIN_SECONDS)
            self._hear(ready)
            self._print()
            if self._control.fileno() in ready:
                self._prompts.answer(self._answer_of_executor("input"), cell)
            self._prompts.look()
            for message in self._kernel.received():
                silent_since = time.monotonic()
                self._prompts.take(message, cell)
                for said in cell.take(message):
                    self._say(said, cell)
            self._pass_on_interrupt(begun=cell.begun)
            if cell.replied and time.monotonic() - silent_since > IDLE_SECONDS:
                cell.give_up()
        self._hear(self._wait(seconds=0))
        self._print()
        for note in cell.notes():
            self._write(2, f"{note}\n".encode())
        self._finish(cell)

    def _finish(self, cell: messages.Cell) -> None:
        usage = self._meter.stop()
        status, error = cell.end(interrupted=self._told)
        done = {"status": status, "cpu": usage.cpu, "peak": usage.peak, "written": usage.written}
        report = messages.report(error) if error else b""
        self._control.sendall(report + frames.encode({"event": "done", **done}))

    def _answer_of_executor(self, wanted: str, cell: messages.Cell | None = None) -> Mapping[str, Any]:
        """The next answer of this kind; one to a request for input may come before it."""
        while frame := frames.receive(self._control):
            if frame.header.get("op") == wanted:
                return frame.header
            if cell is not None:
                self._prompts.answer(frame.header, cell)
        os._exit(process.EXIT_CLOSED)

    def _say(self, said: messages.Said, cell: messages.Cell) -> None:
        match said:
            case messages.Text():
                self._write(said.descriptor, said.data)
            case messages.Shown():
                self._control.sendall(frames.encode(said.header, said.payload))
            case messages.Clear():
                frames.send(self._control, {"event": "cleared", "wait": said.wait, "answer": True})
                # The executor has read it: what is printed from now on is not older.
                self._answer_of_executor("cleared", cell)

    def _print(self) -> None:
        """Programs of a cell print past the kernel's messages, as those that `system` of R starts."""
        for descriptor, data in self._kernel.printed():
            self._write(descriptor, data)

    def _write(self, descriptor: int, data: bytes) -> None:
        """Writes output. A slow reader holds the cell up, which hears interrupts meanwhile."""
        poller = select.poll()
        poller.register(descriptor, select.POLLOUT)
        poller.register(self._watch.woken, select.POLLIN)
        view = memoryview(data)
        while view:
            ready = {fd for fd, _ in poller.poll()}
            self._hear(ready)
            self._pass_on_interrupt(begun=True)
            if descriptor in ready:
                view = view[os.write(descriptor, view[:WRITE_BYTES]) :]

    # Interrupts

    def _hear(self, ready: set[int]) -> None:
        if not self._watch.was_interrupted(ready, self._kernel):
            return
        if self._told:
            self._kernel.interrupt()
            # Programs that ignore interrupts go, so that the kernel can stay.
            self._kernel.kill_below(self._spared)
        elif not self._asked:
            self._asked = time.monotonic()

    def _pass_on_interrupt(self, *, begun: bool) -> None:
        """A kernel ignores an interrupt before the cell's code runs."""
        if self._asked and not self._told and (begun or time.monotonic() - self._asked >= BEGIN_SECONDS):
            self._kernel.interrupt()
            self._told = True

    # Looks

    def _look(self, header: Mapping[str, Any], code: str, descriptor: int) -> None:
        """Completion and inspection by the kernel; without an answer in time the other end of the socket says so."""
        with socket.socket(fileno=descriptor) as sock:
            cursor = int(header["cursor"])
            request: dict[str, Any] = {"code": code, "cursor_pos": cursor}
            if header["op"] == "inspect":
                request["detail_level"] = int(header.get("detail_level", 0))
            found = self._ask(f"{header['op']}_request", request, float(header["seconds"]))
            if found is not None:
                answer = _completed if header["op"] == "complete" else _inspected
                sock.sendall(answer(found, code, cursor))

    def _ask(self, kind: str, content: dict[str, Any], seconds: float) -> Mapping[str, Any] | None:
        until = time.monotonic() + seconds
        asked = self._kernel.ask(kind, content)
        while (left := until - time.monotonic()) > 0:
            if self._watch.was_interrupted(self._wait(seconds=left), self._kernel):
                # A cell waits that has to end.
                break
            for message in self._kernel.received():
                if messages.asked_by(message) == asked and message["msg_type"].endswith("_reply"):
                    return messages.of(message, "content")
        return None


def _completed(found: Mapping[str, Any], code: str, cursor: int) -> bytes:
    matches = [str(each) for each in found.get("matches") or ()]
    try:
        start, end = int(found["cursor_start"]), int(found["cursor_end"])
    except (KeyError, TypeError, ValueError):
        start = end = cursor
    if not 0 <= start <= end <= len(code):
        matches, start, end = [], cursor, cursor
    return answers.completed(matches, start, end)


def _inspected(found: Mapping[str, Any], code: str, cursor: int) -> bytes:
    del code, cursor
    data = found.get("data")
    text = data.get("text/plain", "") if isinstance(data, Mapping) else ""
    return answers.inspected(messages.plain(text), found=found.get("found") is True)


def run(control: socket.socket, options: dict[str, Any]) -> NoReturn:
    """Serves cells until the socket or the kernel ends; then ends the process."""

    def serve() -> None:
        control.setblocking(True)
        linux.become_subreaper()
        spec = kernels.find(str(options["kernel"]))
        if spec is None:
            raise LookupError(f"there is no kernel {options['kernel']}")
        ContextLoop(control, spec).serve()

    process.end_after(serve)
