"""The executor host: on one machine, the parent of all executors of a fleet.

It imports everything once and forks an executor for each sandbox, which so starts in milliseconds and shares its
memory. It speaks JSON lines with its owner on a socket; the owner's end is its own end.

→ {"op":"start","config":{…}} · {"op":"stop","sandbox_uid":…}
← {"event":"started"|"ready","sandbox_uid","pid"?} · {"event":"failed","sandbox_uid","message"} ·
  {"event":"exited","sandbox_uid","code","signal"} · {"event":"error","message"}
"""

import compileall
import gc
import json
import os
import resource
import select
import signal
import socket
import time
import traceback
from collections.abc import Mapping
from typing import Any, NoReturn

from sandfleet_executor import server
from sandfleet_executor.core.config import ExecutorConfig
from sandfleet_executor.core.errors import ConfigError
from sandfleet_executor.effects.namespace import cgroup
from sandfleet_executor.effects.namespace.launch import rules_folder, worker_folder
from sandfleet_executor.worker.base import linux

MAX_LINE_BYTES = 64 << 10
STOP_SECONDS = 3.0
READY = b"\nready\n"


class Host:
    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.received = b""
        # pid → sandbox uid
        self.executors: dict[int, str] = {}
        # read end of the pipe on which an executor says that it is ready, or why not → (pid, what it said so far)
        self.starting: dict[int, tuple[int, bytes]] = {}
        # pid → moment (monotonic) at which it is killed
        self.stopping: dict[int, float] = {}
        self.woken, wake = os.pipe()
        os.set_blocking(self.woken, False)
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self.wake = wake

    def loop(self) -> None:
        """Returns when the owner has gone and no executor is left."""
        poller = select.poll()
        poller.register(self.control, select.POLLIN)
        poller.register(self.woken, select.POLLIN)
        owned = True
        while owned or self.executors:
            for fd in self.starting:
                poller.register(fd, select.POLLIN)
            for fd, _ in poller.poll(100 if self.stopping else None):
                if fd == self.woken:
                    os.read(fd, 4096)
                elif fd in self.starting:
                    self.hear(fd)
                    if fd not in self.starting:
                        poller.unregister(fd)
                elif owned and not self.take():
                    owned = False
                    poller.unregister(self.control)
                    self.stop_all()
            self.reap()
            self.kill_late()

    def say(self, **event: Any) -> None:
        try:
            self.control.sendall(json.dumps(event).encode() + b"\n")
        except OSError:
            return  # The owner has gone; the end of its stream says so as well.

    def take(self) -> bool:
        """Takes what the owner sent; False when it has gone."""
        try:
            data = self.control.recv(MAX_LINE_BYTES)
        except OSError:
            data = b""
        if not data:
            return False
        *lines, self.received = (self.received + data).split(b"\n")
        if len(self.received) > MAX_LINE_BYTES:
            self.say(event="error", message=f"cannot take a line of more than {MAX_LINE_BYTES} bytes")
            return False
        for line in lines:
            self.serve(line)
        return True

    def serve(self, line: bytes) -> None:
        try:
            request = json.loads(line)
            match request["op"]:
                case "start":
                    self.start(ExecutorConfig.parse(request["config"]))
                case "stop":
                    self.stop(str(request["sandbox_uid"]))
                case unknown:
                    self.say(event="error", message=f"cannot serve {unknown!r}: no such operation")
        except ConfigError as error:
            self.refuse(request, str(error))
        except (ValueError, KeyError, TypeError) as error:
            self.say(event="error", message=f"cannot understand the request: {error!r}")

    def refuse(self, request: Mapping[str, Any], message: str) -> None:
        uid = request["config"].get("sandbox_uid") if isinstance(request["config"], dict) else None
        self.say(event="failed", sandbox_uid=uid, message=message)

    def start(self, config: ExecutorConfig) -> None:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            self.become_executor(config, reader, writer)
        os.close(writer)
        self.executors[pid] = config.sandbox_uid
        self.starting[reader] = (pid, b"")
        self.say(event="started", sandbox_uid=config.sandbox_uid, pid=pid)

    def become_executor(self, config: ExecutorConfig, reader: int, writer: int) -> NoReturn:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for fd in (reader, self.woken, self.wake, *self.starting):
                os.close(fd)
            self.control.close()
            linux.end_with_parent()
            # Errors before the executor is ready are reported to the owner.
            errors = os.dup(2)
            os.dup2(writer, 2)

            def ready() -> None:
                os.write(writer, READY)
                os.dup2(errors, 2)
                os.close(writer)

            code = server.run(config, ready)
        except Exception:  # noqa: BLE001 - the child's last words: it must not return into the host's loop
            traceback.print_exc()
        finally:
            os._exit(code)

    def hear(self, fd: int) -> None:
        """The executor says that it is ready, warns of something, or ends with the reason."""
        pid, said = self.starting[fd]
        new = os.read(fd, 65_536)
        said = (said + new)[-MAX_LINE_BYTES:]
        uid = self.executors.get(pid, "")
        if new and not said.endswith(READY):
            self.starting[fd] = (pid, said)
            return
        if said.endswith(READY):
            self.say(event="ready", sandbox_uid=uid)
            os.write(2, said.removesuffix(READY))
        elif said:
            last = said.decode(errors="replace").strip().splitlines()[-1:]
            self.say(event="failed", sandbox_uid=uid, message="".join(last)[:4096])
        del self.starting[fd]
        os.close(fd)

    def stop(self, uid: str) -> None:
        for pid, known in self.executors.items():
            if known == uid and pid not in self.stopping:
                os.kill(pid, signal.SIGTERM)
                self.stopping[pid] = time.monotonic() + STOP_SECONDS

    def stop_all(self) -> None:
        for uid in set(self.executors.values()):
            self.stop(uid)

    def kill_late(self) -> None:
        now = time.monotonic()
        for pid, moment in self.stopping.items():
            if now >= moment and pid in self.executors:
                os.kill(pid, signal.SIGKILL)

    def reap(self) -> None:
        """Executors that have ended, and the orphans that they leave: PID 1 of a container need not be an init."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            uid = self.executors.pop(pid, None)
            self.stopping.pop(pid, None)
            if uid is None:
                continue
            number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
            code = None if number else os.WEXITSTATUS(status)
            self.say(event="exited", sandbox_uid=uid, code=code, signal=signal.Signals(number).name if number else None)


def main(control_fd: int) -> int:
    """Serves the owner at the other end of the socket `control_fd`."""
    control = socket.socket(fileno=control_fd)
    control.set_inheritable(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    linux.become_subreaper()
    # Executors send descriptors, which the kernel refuses where the user has more than this on their way.
    linux.set_limit("RLIMIT_NOFILE", resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    cgroup.sweep()
    # User code sees the worker read-only; without byte code every session namespace would compile it anew.
    for folder in (worker_folder(), rules_folder()):
        compileall.compile_dir(folder, quiet=2)
    gc.collect()
    gc.freeze()
    Host(control).loop()
    return 0
