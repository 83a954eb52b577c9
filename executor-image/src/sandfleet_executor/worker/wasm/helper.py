"""The helper process of one skill: it runs the module, and has no more than it needs for that.

Frames come on standard input, a socket (base/frames.py):
  {"op":"load","workspace","manifest","module"}  sizes of the two in the payload
  {"op":"call","function"}   payload: arguments as JSON
  {"op":"answer","failed"}   payload: the result of a tool as JSON, or the message of its failure
Answers:
  {"event":"loaded"}         the module is compiled and fits its manifest
  {"event":"output","stream"}          payload: what the module writes
  {"event":"tool","name"}    payload: arguments; the next request is its answer
  {"event":"done","dropped"} payload: the result as JSON; bytes of output that were dropped
  {"event":"failed","kind","reason","message"}
"""

import contextlib
import os
import select
import signal
import socket
from collections.abc import Mapping
from typing import Any, NoReturn

from ..base import frames, linux
from . import failures, folders, manifest
from .manifest import Manifest

# A helper that is not used ends, and gives its memory back.
IDLE_SECONDS = 60.0
# Bytes of each stream that a call may write.
MOST_OUTPUT = 64 << 10
# Address space beside the memory of the module: Python, wasmtime, and the compiler at work.
OWN_BYTES = 1 << 30
MOST_FILES = 256


class Gone(Exception):
    """The process that calls has ended."""


class World:
    """What is around a call, at the other end of the socket."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._left = {1: MOST_OUTPUT, 2: MOST_OUTPUT}
        self.dropped = 0

    def output(self, stream: int, data: bytes) -> int:
        """Passes on what there is room for. The module is not told of the rest: it would do what it does without."""
        piece = data[: self._left[stream]]
        self._left[stream] -= len(piece)
        self.dropped += len(data) - len(piece)
        if piece:
            frames.send(self._control, {"event": "output", "stream": stream}, piece)
        return len(data)

    def tool(self, name: str, arguments: bytes) -> tuple[bool, bytes]:
        """Has the other process call a tool; whether that failed, and the answer."""
        frames.send(self._control, {"event": "tool", "name": name[: manifest.PATH_LIMIT]}, arguments)
        frame = frames.receive(self._control)
        if frame is None:
            raise Gone
        return bool(frame.header["failed"]), frame.payload


class Helper:
    """Serves the calls of one skill."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._workspace = ""
        self._manifest: Manifest
        self._machine: Any = None

    def serve(self) -> None:
        """Returns when it is not needed any more."""
        while select.select([self._control], [], [], IDLE_SECONDS)[0]:
            frame = frames.receive(self._control)
            if frame is None:
                return
            try:
                self._load(frame) if frame.header["op"] == "load" else self._call(frame)
            except failures.SkillError as error:
                self._fail(failures.kind_of(error), error.reason, str(error))
            except MemoryError:
                self._fail("limit", "Memory", "cannot finish: there is no memory left")
            except ValueError as error:
                self._fail("arguments", "Arguments", str(error))

    def _load(self, frame: frames.Frame) -> None:
        text, module = frames.split(frame.header["sizes"], frame.payload)
        self._manifest = manifest.parse(text)
        self._workspace = str(frame.header["workspace"])
        limit = OWN_BYTES + (self._manifest.memory_mb << 20)
        linux.set_limit("RLIMIT_AS", limit)
        try:
            # Late: what is missing is told, and its memory counts only where it is used.
            from .machine import Machine
        except ImportError as error:
            message = f"cannot run the skill: the session's Python has no wasmtime: {error}"
            raise failures.SkillUnavailable(message, reason="NoWasmtime") from None
        self._machine = Machine(module, self._manifest)
        frames.send(self._control, {"event": "loaded"})

    def _call(self, frame: frames.Frame) -> None:
        function = self._manifest.function(str(frame.header["function"]))
        if function is None:
            raise failures.SkillRefused("cannot call the function: the manifest names none such", reason="NoFunction")
        world = World(self._control)
        with folders.opened(self._workspace, self._manifest.folders) as opened:
            result = self._machine.call(function, frame.payload, opened, world)
        frames.send(self._control, {"event": "done", "dropped": world.dropped}, result)

    def _fail(self, kind: str, reason: str, message: str) -> None:
        said: Mapping[str, Any] = {"event": "failed", "kind": kind, "reason": reason, "message": message}
        frames.send(self._control, dict(said))


def main() -> NoReturn:
    """Serves on standard input; never returns."""
    linux.end_with_parent()
    for number in (signal.SIGINT, signal.SIGTERM):
        # An interrupt is for the process that calls, which then ends this one.
        signal.signal(number, signal.SIG_IGN if number == signal.SIGINT else signal.SIG_DFL)
    linux.set_limit("RLIMIT_CORE", 0)
    linux.set_limit("RLIMIT_NOFILE", MOST_FILES)
    control = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    with contextlib.suppress(OSError, Gone):
        Helper(control).serve()
    os._exit(0)
