"""PID 1 of the session namespace: the zygote of contexts, the parent of commands, the memory guard.

One thread, one loop. Nothing of the same user can kill, stop or trace it (PID 1, not dumpable); it ends with its control socket.

Requests on the control socket, descriptors beside the prefix of the frame:
  {"op":"context","id","cwd","envs","options"}  fds: control, stdout, stderr
  {"op":"command","id","cwd","envs","shell"}    fds: control, stdin, stdout, stderr; payload as command.run takes it
  {"op":"signal","pid","signal"} · {"op":"kill","pid"} · {"op":"busy","count"} · {"op":"usage","id"} · {"op":"ping","id"}
Answers (with the request's id) and events:
  {"event":"hello","kernel","python","separated"} fd: /tmp
  {"event":"forked","id","pid"} · {"event":"failed"|"refused","id","message"} · {"event":"usage","id",…} · {"event":"pong","id"}
  {"event":"exited","pid","code","signal","memory":bool} · {"event":"sample","trees":{pid:[rss, processes, cpu]}}
"""

import contextlib
import gc
import os
import platform
import resource
import select
import signal
import socket
import sys
import time
from typing import Any, NoReturn

from . import command, context, frames, guard, linux, machine, tree

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
        # pid → "context" or "command"; every other child of the spawner is a stray whose supervisor was killed.
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
            due = sampled + guard.interval(busy=self.is_busy(), used=self.used, limit=self.memory_limit)
            ready = {fd for fd, _ in poller.poll(max(0.0, due - time.monotonic()) * 1000)}
            if self.woken in ready:
                self.reap()
            if self.control.fileno() in ready and not self.serve():
                return
            if time.monotonic() >= due:
                self.sample()
                sampled = time.monotonic()

    def is_busy(self) -> bool:
        return self.busy > 0 or "command" in self.children.values()

    def say(self, header: dict[str, Any]) -> None:
        frames.send(self.control, header)

    def serve(self) -> bool:
        """Takes one request; False at the end of the stream."""
        prefix, fds, _, _ = socket.recv_fds(self.control, frames.PREFIX.size, 4)
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
            case "context" | "command":
                self.fork(frame, fds)
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

    def fork(self, frame: frames.Frame, fds: list[int]) -> None:
        number, cwd = frame.header["id"], frame.header["cwd"]
        if frame.header["op"] == "context" and not os.path.isdir(cwd):  # noqa: PTH112 - pathlib is not needed in PID 1
            self.say({"event": "refused", "id": number, "message": f"cannot work in {cwd}: there is no such directory"})
            return
        try:
            pid = os.fork()
        except OSError as error:
            self.say({"event": "failed", "id": number, "message": f"cannot start a process: {error.strerror}"})
            return
        if pid == 0:
            self.become_child(frame, fds)
        self.children[pid] = frame.header["op"]
        self.say({"event": "forked", "id": frame.header["id"], "pid": pid})

    def become_child(self, frame: frames.Frame, fds: list[int]) -> NoReturn:
        try:
            self.leave_spawner()
            request = frame.header
            control = socket.socket(fileno=os.dup(fds[0]))
            os.set_inheritable(control.fileno(), False)
            streams = fds[1:] if request["op"] == "command" else [os.open(os.devnull, os.O_RDONLY), *fds[1:]]
            for number, fd in enumerate(streams):
                os.dup2(fd, number)
            for fd in (*fds, *streams):
                if fd > 2:
                    close_quietly(fd)
            resource.setrlimit(resource.RLIMIT_NPROC, (self.process_limit, self.process_limit))
            if request["op"] == "command":
                command.run(control, request, frame.payload)
            self.become_context(control, request)
        finally:
            # Only an error in the lines above comes here: nothing of the spawner may run in its child.
            os._exit(70)

    def become_context(self, control: socket.socket, request: dict[str, Any]) -> NoReturn:
        linux.show_to_peers()
        ceiling = self.memory_limit + ADDRESS_HEADROOM
        resource.setrlimit(resource.RLIMIT_AS, (ceiling, ceiling))
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["envs"])
        context.run(control, request["options"])

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
        if self.is_busy():
            # Rounded, so that a tree that does nothing makes no traffic.
            shown = {
                pid: [each.rss >> 20 << 20, each.processes, round(each.cpu_seconds, 2)] for pid, each in trees.items()
            }
            if shown != self.shown:
                self.shown = shown
                self.say({"event": "sample", "trees": shown})

    def usage(self) -> dict[str, Any]:
        processes = tree.scan()
        own = processes.get(self.pid)
        trees = [tree.measure(processes, pid) for pid in self.children]
        return {
            "memory": sum(each.rss for each in trees) + (own.rss if own else 0),
            "tmp": tmp_used(self.tmp_directories),
            "processes": sum(each.processes for each in trees),
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
    context.preimport()
    own_limit = int(options["processes"]) + OWN_PROCESSES
    resource.setrlimit(resource.RLIMIT_NPROC, (own_limit, own_limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    open_files = min(OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))
    separated = separated_user()
    linux.hide_from_peers()
    # What was imported is shared with every fork; a collection there must not touch (and so copy) it.
    gc.collect()
    gc.freeze()
    tmp = os.open("/tmp", os.O_RDONLY | os.O_DIRECTORY)  # noqa: S108 - the namespace's own
    hello = {"event": "hello", "kernel": kernel(), "python": platform.python_version(), "separated_user": separated}
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
