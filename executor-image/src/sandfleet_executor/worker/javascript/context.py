"""A context of JavaScript: one live Node.js that keeps its variables, modules and working directory from cell to cell.

Node runs `driver.cjs`, which evaluates cells as the console of a browser does and answers in the frames of contexts.
This process passes on cells, answers and interrupts, measures Node, and ends as Node ends. Node's own descriptors are
0 to 2, those of the context, and two more: the one it reads requests from, and the one it answers on. User code can
write to the latter, so it can forge the outcome of its own cell, as it can anywhere in its own process.
"""

import json
import os
import signal
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from ..base import answers, frames, linux, process, program, seeds
from ..languages import LANGUAGES

# How long the end of Node may take after it has closed its answers, in seconds.
END_SECONDS = 2.0
DRIVER = Path(__file__).with_name("driver.cjs")
# Node's descriptors for requests and answers.
REQUESTS, ANSWERS = 3, 4
MIB = 1 << 20
# What a context may say, and what it may say with it.
EVENTS = {
    "result": ("main", "parts", "dropped"),
    "error": ("name", "value", "traceback", "frames"),
    "done": ("status",),
}


class Node(program.Program):
    """The process of Node.js."""

    def __init__(self, memory_bytes: int, *, typed: bool) -> None:
        self._requests, theirs_requests = socket.socketpair()
        self.answers, theirs_answers = socket.socketpair()
        # The memory guard ends a session that takes too much, and says so: Node itself would abort.
        heap = [f"--max-old-space-size={max(64, 2 * memory_bytes // MIB)}"] if memory_bytes else []
        seed = seeds.seed()
        # 0 is none to Node.
        seeded = [f"--random-seed={seed or seeds.MOST}"] if seed is not None else []
        path = LANGUAGES["javascript"].program
        pid = os.posix_spawn(
            path,
            ["node", "--expose-internals", *heap, *seeded, str(DRIVER), *(["--typescript"] if typed else [])],
            os.environ,
            file_actions=_descriptors(theirs_requests.fileno(), theirs_answers.fileno()),
            # So that an interrupt reaches this process alone.
            setpgroup=0,
            setsigmask=[],
            setsigdef=linux.SIGNALS_TO_RESET,
        )
        for sock in (theirs_requests, theirs_answers):
            sock.close()
        super().__init__(pid)

    def begin(self, number: int, source: bytes, envs: Mapping[str, str]) -> None:
        """Starts a cell."""
        frames.send(self._requests, {"op": "execute", "cell": number, "envs": dict(envs)}, source)

    def look(self, number: int, header: Mapping[str, Any], code: bytes) -> None:
        """Asks for a completion or an inspection."""
        frames.send(self._requests, {**header, "number": number}, code)

    def interrupt(self, number: int) -> None:
        """Ends this cell, if it still runs. A Node that stopped itself is killed: it hears nothing."""
        if self.is_stopped:
            self.signal(signal.SIGKILL)
        frames.send(self._requests, {"op": "interrupt", "cell": number})


def _descriptors(requests: int, answers: int) -> list[tuple[Any, ...]]:
    """Moves both out of the way of 3 and 4 first: either may have the other's number."""
    high = process.PRIVATE_DESCRIPTORS
    moves = [(os.POSIX_SPAWN_DUP2, requests, high), (os.POSIX_SPAWN_DUP2, answers, high + 1)]
    moves += [(os.POSIX_SPAWN_DUP2, high, REQUESTS), (os.POSIX_SPAWN_DUP2, high + 1, ANSWERS)]
    return [*moves, (os.POSIX_SPAWN_CLOSE, high), (os.POSIX_SPAWN_CLOSE, high + 1)]


class ContextLoop:
    """Serves the requests of one context."""

    def __init__(self, control: socket.socket, memory_bytes: int, *, typed: bool) -> None:
        self._control = control
        self._watch = program.Watch()
        self._node = Node(memory_bytes, typed=typed)
        if typed:
            self._await_node()
        self._looks = 0
        self._meter = process.Meter(self._node.pid)

    def _await_node(self) -> None:
        """Until it has said that it strips types. If it ends instead, this process ends in the same way."""
        wait = self._watch.poller(self._node.answers.fileno())
        while self._node.answers.fileno() not in (ready := wait(None)):
            self._watch.was_interrupted(ready, self._node)
        if frames.receive(self._node.answers) is None:
            self._end()
        frames.send(self._control, {"event": "ready"})

    def serve(self) -> None:
        """Returns when the executor has closed the socket. If Node ends, this process ends in the same way."""
        for frame, fds in self._watch.requests(self._control, self._node):
            match frame.header.get("op"):
                case "execute":
                    self._execute(frame.header, frame.payload)
                case "complete" | "inspect":
                    with socket.socket(fileno=fds[0]) as sock:
                        self._look(frame.header, frame.payload, sock)
                case unknown:
                    raise frames.FrameError(f"cannot do {unknown!r}")

    def _look(self, header: Mapping[str, Any], code: bytes, sock: socket.socket) -> None:
        """Without an answer in time the other end of the socket says so. An interrupt is for a cell that waits."""
        self._looks += 1
        self._node.look(self._looks, header, code)
        until = time.monotonic() + float(header["seconds"])
        wait = self._watch.poller(self._node.answers.fileno())
        while (left := until - time.monotonic()) > 0:
            ready = wait(left * 1000)
            if self._watch.was_interrupted(ready, self._node):
                return
            if self._node.answers.fileno() in ready and self._answered(
                frames.receive(self._node.answers), header, sock
            ):
                return

    def _answered(self, frame: frames.Frame | None, header: Mapping[str, Any], sock: socket.socket) -> bool:
        if frame is None:
            self._end()
        if frame.header.get("event") != "looked" or frame.header.get("number") != self._looks:
            return False
        found = json.loads(frame.payload)
        if found is not None and header["op"] == "complete":
            cursor = int(header["cursor"])
            sock.sendall(answers.completed(map(str, found["matches"]), cursor - int(found["begun"]), cursor))
        elif found is not None:
            sock.sendall(answers.inspected(str(found["text"]), found=bool(found["text"])))
        return True

    def _execute(self, header: Mapping[str, Any], source: bytes) -> None:
        number = int(header.get("cell", 0))
        self._meter.start()
        # Processes that earlier cells left in the background.
        spared = self._node.children()
        self._node.begin(number, source, header.get("envs") or {})
        wait, asked, over = self._watch.poller(self._node.answers.fileno()), False, False
        while not over:
            ready = wait(None)
            if self._watch.was_interrupted(ready, self._node):
                self._node.interrupt(number)
                if asked:
                    # Node may wait for a child that ignores interrupts.
                    self._node.kill_below(spared)
                asked = True
            if self._node.answers.fileno() in ready:
                over = self._pass_on(frames.receive(self._node.answers))

    def _pass_on(self, frame: frames.Frame | None) -> bool:
        """Sends an answer to the executor; whether it was the last one of the cell."""
        if frame is None:
            self._end()
        event = str(frame.header.get("event"))
        if event == "looked":
            # Too late.
            return False
        known = {name: frame.header[name] for name in EVENTS[event] if name in frame.header}
        if event == "done":
            usage = self._meter.stop()
            known |= {"cpu": usage.cpu, "peak": usage.peak, "written": usage.written}
        self._control.sendall(frames.encode({"event": event, **known}, frame.payload))
        return event == "done"

    def _end(self) -> NoReturn:
        """Node ends, or code has closed the descriptor."""
        self._watch.await_end(self._node, END_SECONDS)
        self._control.sendall(frames.encode({"event": "broken"}))
        os._exit(process.EXIT_BROKEN)


def run(control: socket.socket, options: dict[str, Any]) -> NoReturn:
    """Serves cells until the socket or Node ends; then ends the process."""
    control.setblocking(True)
    memory, typed = int(options.get("memory_bytes", 0)), options.get("language") == "typescript"
    process.end_after(lambda: ContextLoop(control, memory, typed=typed).serve())
