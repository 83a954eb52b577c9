"""A helper process, as the process that calls a skill sees it."""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..base import frames, process
from ..packages import pip
from . import failures

WORKER = Path(__file__).absolute().parents[1]
START = """
import sys
worker, packages = sys.argv[1:]
parent, _, name = worker.rpartition("/")
sys.path.append(parent)
helper = __import__(f"{name}.wasm.helper", fromlist=["main"])
sys.path.pop()
sys.path.append(packages)
helper.main()
"""
# To start Python, load wasmtime and compile the module. A busy machine takes many times the usual 0.2 s.
LOAD_SECONDS = 60.0
CallTool = Callable[[str, bytes], tuple[bool, bytes]]


class Process:
    """Started here, and ended when a call has not come to its end."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            self._socket = socket.socket(fileno=process.private_copy(ours.fileno()))
            python = os.environ.get("SANDFLEET_PYTHON") or sys.executable
            try:
                self._process = subprocess.Popen(
                    [python, "-I", "-B", "-c", START, str(WORKER), pip.folder()],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={},
                )
            except OSError as error:
                self._socket.close()
                message = f"cannot start what runs a skill: {error.strerror}"
                raise failures.SkillUnavailable(message, reason="NoProcess") from None
        self._in_call = False

    def load(self, workspace: str, manifest: bytes, module: bytes) -> None:
        """Has it compile the module. Raises SkillError."""
        sizes, payload = frames.joined([manifest, module])
        try:
            self._ask({"op": "load", "workspace": workspace, "sizes": sizes}, payload, LOAD_SECONDS, _no_tools)
        except failures.SkillFailed as error:
            # wasmtime ends its process where it meets a type that it cannot describe, and for lack of memory.
            raise failures.SkillRefused(f"cannot use the module: {error}", reason="Module") from None

    def call(self, function: str, arguments: bytes, seconds: float, tool: CallTool) -> Any:
        """The result of a function. Raises SkillError, and TypeError for arguments that are no numbers."""
        payload = self._ask({"op": "call", "function": function}, arguments, seconds, tool)
        try:
            return json.loads(payload)
        except (ValueError, RecursionError):
            raise failures.SkillFailed("cannot read the result: it is no JSON", reason="BadResult") from None

    def is_ready(self) -> bool:
        """Whether it waits for a call."""
        if self._in_call:
            return False
        try:
            # It says nothing between calls; its end could be read.
            return not select.select([self._socket], [], [], 0)[0]
        except (OSError, ValueError):
            return False

    def end(self) -> None:
        """Ends it."""
        self._socket.close()
        self._process.kill()
        with contextlib.suppress(OSError):
            self._process.wait()

    def forget(self) -> None:
        """In a fork: it is the parent's."""
        with contextlib.suppress(OSError):
            self._socket.close()
        self._process.returncode = 0

    def _ask(self, header: dict[str, Any], payload: bytes, seconds: float, tool: CallTool) -> bytes:
        self._in_call = True
        try:
            self._socket.settimeout(LOAD_SECONDS)
            frames.send(self._socket, header, payload)
            return self._answered(seconds, tool)
        except frames.FrameError as error:
            raise failures.SkillLimit(str(error), reason="Input") from None
        except TimeoutError:
            message = f"cannot finish: it took longer than {seconds:g} s"
            raise failures.SkillLimit(message, reason="Deadline") from None
        except OSError:
            raise self._ended() from None

    def _answered(self, seconds: float, tool: CallTool) -> bytes:
        left = seconds
        while True:
            began = time.monotonic()
            self._socket.settimeout(max(left, 0.001))
            frame = frames.receive(self._socket)
            # What a tool takes on the host is no time of the module's.
            left -= time.monotonic() - began
            if frame is None:
                raise self._ended()
            match frame.header.get("event"):
                case "output":
                    _print(int(frame.header["stream"]), frame.payload)
                case "tool":
                    failed, answer = tool(str(frame.header["name"]), frame.payload)
                    self._socket.settimeout(LOAD_SECONDS)
                    frames.send(self._socket, {"op": "answer", "failed": failed}, answer)
                case "failed":
                    self._in_call = False
                    raise _failure(frame.header)
                case _:
                    self._in_call = False
                    if dropped := int(frame.header.get("dropped", 0)):
                        sys.stderr.write(f"{dropped} bytes of the skill's output dropped\n")
                    return frame.payload

    def _ended(self) -> failures.SkillError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        code = self._process.returncode
        if code == -signal.SIGKILL:
            return failures.SkillLimit("cannot finish: its process was killed, for its memory perhaps", reason="Memory")
        return failures.SkillFailed(f"cannot finish: its process has ended (exit code {code})", reason="Ended")


def _no_tools(name: str, arguments: bytes) -> tuple[bool, bytes]:
    del arguments
    raise failures.SkillDenied(f"cannot call the tool {name[:80]!r}: no function was called", reason="Tool")


def _failure(said: dict[str, Any]) -> Exception:
    kind, message = said.get("kind"), str(said.get("message"))
    if kind == "arguments":
        return TypeError(message)
    return failures.KINDS.get(str(kind), failures.SkillFailed)(message, reason=str(said.get("reason", "")))


def _print(stream: int, data: bytes) -> None:
    (sys.stdout if stream == 1 else sys.stderr).write(data.decode("utf-8", "replace"))
