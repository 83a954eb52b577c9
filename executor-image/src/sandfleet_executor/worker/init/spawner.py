"""PID 1 of the session namespace: forks contexts and supervisors of commands, and guards the sandbox's memory.

It has one thread with one loop. No process of the same user can kill, stop or trace it (it is PID 1 and not dumpable).
It ends with its control socket.

Requests on the control socket; descriptors come beside the prefix of the frame:
  {"op":"prepare","id","kind":"context"|"command"}  fd: control socket of the child, for its work (child.py)
  {"op":"expect","id"}  copies of a context are going to become children of this process
  {"op":"adopt","id","pids"}  these are the copies; none where there are none
  {"op":"wake","pid"}  a copy becomes a context
  {"op":"connect","id","port","seconds"}  fd: a socket, which takes the connected descriptor (connect.py)
  {"op":"ports","id","pids"} (ports.py)
  {"op":"signal","pid","signal"} · {"op":"kill","pid"} · {"op":"busy","count"} · {"op":"usage","id","age"}
  {"op":"unlinked","id"} · {"op":"ping","id"}
  {"op":"freeze","id","seconds"} · {"op":"thaw","id"} (freezer.py)
Answers, with the request's id:
  {"event":"forked","id","pid"} · {"event":"failed","id","message"}
  {"event":"expecting","id"} · {"event":"adopted","id"} · {"event":"connected","id"}
  {"event":"usage","id",…} · {"event":"unlinked","id","bytes"} · {"event":"pong","id"}
  {"event":"frozen","id","still":bool} · {"event":"thawed","id"}
  {"event":"ports","id","trees":{pid:[ports, known]}}
Events:
  {"event":"hello","kernel","python","separated_user","languages","mounts":[[dev, ino]],"counts_memory","in_cgroups",
       "sockets"}
      fd: /tmp, /, and the listening sockets that "sockets" names: tools, where code calls them; egress, the way out
  {"event":"exited","pid","code","signal","memory":bool,"written"}
  {"event":"sample","trees":{pid:[rss, processes, cpu, written]}}
  {"event":"preloading","module"} · {"event":"preloaded","module","problem"} (preload.py)
"""

import contextlib
import os
import resource
import select
import signal
import socket
import sys
import time
from typing import Any, NoReturn

from .. import languages
from ..base import frames, linux, tree
from . import child, connect, freezer, machine, meter, ports, preload, syscalls

# A Python context's address space is limited to this much above the memory limit: a second line, for one huge
# allocation.
ADDRESS_HEADROOM = 1 << 30
# Processes that the spawner may have above the limit of user code, so that a fork bomb does not stop its work.
OWN_PROCESSES = 16
# More than user code has: the kernel lets a process send a descriptor only while its user has no more than this on
# their way, and code of the same user can have many.
OPEN_FILES = 65_536
# The most descriptors that one search for files without a name looks at.
MAX_DESCRIPTORS = 16_384
# Connections to a socket of the executor that the kernel holds until they are accepted.
WAITING_CONNECTIONS = 1024
# Exit code of a child that failed before its work began.
EXIT_BROKEN = 70


class Spawner:
    """The loop of PID 1: serves the executor's requests, reaps processes, samples memory."""

    def __init__(self, control: socket.socket, options: dict[str, Any], counted: machine.Machine) -> None:
        self._control = control
        self._rlimits: dict[str, int] = options["rlimits"]
        self._processes = resource.getrlimit(resource.RLIMIT_NPROC)
        self._address_space = int(options["memory_bytes"]) + ADDRESS_HEADROOM
        self._workspace: str = options["workspace"]
        # Whether the kernel tells what processes write to the workspace.
        self._counts_writes: bool = options["counts_writes"]
        # pid → its kind. Every other child is a stray: its supervisor was killed.
        self._children: dict[int, str] = {}
        # pid of a killed child → bytes that the processes below it had written: their supervisor cannot report them.
        self._written: dict[int, int] = {}
        # Contexts whose copies become children of this process any time now: until they are known, no stray is killed.
        self._expected = 0
        self._poller = select.poll()
        self._connections = connect.Connections(self._poller, self._send)
        self._preload = preload.Preload(options["preload"], int(options["memory_bytes"]) // 2, send=self._send)
        self._machine = counted
        self._meter = meter.Meter(options, self._children, counted, self._send, self._kill)
        self._freezer = freezer.Freezer()
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)

    def loop(self) -> None:
        """Returns when the executor has closed the control socket."""
        self._poller.register(self._control, select.POLLIN)
        self._poller.register(self._woken, select.POLLIN)
        sampled = time.monotonic()
        while True:
            due = sampled + self._meter.interval
            wait = min(due, self._connections.due, self._freezer.due) - time.monotonic()
            ready = {fd for fd, _ in self._poller.poll(max(0.0, wait) * 1000)}
            if self._woken in ready:
                self._reap()
            if self._control.fileno() in ready and not self._serve():
                return
            for fd in ready:
                self._connections.ready(fd)
            self._connections.expire()
            if time.monotonic() >= self._freezer.due:
                self._freezer.thaw()
            if time.monotonic() >= due:
                self._kill_strays(self._meter.sample())
                sampled = time.monotonic()

    def _send(self, header: dict[str, Any]) -> None:
        frames.send(self._control, header)

    def _serve(self) -> bool:
        """Takes one request; False at the end of the stream."""
        prefix, fds, _, _ = socket.recv_fds(self._control, frames.PREFIX.size, 1)
        try:
            frame = frames.receive_after(self._control, prefix)
            if frame is None:
                return False
            self._handle(frame, fds)
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def _handle(self, frame: frames.Frame, fds: list[int]) -> None:
        request = frame.header
        match request["op"]:
            case "prepare":
                self._fork(request["id"], request["kind"], fds)
            case "adopt":
                self._adopt(request["id"], request["pids"])
            case "expect":
                self._expected += 1
                self._send({"event": "expecting", "id": request["id"]})
            case "connect":
                self._connections.begin(request["id"], request["port"], fds[0], request["seconds"])
            case "busy":
                self._meter.busy = request["count"]
            case "wake" | "signal" | "kill":
                if request["pid"] in self._children:
                    self._act(request["op"], request["pid"], request)
            case _:
                self._send({**self._answer(request), "id": request["id"]})

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to a question."""
        match request["op"]:
            case "usage":
                return {"event": "usage", **self._meter.usage(request["age"])}
            case "unlinked":
                return {"event": "unlinked", "bytes": self._unlinked()}
            case "ping":
                return {"event": "pong"}
            case "freeze":
                return {"event": "frozen", "still": self._freezer.freeze(request["seconds"])}
            case "thaw":
                self._freezer.thaw()
                return {"event": "thawed"}
            case "ports":
                roots = [pid for pid in request["pids"] if pid in self._children]
                return {"event": "ports", "trees": ports.of_trees(roots)}
            case unknown:
                raise frames.FrameError(f"cannot serve {unknown!r}: no such operation")

    def _act(self, op: str, pid: int, request: dict[str, Any]) -> None:
        """Does something to one child."""
        match op:
            case "wake":
                self._children[pid] = child.CONTEXT
                # Code may have stopped it.
                tree.send_signal([pid], signal.SIGCONT)
            case "signal":
                tree.send_signal([pid], request["signal"])
            case "kill":
                self._kill(pid)

    def _fork(self, number: int, kind: str, fds: list[int]) -> None:
        if kind == child.CONTEXT:
            # Not at the start: the executor need not wait for IPython, and supervisors that are forked before stay
            # small.
            languages.preimport()
            if self._preload.due:
                self._preload.load()
                # A module may have taken the place of the descriptor, too.
                signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        try:
            pid = os.fork()
        except OSError as error:
            if resource.getrlimit(resource.RLIMIT_NPROC) != self._processes:
                # Under gVisor code may take this process its limits: another one begins anew.
                sys.exit("cannot start a process: code has taken the session's first process the right to")
            self._send({"event": "failed", "id": number, "message": f"cannot start a process: {error.strerror}"})
            return
        if pid == 0:
            self._become_child(kind, fds[0])
        self._children[pid] = kind
        self._send({"event": "forked", "id": number, "pid": pid})

    def _adopt(self, number: int, pids: list[int]) -> None:
        """Takes the strays that were expected as children."""
        if all(map(self._is_stray, pids)):
            self._children |= dict.fromkeys(pids, child.COPY)
            self._send({"event": "adopted", "id": number})
        else:
            self._send({"event": "failed", "id": number, "message": "cannot adopt a copy: it has ended, or is none"})
        self._expected -= 1
        self._kill_strays(tree.scan())

    def _is_stray(self, pid: int) -> bool:
        found = tree.read_process(pid)
        return found is not None and found.parent == os.getpid() and pid not in self._children

    def _become_child(self, kind: str, fd: int) -> NoReturn:
        try:
            self._leave_spawner()
            control = socket.socket(fileno=fd)
            control.set_inheritable(False)
            child.run(kind, control, self._rlimits, self._address_space)
        finally:
            # Reached only by an error above: nothing of the spawner may run in its child.
            os._exit(EXIT_BROKEN)

    def _leave_spawner(self) -> None:
        signal.set_wakeup_fd(-1)
        for fd in (self._woken, self._wake):
            os.close(fd)
        self._control.close()
        self._connections.close()
        self._machine.join()
        self._machine.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # An interrupt before the child's work begins has no receiver.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.setsid()

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._woken, 4096)
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if self._children.pop(pid, None) is None:
                continue
            code, number = linux.split_status(status)
            memory = self._meter.was_condemned(pid)
            written = usage.ru_oublock * tree.BLOCK_BYTES + self._written.pop(pid, 0)
            self._send(
                {"event": "exited", "pid": pid, "code": code, "signal": number, "memory": memory, "written": written}
            )
        self._kill_strays(tree.scan())

    def _kill(self, pid: int) -> None:
        if self._counts_writes:
            self._written[pid] = tree.written_bytes(tree.descendants(tree.scan(), pid))
        # A copy may still be below the context that it was made of.
        tree.kill_tree(pid, spared=self._children.keys() - {pid})

    def _kill_strays(self, processes: meter.Processes) -> None:
        """Kills all at once: killing hundreds one by one would take many seconds of the spawner's only thread.

        Not only when a process ends: one can leave its context, or be made beside it, while nothing of ours ends.
        """
        if self._expected:
            return
        own = os.getpid()
        strays = [
            each.pid
            for each in processes.values()
            if each.parent == own and each.pid not in self._children and each.state != "Z"
        ]
        if strays:
            tree.kill_trees(strays, spared=self._children.keys())

    def _unlinked(self) -> int:
        """Bytes of the workspace in files without a name, which only open descriptors hold."""
        try:
            device = os.stat(self._workspace).st_dev  # noqa: PTH116 - pathlib is not needed in PID 1
        except OSError:
            return 0
        return tree.unlinked_bytes(tree.scan(), device, MAX_DESCRIPTORS)


def main(options: dict[str, Any]) -> None:
    """Runs until the control socket ends. The executor's launch.py makes the `options`."""
    linux.end_with_parent()
    # Without a PID namespace (isolation "none") orphans come to this process only as to a subreaper.
    linux.become_subreaper()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=int(options["control_fd"]))
    control.set_inheritable(False)
    linux.set_limit("RLIMIT_NPROC", options["rlimits"]["RLIMIT_NPROC"] + OWN_PROCESSES)
    linux.set_limit("RLIMIT_NOFILE", 2 * max(OPEN_FILES, options["rlimits"]["RLIMIT_NOFILE"]))
    linux.set_limit("RLIMIT_CORE", 0)
    separated = linux.separated_user()
    linux.hide_from_peers()
    if options["has_capabilities"]:
        linux.keep_no_more_capabilities()
    if options["filters_calls"]:
        syscalls.install()
    counted = machine.of(options)
    # The namespace's own: what there is besides them can only be read.
    places = [os.open(place, os.O_RDONLY | os.O_DIRECTORY) for place in ("/tmp", "/")]  # noqa: S108
    hello = {
        "event": "hello",
        "kernel": linux.kernel(),
        "python": sys.version.split()[0],
        "separated_user": separated,
        "languages": languages.available(),
        "mounts": [[status.st_dev, status.st_ino] for status in map(os.stat, options["mounts"])],
        "counts_memory": isinstance(counted, machine.Cgroup),
        "in_cgroups": counted.in_cgroups,
        "sockets": list(sockets := listening_sockets(options)),
    }
    places += sockets.values()
    send_with_fds(control, frames.encode(hello), places)
    for place in places:
        os.close(place)
    Spawner(control, options, counted).loop()


def listening_sockets(options: dict[str, Any]) -> dict[str, int]:
    """Descriptors of sockets in the session's network, by name: no code can remove or replace them."""
    found = {}
    if options["tools_socket"]:
        found["tools"] = listening(socket.AF_UNIX, f"\0{options['tools_socket']}")
    if options["egress_port"]:
        found["egress"] = listening(socket.AF_INET, ("127.0.0.1", options["egress_port"]))
    return found


def listening(family: int, address: Any) -> int:
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.bind(address)
    listener.listen(WAITING_CONNECTIONS)
    return listener.detach()


def send_with_fds(sock: socket.socket, data: bytes, fds: list[int]) -> None:
    """Sends the descriptors with the prefix, then the rest."""
    socket.send_fds(sock, [data[: frames.PREFIX.size]], fds)
    sock.sendall(data[frames.PREFIX.size :])


if __name__ == "__main__":
    sys.exit("cannot run the spawner by hand: the executor starts it")
