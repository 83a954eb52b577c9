"""PID 1 of the session namespace: the zygote of contexts, the parent of commands, the memory guard.

One thread, one loop. Nothing of the same user can kill, stop or trace it (PID 1, not dumpable); it ends with its control socket.

Requests on the control socket, descriptors beside the prefix of the frame:
  {"op":"prepare","id","kind":"context"|"command"}  fd: control, on which the child is told what it is to be (child.py)
  {"op":"signal","pid","signal"} · {"op":"kill","pid"} · {"op":"busy","count"} · {"op":"usage","id"} · {"op":"ping","id"}
Answers (with the request's id) and events:
  {"event":"hello","kernel","python","separated_user","languages"} fd: /tmp
  {"event":"forked","id","pid"} · {"event":"failed","id","message"} · {"event":"usage","id",…} · {"event":"pong","id"}
  {"event":"exited","pid","code","signal","memory":bool} · {"event":"sample","trees":{pid:[rss, processes, cpu]}}
"""

import contextlib
import os
import platform
import resource
import select
import signal
import socket
import sys
import time
from typing import Any, NoReturn

from . import child, command, frames, guard, languages, linux, machine, tree

# A Python context's address space ends here above the memory limit: the second line, for one huge allocation.
ADDRESS_HEADROOM = 1 << 30
# Processes that the spawner may have beyond the limit of user code, so that a fork bomb does not keep it from working.
OWN_PROCESSES = 16
OPEN_FILES = 4096


class Spawner:
    def __init__(self, control: socket.socket, options: dict[str, Any]) -> None:
        self.control = control
        self.memory_limit = int(options["memory_bytes"])
        self.process_limit = int(options["processes"])
        self.tmp_directories: list[str] = options["tmp_directories"]
        self.pid = os.getpid()
        # pid → its kind; every other child of the spawner is a stray whose supervisor was killed.
        self.children: dict[int, str] = {}
        self.condemned: set[int] = set()
        self.busy = 0
        self.used = 0
        self.machine = machine.Machine()
        self.shown: dict[int, list[float]] = {}
        self.woken, self.wake = os.pipe()
        os.set_blocking(self.woken, False)
        os.set_blocking(self.wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.wake, warn_on_full_buffer=False)

    def loop(self) -> None:
        """Returns when the executor has gone."""
        poller = select.poll()
        poller.register(self.control, select.POLLIN)
        poller.register(self.woken, select.POLLIN)
        sampled = time.monotonic()
        while True:
            due = sampled + guard.interval(busy=self.busy > 0, used=self.used, limit=self.memory_limit)
            ready = {fd for fd, _ in poller.poll(max(0.0, due - time.monotonic()) * 1000)}
            if self.woken in ready:
                self.reap()
            if self.control.fileno() in ready and not self.serve():
                return
            if time.monotonic() >= due:
                self.sample()
                sampled = time.monotonic()

    def say(self, header: dict[str, Any]) -> None:
        frames.send(self.control, header)

    def serve(self) -> bool:
        """Takes one request; False at the end of the stream."""
        prefix, fds, _, _ = socket.recv_fds(self.control, frames.PREFIX.size, 1)
        try:
            frame = frames.receive_after(self.control, prefix)
            if frame is None:
                return False
            self.handle(frame, fds)
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def handle(self, frame: frames.Frame, fds: list[int]) -> None:
        request = frame.header
        match request["op"]:
            case "prepare":
                self.fork(request["id"], request["kind"], fds)
            case "signal":
                if request["pid"] in self.children:
                    tree.send_signal([request["pid"]], request["signal"])
            case "kill":
                if request["pid"] in self.children:
                    tree.kill_tree(request["pid"])
            case "busy":
                self.busy = request["count"]
            case "usage":
                self.say({"event": "usage", "id": request["id"], **self.usage()})
            case "ping":
                self.say({"event": "pong", "id": request["id"]})
            case unknown:
                raise frames.FrameError(f"cannot serve {unknown!r}: no such operation")

    def fork(self, number: int, kind: str, fds: list[int]) -> None:
        if kind == child.CONTEXT:
            # IPython, once: the executor need not wait for it to be there, and a supervisor that was forked before is small.
            from . import context

            context.preimport()
        try:
            pid = os.fork()
        except OSError as error:
            self.say({"event": "failed", "id": number, "message": f"cannot start a process: {error.strerror}"})
            return
        if pid == 0:
            self.become_child(kind, fds[0])
        self.children[pid] = kind
        self.say({"event": "forked", "id": number, "pid": pid})

    def become_child(self, kind: str, fd: int) -> NoReturn:
        try:
            self.leave_spawner()
            control = socket.socket(fileno=fd)
            control.set_inheritable(False)
            child.run(kind, control, address_space=self.memory_limit + ADDRESS_HEADROOM, processes=self.process_limit)
        finally:
            # Only an error in the lines above comes here: nothing of the spawner may run in its child.
            os._exit(70)

    def leave_spawner(self) -> None:
        signal.set_wakeup_fd(-1)
        for fd in (self.woken, self.wake):
            os.close(fd)
        self.control.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.setsid()

    def reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.woken, 4096)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if self.children.pop(pid, None) is None:
                continue
            code, number = command.split_status(status)
            memory = pid in self.condemned
            self.condemned.discard(pid)
            self.say({"event": "exited", "pid": pid, "code": code, "signal": number, "memory": memory})
        self.kill_strays()

    def kill_strays(self) -> None:
        processes = tree.scan()
        for process in processes.values():
            if process.parent == self.pid and process.pid not in self.children and process.state != "Z":
                tree.kill_tree(process.pid)

    def sample(self) -> None:
        # Memory that forks share counts once for each of them in `used`, which so errs on the side of looking.
        over = guard.is_tight(self.used, self.memory_limit) and self.machine.over(self.memory_limit)
        if over:
            self.machine.freeze()
        try:
            self.look(over=over)
        finally:
            if over:
                self.machine.thaw()

    def look(self, *, over: bool) -> None:
        processes = tree.scan()
        trees = {pid: tree.measure(processes, pid) for pid in self.children}
        tmp = tmp_used(self.tmp_directories)
        condemned = guard.victim(trees, tmp, self.memory_limit)
        if condemned is not None and self.machine.known:
            condemned = condemned if over or self.machine.over(self.memory_limit) else None
        elif condemned is not None:
            # Before anything is killed: the exact figure, which costs too much for every sample.
            processes = tree.proportional(processes)
            trees = {pid: tree.measure(processes, pid) for pid in self.children}
            condemned = guard.victim(trees, tmp, self.memory_limit)
        self.used = sum(each.rss for each in trees.values()) + tmp
        if condemned is not None:
            self.condemned.add(condemned)
            tree.kill_tree(condemned)
        if self.busy:
            # Rounded, so that a tree that does nothing makes no traffic.
            shown = {
                pid: [each.rss >> 20 << 20, each.processes, round(each.cpu_seconds - self.own_cpu(processes, pid), 2)]
                for pid, each in trees.items()
            }
            if shown != self.shown:
                self.shown = shown
                self.say({"event": "sample", "trees": shown})

    def own_cpu(self, processes: dict[int, tree.Process], pid: int) -> float:
        """Seconds that are not the user's: of a supervisor, which may have had many commands."""
        return processes[pid].ticks / tree.TICKS if self.children[pid] == child.COMMAND and pid in processes else 0.0

    def usage(self) -> dict[str, Any]:
        """Of everything; the processes by child."""
        processes = tree.scan()
        own = processes.get(self.pid)
        children = {pid: tree.measure(processes, pid) for pid in self.children}
        trees = children.values()
        return {
            "memory": sum(each.rss for each in trees) + (own.rss if own else 0),
            "tmp": tmp_used(self.tmp_directories),
            "processes": {pid: each.processes for pid, each in children.items()},
            "cpu": sum(each.cpu_seconds for each in trees),
        }


def close_quietly(fd: int) -> None:
    try:
        os.close(fd)
    except OSError:
        return


def tmp_used(directories: list[str]) -> int:
    """Bytes in the namespace's file systems that live in memory."""
    used = 0
    for path in directories:
        try:
            state = os.statvfs(path)
        except OSError:
            continue
        used += (state.f_blocks - state.f_bfree) * state.f_frsize
    return used


def separated_user() -> bool:
    """Whether this is a user namespace of its own: its map is not the whole range of ids."""
    try:
        with open("/proc/self/uid_map", encoding="ascii") as file:  # noqa: PTH123 - pathlib is not needed in PID 1
            return file.read().split()[-1] != "4294967295"
    except (OSError, IndexError):
        return False


def main(options: dict[str, Any]) -> None:
    """Runs until the control socket ends. `options` {control_fd, memory_bytes, processes, tmp_directories}."""
    linux.end_with_parent()
    # Without a PID namespace (isolation "none") orphans come here only by this.
    linux.become_subreaper()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=int(options["control_fd"]))
    control.set_inheritable(False)
    own_limit = int(options["processes"]) + OWN_PROCESSES
    resource.setrlimit(resource.RLIMIT_NPROC, (own_limit, own_limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    open_files = min(OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))
    separated = separated_user()
    linux.hide_from_peers()
    tmp = os.open("/tmp", os.O_RDONLY | os.O_DIRECTORY)  # noqa: S108 - the namespace's own
    hello = {
        "event": "hello",
        "kernel": kernel(),
        "python": platform.python_version(),
        "separated_user": separated,
        "languages": languages.available(),
    }
    send_with_fds(control, frames.encode(hello), [tmp])
    os.close(tmp)
    Spawner(control, options).loop()


def kernel() -> str:
    """What the kernel says of itself, as user code sees it."""
    name = os.uname()
    return f"{name.sysname} {name.release} {name.version}"


def send_with_fds(sock: socket.socket, data: bytes, fds: list[int]) -> None:
    """The descriptors go with the prefix, the rest follows."""
    socket.send_fds(sock, [data[: frames.PREFIX.size]], fds)
    sock.sendall(data[frames.PREFIX.size :])


if __name__ == "__main__":
    sys.exit("cannot run the spawner by hand: the executor starts it")
