"""The process of a Jupyter kernel and its sockets: files in a folder of its own, so nothing listens on a network."""

import contextlib
import json
import os
import signal
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import zmq
from jupyter_client.session import Session

from ..base import kernels, linux, program

# Sockets of a kernel. Its heartbeat is not connected: a kernel without an answer is ended at a deadline.
SHELL, PUBLISHED, CONTROL, PROMPTS = "shell", "iopub", "control", "stdin"
PORTS = {SHELL: 1, PUBLISHED: 2, PROMPTS: 3, CONTROL: 4, "hb": 5}
# Messages that wait to be read: above that a kernel's own socket may drop them.
WAITING = 100_000
# As much as a pipe holds: one read has all that was printed before it.
READ_BYTES = 64 << 10
# Signals that end neither the kernel nor its cell go past it to the programs that it runs.
INTERRUPTS = (signal.SIGCONT, signal.SIGINT)


class Kernel(program.Program):
    """A kernel that was started, and the messages to it and from it."""

    def __init__(self, spec: kernels.Kernel) -> None:
        self._spec = spec
        self._starting = True
        self._folder = Path(tempfile.mkdtemp(prefix=".jupyter-", dir="/tmp"))
        key = os.urandom(16).hex()
        self._session = Session(key=key.encode(), username="sandbox", check_pid=False)
        place = f"{self._folder}/k"
        ports = {f"{name}_port": port for name, port in PORTS.items()}
        about = {"transport": "ipc", "ip": place, "key": key, "signature_scheme": "hmac-sha256", **ports}
        file = self._folder / "connection.json"
        file.write_text(json.dumps(about | {"kernel_name": spec.name}))
        super().__init__(self._start(str(file)))
        context = zmq.Context(io_threads=1)
        self._sockets = {
            name: _socket(context, name, f"ipc://{place}-{PORTS[name]}")
            for name in (SHELL, PUBLISHED, CONTROL, PROMPTS)
        }
        self._poller = zmq.Poller()
        for each in (*self._sockets.values(), *self._raw):
            self._poller.register(each, zmq.POLLIN)

    def _start(self, connection_file: str) -> int:
        argv = self._spec.command(connection_file)
        # A kernel ends itself where its parent has ended.
        envs = {**os.environ, **self._spec.envs, "JPY_PARENT_PID": str(os.getpid())}
        null = os.open(os.devnull, os.O_RDONLY)
        pipes = {number: os.pipe() for number in (1, 2)}
        # Which descriptor of the kernel each pipe is, and what was read of it.
        self._raw = {ours: number for number, (ours, _) in pipes.items()}
        self._printed: list[tuple[int, bytes]] = []
        for ours in self._raw:
            os.set_blocking(ours, False)
        files = {0: null, **{number: theirs for number, (_, theirs) in pipes.items()}}
        try:
            return os.posix_spawnp(
                argv[0],
                argv,
                envs,
                file_actions=[(os.POSIX_SPAWN_DUP2, source, number) for number, source in files.items()],
                # So that an interrupt reaches it and its programs, but not this process.
                setpgroup=0,
                setsigmask=[],
                setsigdef=linux.SIGNALS_TO_RESET,
            )
        finally:
            for each in files.values():
                os.close(each)

    def wait(self, *descriptors: int, milliseconds: int | None = None) -> set[int]:
        """Waits for messages or one of the descriptors; the descriptors that are ready."""
        for each in descriptors:
            self._poller.register(each, zmq.POLLIN)
        try:
            return {each for each, _ in self._poller.poll(milliseconds) if isinstance(each, int)}
        finally:
            for each in descriptors:
                self._poller.unregister(each)
            self._read_raw()

    def _read_raw(self) -> None:
        """One piece of each pipe. While the kernel starts it is an error report of the context."""
        self._printed.clear()
        for ours, number in list(self._raw.items()):
            try:
                data = os.read(ours, READ_BYTES)
            except BlockingIOError:
                continue
            if self._starting:
                os.write(2, data)
            elif data and self._still_prints_to(ours, number):
                self._printed.append((number, data))
            if not data:
                # All that had it have closed it.
                self._poller.unregister(ours)
                self._raw.pop(ours)
                os.close(ours)

    def _still_prints_to(self, ours: int, number: int) -> bool:
        """False for ipykernel: it reads its own descriptors, says what came in messages, and writes it here as well."""
        try:
            return os.stat(f"/proc/{self.pid}/fd/{number}").st_ino == os.fstat(ours).st_ino  # noqa: PTH116 - no path
        except OSError:
            return False

    def printed(self) -> list[tuple[int, bytes]]:
        """What the kernel and its programs have printed past the messages, up to the last wait; of which descriptor."""
        return list(self._printed)

    def received(self) -> Iterator[dict[str, Any]]:
        """The messages that have come: first what was published. What cannot be read is dropped."""
        for name in (PUBLISHED, SHELL, CONTROL, PROMPTS):
            while True:
                try:
                    _, message = self._session.recv(self._sockets[name])
                except zmq.ZMQError:
                    raise
                except Exception:  # noqa: BLE001, S112  unsigned, no JSON, too few parts: code can send there, too
                    continue
                if message is None:
                    break
                yield message

    def ask(self, kind: str, content: Mapping[str, Any], *, to: str = SHELL) -> str:
        """Sends a request; its id."""
        sent = self._session.send(self._sockets[to], kind, dict(content))
        return str(sent["header"]["msg_id"]) if sent else ""

    def interrupt(self) -> None:
        """As its kernelspec says; continues one that stopped itself, too."""
        if self._spec.takes_messages:
            self.signal(signal.SIGCONT)
            self.ask("interrupt_request", {}, to=CONTROL)
        else:
            self.signal(*INTERRUPTS)

    def has_started(self) -> None:
        """Removes what its start needed: both ends are connected."""
        self._starting = False
        with contextlib.suppress(OSError):
            (self._folder / "connection.json").unlink()


def _socket(context: Any, name: str, address: str) -> Any:
    socket = context.socket(zmq.SUB if name == PUBLISHED else zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 0)
    if name in (SHELL, PROMPTS):
        # A kernel asks for input where the cell came from.
        socket.setsockopt(zmq.IDENTITY, b"sandbox")
    socket.setsockopt(zmq.RCVHWM, WAITING)
    if name == PUBLISHED:
        socket.setsockopt(zmq.SUBSCRIBE, b"")
    # It connects when the kernel has made the file.
    socket.setsockopt(zmq.RECONNECT_IVL, 20)
    socket.connect(address)
    return socket
