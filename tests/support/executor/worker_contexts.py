"""Real contexts for tests: a zygote process forks them, the test holds the other ends of their socket and pipes."""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sandfleet_executor.worker.base import frames

PATIENCE = 60.0
ZYGOTE = """
import json, os, signal, socket, sys
sys.path[:] = [p for p in sys.path if p]
from sandfleet_executor.worker.python import context
context.preimport()
boss = socket.socket(fileno=int(sys.argv[1]))
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
boss.sendall(b"ready")
while True:
    data, fds, _, _ = socket.recv_fds(boss, 65536, 3)
    if not data:
        os._exit(0)
    request = json.loads(data)
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        boss.close()
        null = os.open(os.devnull, os.O_RDONLY)
        for number, fd in enumerate((null, fds[1], fds[2])):
            os.dup2(fd, number)
        control = socket.socket(fileno=os.dup(fds[0]))
        for fd in (null, *fds):
            os.close(fd)
        os.chdir(request["cwd"])
        os.environ.update(request["env"])
        context.run(control, {"context_id": "c", "memory_bytes": request["memory_bytes"]})
    for fd in fds:
        os.close(fd)
    boss.sendall(str(pid).encode())
"""


@dataclass
class Outcome:
    status: str = ""
    results: list[dict[str, bytes]] = field(default_factory=list)
    main: dict[str, bytes] | None = None
    dropped: int = 0
    error: dict[str, Any] | None = None
    out: str = ""
    err: str = ""
    cpu: float = 0.0
    peak: int = 0
    events: list[str] = field(default_factory=list)
    # (display id, whether it is an update) of each result that has one; whether each clearing waits.
    displays: list[tuple[str, bool]] = field(default_factory=list)
    cleared: list[bool] = field(default_factory=list)
    # (prompt, whether it is a password) of each request for input.
    asked: list[tuple[str, bool]] = field(default_factory=list)

    @property
    def text(self) -> str | None:
        return self.main["text/plain"].decode() if self.main else None


class Zygote:
    def __init__(self) -> None:
        self.boss, other = socket.socketpair()
        environ = {**os.environ, "PYTHONHASHSEED": "0", "COLUMNS": "80"}
        self.process = subprocess.Popen(
            [sys.executable, "-s", "-P", "-c", ZYGOTE, str(other.fileno())], pass_fds=[other.fileno()], env=environ
        )
        other.close()
        assert self.boss.recv(5) == b"ready"

    def fork(self, cwd: Path, env: dict[str, str], *, merged: bool = False, memory_bytes: int = 0) -> "Context":
        control, theirs = socket.socketpair()
        out, out_end = os.pipe()
        # Read through two descriptors, one pipe would come apart in an order by chance.
        err, err_end = (out, os.dup(out_end)) if merged else os.pipe()
        request = json.dumps({"cwd": str(cwd), "env": env, "memory_bytes": memory_bytes}).encode()
        socket.send_fds(self.boss, [request], [theirs.fileno(), out_end, err_end])
        pid = int(self.boss.recv(32))
        theirs.close()
        os.close(out_end)
        os.close(err_end)
        return Context(pid, control, out, err)

    def close(self) -> None:
        self.boss.close()
        self.process.wait(PATIENCE)


class Context:
    def __init__(self, pid: int, control: socket.socket, out: int, err: int) -> None:
        self.pid, self.control, self.out, self.err = pid, control, out, err
        self.cells = 0
        for descriptor in (out, err):
            os.set_blocking(descriptor, False)

    def run(
        self,
        code: str,
        envs: dict[str, str] | None = None,
        on_output: Callable[[str], None] | None = None,
        on_input: Callable[[dict[str, Any]], None] | None = None,
    ) -> Outcome:
        """Runs a cell to its end; on_output gets all output so far each time there is more.

        `on_input` gets each request for input, and answers with `answer`.
        """
        self.send(code, envs, takes_input=on_input is not None)
        self._on_input = on_input
        outcome = Outcome()
        written = {self.out: bytearray(), self.err: bytearray()}
        deadline = time.monotonic() + PATIENCE
        while not outcome.status:
            ready, _, _ = select.select([self.control, *written], [], [], max(deadline - time.monotonic(), 0))
            assert ready, f"no end after {PATIENCE} s; output so far: {written}"
            for descriptor, data in written.items():
                if descriptor in ready and self._drain(descriptor, data) and on_output:
                    on_output(b"".join(written.values()).decode("utf-8", "replace"))
            if self.control in ready:
                for descriptor, data in written.items():
                    self._drain(descriptor, data)
                self._take(outcome)
        outcome.out, outcome.err, *_ = (*(data.decode("utf-8", "surrogateescape") for data in written.values()), "")
        return outcome

    def answer(self, asked: dict[str, Any], text: str | None) -> None:
        """To a request for input; None refuses it."""
        frames.send(self.control, {"op": "input", "id": asked["id"], "text": text})

    def send(self, code: str, envs: dict[str, str] | None = None, *, takes_input: bool = False) -> None:
        self.cells += 1
        header = {"op": "execute", "cell": self.cells, "execution_id": f"e{self.cells}", "envs": envs or {}}
        header["input"] = takes_input
        frames.send(self.control, header, code.encode("utf-8", "surrogatepass"))

    def interrupt(self) -> None:
        os.kill(self.pid, signal.SIGINT)

    def _drain(self, descriptor: int, into: bytearray) -> bool:
        found = False
        with contextlib.suppress(BlockingIOError):
            while data := os.read(descriptor, 1 << 16):
                into += data
                found = True
        return found

    def _take(self, outcome: Outcome) -> None:
        frame = frames.receive(self.control)
        assert frame is not None, f"the context ended: {bytes(os.read(self.err, 65536))!r}"
        header = frame.header
        outcome.events.append(header["event"])
        if header["event"] == "result":
            parts, start = {}, 0
            for part in header["parts"]:
                parts[part["mime"]] = frame.payload[start : start + part["size"]]
                start += part["size"]
            assert start == len(frame.payload)
            outcome.dropped += header["dropped"]
            if "display_id" in header:
                outcome.displays.append((header["display_id"], header["update"]))
            if header["main"]:
                assert outcome.main is None
                outcome.main = parts
            else:
                outcome.results.append(parts)
        elif header["event"] == "cleared":
            outcome.cleared.append(header["wait"])
            if header["answer"]:
                frames.send(self.control, {"op": "cleared"})
        elif header["event"] == "input":
            outcome.asked.append((header["prompt"], header["password"]))
            assert self._on_input is not None
            self._on_input(header)
        elif header["event"] == "error":
            outcome.error = header | {"value": frame.payload.decode() or header["value"]}
        else:
            outcome.status, outcome.cpu, outcome.peak = header["status"], header["cpu"], header["peak"]

    def close(self) -> None:
        self.control.close()
        for descriptor in {self.out, self.err}:
            os.close(descriptor)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


class Forge:
    """Forks contexts on a workspace; ends those that are left."""

    def __init__(self, zygote: Zygote, workspace: Path) -> None:
        self.zygote, self.workspace, self.made = zygote, workspace, []
        self.packages = workspace / ".sandfleet" / "packages"
        self.env = {
            "HOME": str(workspace),
            "SANDFLEET_PACKAGES": str(self.packages),
            "MPLCONFIGDIR": "/tmp/.matplotlib",
        }

    def __call__(self, *, merged: bool = False, memory_bytes: int = 0) -> Context:
        self.made.append(self.zygote.fork(self.workspace, self.env, merged=merged, memory_bytes=memory_bytes))
        return self.made[-1]


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    made = Zygote()
    yield made
    made.close()


@pytest.fixture
def fork(zygote: Zygote, tmp_path: Path) -> Iterator[Forge]:
    """Makes contexts that share a workspace, tmp_path/workspace."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    forge = Forge(zygote, workspace)
    yield forge
    for context in forge.made:
        context.close()


@pytest.fixture
def context(fork: Forge) -> Context:
    """A new context."""
    return fork()
