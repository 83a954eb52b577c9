"""PID 1 of the session namespace: the zygote of contexts, the parent of commands, the memory guard.

One thread, one loop. Nothing of the same user can kill, stop or trace it (PID 1, not dumpable); it ends with its control socket.

Requests on the control socket, descriptors beside the prefix of the frame:
  {"op":"prepare","id","kind":"context"|"command"}  fd: control, on which the child is told what it is to be (child.py)
  {"op":"adopt","id","pids","parent"}  a context's copies, which are below it and come to the spawner when their middleman ends
  {"op":"wake","pid"}  a copy is to go on as a context
  {"op":"connect","id","port","seconds"}  fd: a socket, on which a connected descriptor comes back (connect.py)
  {"op":"ports","id","pids"} (ports.py)
  {"op":"signal","pid","signal"} · {"op":"kill","pid"} · {"op":"busy","count"} · {"op":"usage","id","age"} ·
  {"op":"unlinked","id"} · {"op":"ping","id"}
Answers (with the request's id) and events:
  {"event":"hello","kernel","python","separated_user","languages"} fd: /tmp
  {"event":"forked","id","pid"} · {"event":"failed","id","message"} · {"event":"usage","id",…} · {"event":"pong","id"} · {"event":"unlinked","id","bytes"} ·
  {"event":"adopted","id"} · {"event":"connected","id"} · {"event":"ports","id","trees":{pid:[ports, known]}}
  {"event":"exited","pid","code","signal","memory":bool,"written"} · {"event":"sample","trees":{pid:[rss, processes, cpu, written]}}
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

from . import child, command, connect, frames, guard, languages, linux, machine, ports, tree

# A Python context's address space ends here above the memory limit: the second line, for one huge allocation.
ADDRESS_HEADROOM = 1 << 30
# Processes that the spawner may have beyond the limit of user code, so that a fork bomb does not keep it from working.
OWN_PROCESSES = 16
OPEN_FILES = 4096
# Descriptors that are looked at for files without a name, so that a look has an end.
MOST_DESCRIPTORS = 16_384


class Spawner:
    def __init__(self, control: socket.socket, options: dict[str, Any]) -> None:
        self.control = control
        self.memory_limit = int(options["memory_bytes"])
        self.limits = child.Limits(
            self.memory_limit + ADDRESS_HEADROOM,
            int(options["processes"]),
            min(int(options["open_files"]), resource.getrlimit(resource.RLIMIT_NOFILE)[1]),
            int(options["disk_bytes"]),
        )
        # Whether the kernel says what processes write to the workspace.
        self.counts_writes: bool = options["counts_writes"]
        self.workspace: str = options["workspace"]
        self.tmp_directories: list[str] = options["tmp_directories"]
        self.pid = os.getpid()
        # pid → its kind; every other child of the spawner is a stray whose supervisor was killed.
        self.children: dict[int, str] = {}
        self.condemned: set[int] = set()
        self.busy = 0
        self.used = 0
        self.machine = machine.Machine()
        self.shown: dict[int, list[float]] = {}
        # What the processes below a child had written that was killed: nobody waits for them.
        self.written: dict[int, int] = {}
        self.peak = 0
        self.last: dict[str, Any] = {}
        self.last_at = 0.0
        self.poller = select.poll()
        self.connections = connect.Connections(self.poller, self.say)
        self.woken, self.wake = os.pipe()
        os.set_blocking(self.woken, False)
        os.set_blocking(self.wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.wake, warn_on_full_buffer=False)

    def loop(self) -> None:
        """Returns when the executor has gone."""
        self.poller.register(self.control, select.POLLIN)
        self.poller.register(self.woken, select.POLLIN)
        sampled = time.monotonic()
        while True:
            due = sampled + guard.interval(busy=self.busy > 0, used=self.used, limit=self.memory_limit)
            wait = min(due, self.connections.due) - time.monotonic()
            ready = {fd for fd, _ in self.poller.poll(max(0.0, wait) * 1000)}
            if self.woken in ready:
                self.reap()
            if self.control.fileno() in ready and not self.serve():
                return
            for fd in ready:
                self.connections.ready(fd)
            self.connections.expire()
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
            case "adopt":
                self.adopt(request["id"], request["pids"], request["parent"])
            case "connect":
                self.connections.begin(request["id"], request["port"], fds[0], request["seconds"])
            case "busy":
                self.busy = request["count"]
            case "wake" | "signal" | "kill":
                if request["pid"] in self.children:
                    self.act(request["op"], request["pid"], request)
            case _:
                self.say({**self.told(request), "id": request["id"]})

    def told(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to a question."""
        match request["op"]:
            case "usage":
                return {"event": "usage", **self.usage(request["age"])}
            case "unlinked":
                return {"event": "unlinked", "bytes": self.unlinked()}
            case "ping":
                return {"event": "pong"}
            case "ports":
                roots = [pid for pid in request["pids"] if pid in self.children]
                return {"event": "ports", "trees": ports.of_trees(roots)}
            case unknown:
                raise frames.FrameError(f"cannot serve {unknown!r}: no such operation")

    def act(self, op: str, pid: int, request: dict[str, Any]) -> None:
        """On one of the children."""
        match op:
            case "wake":
                self.children[pid] = child.CONTEXT
                # Code may have stopped it.
                tree.send_signal([pid], signal.SIGCONT)
            case "signal":
                tree.send_signal([pid], request["signal"])
            case "kill":
                self.kill(pid)

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

    def adopt(self, number: int, pids: list[int], parent: int) -> None:
        """Takes processes below the context `parent` for children, which they will be in a moment."""
        processes = tree.scan()
        below = set(tree.descendants(processes, parent)) if parent in self.children else set()
        if not below.issuperset(pids) or not self.children.keys().isdisjoint(pids):
            self.say({"event": "failed", "id": number, "message": "cannot adopt a copy: it is not the context's"})
            return
        self.children |= dict.fromkeys(pids, child.COPY)
        self.say({"event": "adopted", "id": number})

    def become_child(self, kind: str, fd: int) -> NoReturn:
        try:
            self.leave_spawner()
            control = socket.socket(fileno=fd)
            control.set_inheritable(False)
            child.run(kind, control, self.limits)
        finally:
            # Only an error in the lines above comes here: nothing of the spawner may run in its child.
            os._exit(70)

    def leave_spawner(self) -> None:
        signal.set_wakeup_fd(-1)
        for fd in (self.woken, self.wake):
            os.close(fd)
        self.control.close()
        self.connections.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # Until it is what it is to be, an interrupt is for nobody.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.setsid()

    def reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.woken, 4096)
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if self.children.pop(pid, None) is None:
                continue
            code, number = command.split_status(status)
            memory = pid in self.condemned
            self.condemned.discard(pid)
            written = usage.ru_oublock * tree.BLOCK_BYTES + self.written.pop(pid, 0)
            self.say(
                {"event": "exited", "pid": pid, "code": code, "signal": number, "memory": memory, "written": written}
            )
        self.kill_strays()

    def kill(self, pid: int) -> None:
        if self.counts_writes:
            self.written[pid] = tree.written(tree.descendants(tree.scan(), pid))
        # A copy may still be below the context that it was made of.
        tree.kill_tree(pid, spared=self.children.keys() - {pid})

    def kill_strays(self) -> None:
        """All at once: hundreds that were left one by one would keep the spawner from everything else for many seconds."""
        processes = tree.scan()
        strays = [
            each.pid
            for each in processes.values()
            if each.parent == self.pid and each.pid not in self.children and each.state != "Z"
        ]
        if strays:
            tree.kill_trees(strays, spared=self.children.keys())

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
        tmp = machine.tmp_used(self.tmp_directories)
        running = sum(each.rss for pid, each in trees.items() if self.children[pid] != child.COPY) + tmp
        # A copy grows by what the others write, which needs somebody who runs.
        self.used = sum(each.rss for each in trees.values()) + tmp if self.busy else running
        self.peak = max(self.peak, running)
        short = guard.to_end(trees, {}, tmp, self.memory_limit)
        if short and (over or not self.machine.known or self.machine.over(self.memory_limit)):
            self.condemn(processes, trees, tmp, running)
        if self.busy:
            # Rounded, so that a tree that does nothing makes no traffic.
            shown = {
                pid: [
                    each.rss >> 20 << 20,
                    each.processes,
                    round(each.cpu_seconds - self.own_cpu(processes, pid), 2),
                    self.written_by(processes, pid) >> 20 << 20,
                ]
                for pid, each in trees.items()
            }
            if shown != self.shown:
                self.shown = shown
                self.say({"event": "sample", "trees": shown})

    def condemn(self, processes: dict[int, tree.Process], trees: dict[int, tree.Tree], tmp: int, running: int) -> None:
        """Ends what has to go. Before that: the exact figures, which cost too much for every sample."""
        copies = [pid for pid, kind in self.children.items() if kind == child.COPY]
        if self.condemned:
            # What is ending still holds its memory, and its copy seems to hold alone what both have: that one is to be used.
            trees = {pid: each for pid, each in trees.items() if pid not in copies}
            copies = []
        if self.machine.known:
            # What nobody who runs has is the copies'.
            used = self.machine.used()
            alone = {pid: max(0, used - running) // len(copies) for pid in copies}
            ended = guard.to_end(trees, alone, tmp, self.memory_limit, used=used)
        else:
            exact = tree.proportional(processes)
            trees = {pid: tree.measure(exact, pid) for pid in trees}
            ended = guard.to_end(trees, {pid: tree.alone(pid) for pid in copies}, tmp, self.memory_limit)
        for pid in ended:
            self.condemned.add(pid)
            self.kill(pid)

    def own_cpu(self, processes: dict[int, tree.Process], pid: int) -> float:
        """Seconds that are not the user's: of a supervisor, which may have had many commands."""
        return processes[pid].ticks / tree.TICKS if self.children[pid] == child.COMMAND and pid in processes else 0.0

    def held(self, pid: int, found: tree.Tree) -> int:
        """Bytes; of a copy what it holds beside the one that it was made of."""
        return tree.alone(pid) if self.children[pid] == child.COPY else found.rss

    def written_by(self, processes: dict[int, tree.Process], pid: int) -> int:
        """By what lives of a tree. Not while memory is short: then there is no time for it."""
        if not self.counts_writes or guard.is_tight(self.used, self.memory_limit):
            return 0
        return tree.written([pid, *tree.descendants(processes, pid)])

    def unlinked(self) -> int:
        """Bytes of the workspace that only open descriptors hold."""
        try:
            device = os.stat(self.workspace).st_dev  # noqa: PTH116 - pathlib is not needed in PID 1
        except OSError:
            return 0
        return tree.unlinked(tree.scan(), device, MOST_DESCRIPTORS)

    def usage(self, age: float) -> dict[str, Any]:
        """Of everything; the processes by child. What was found less than `age` seconds ago is good enough."""
        now = time.monotonic()
        if not self.last or now - self.last_at >= age:
            self.last, self.last_at = self.measure(), now
        return self.last

    def measure(self) -> dict[str, Any]:
        processes = tree.scan()
        own = processes.get(self.pid)
        children = {pid: tree.measure(processes, pid) for pid in self.children}
        trees = children.values()
        tmp = machine.tmp_used(self.tmp_directories)
        memory = sum(self.held(pid, each) for pid, each in children.items())
        self.peak = max(self.peak, memory + tmp)
        return {
            "memory": memory + (own.rss if own else 0),
            "peak": self.peak + (own.rss if own else 0),
            "tmp": tmp,
            "processes": {pid: each.processes for pid, each in children.items()},
            "cpu": sum(each.cpu_seconds for each in trees),
        }


def main(options: dict[str, Any]) -> None:
    """Runs until the control socket ends. `options` as launch.plan gives them."""
    linux.end_with_parent()
    # Without a PID namespace (isolation "none") orphans come here only by this.
    linux.become_subreaper()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=int(options["control_fd"]))
    control.set_inheritable(False)
    own_limit = int(options["processes"]) + OWN_PROCESSES
    resource.setrlimit(resource.RLIMIT_NPROC, (own_limit, own_limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    open_files = min(max(OPEN_FILES, int(options["open_files"])), resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))
    separated = linux.separated_user()
    linux.hide_from_peers()
    tmp = os.open("/tmp", os.O_RDONLY | os.O_DIRECTORY)  # noqa: S108 - the namespace's own
    hello = {
        "event": "hello",
        "kernel": linux.kernel(),
        "python": platform.python_version(),
        "separated_user": separated,
        "languages": languages.available(),
    }
    send_with_fds(control, frames.encode(hello), [tmp])
    os.close(tmp)
    Spawner(control, options).loop()


def send_with_fds(sock: socket.socket, data: bytes, fds: list[int]) -> None:
    """The descriptors go with the prefix, the rest follows."""
    socket.send_fds(sock, [data[: frames.PREFIX.size]], fds)
    sock.sendall(data[frames.PREFIX.size :])


if __name__ == "__main__":
    sys.exit("cannot run the spawner by hand: the executor starts it")
