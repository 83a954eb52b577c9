"""The supervisor of one command: starts the program, reports its end, and ends what it left running.

It is a subreaper, so that daemons (setsid, double fork) stay below it, and it is not the program's to trace.
"""

import errno
import os
import resource
import select
import signal
import socket
from typing import Any

from . import frames, linux, tree
from .terminal import Terminal

NOT_FOUND = 127
NOT_EXECUTABLE = 126
SHELL = "/bin/bash"
# Longest single argument that Linux takes is 128 KiB; a longer shell line goes in by a descriptor.
LONGEST_ARGUMENT = 120 * 1024
SIGNALS_TO_RESET = [number for number in signal.valid_signals() if number not in {signal.SIGKILL, signal.SIGSTOP}]


class Supervisor:
    """Made ahead of its use, and of use for one command after the other: a fork and an exit under gVisor take longer than the rest."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        linux.become_subreaper()
        self.woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def run(self, request: dict[str, Any], payload: bytes) -> None:
        """Takes a command to its end. `request` {cwd, envs, shell: bool, tell: bool, terminal: {rows, cols}?}, payload = NUL-joined argv or the shell line.

        Standard input, output and error are in place; for a terminal, a socket for its master is in the last one's. Says
        {"event":"begun"} before anything of the user's runs, {"event":"failed","code":126|127,"message"}, or at the end
        {"event":"exited","code","signal","leftover","cpu","peak","written"}; nothing of the command is left then. With
        `tell` it says {"event":"running","pid"} before.
        """
        terminal = Terminal(request["terminal"], 2) if request.get("terminal") else None
        frames.send(self.control, {"event": "begun"})
        try:
            pid = start(request, payload, terminal)
        except OSError as error:
            code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
            message = f"{error.strerror}: {os.fsdecode(error.filename or '')}"
            end: dict[str, Any] = {"event": "failed", "code": code, "message": message}
            self.let_go()
        else:
            # The program has its own copies; holding these would keep its pipes open after its end.
            self.let_go()
            if request.get("tell"):
                frames.send(self.control, {"event": "running", "pid": pid})
            end = {"event": "exited", **self.attend(pid)}
        if terminal:
            terminal.close()
        frames.send(self.control, end)

    def let_go(self) -> None:
        """Of the command's files and folder."""
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        os.close(null)
        os.chdir("/")

    def attend(self, pid: int) -> dict[str, Any]:
        """How the program ended."""
        used = Used()
        status = attend(self.control, self.woken, pid, used)
        leftover = tree.kill_tree(os.getpid(), include_root=False)
        reap_all(used)
        code, number = split_status(status)
        return {
            "code": code,
            "signal": number,
            "leftover": leftover,
            "cpu": used.cpu,
            "peak": used.peak,
            "written": used.written,
        }


class Used:
    """By all that was reaped of one command."""

    def __init__(self) -> None:
        self.cpu = 0.0
        # The kernel starts a child's figure at what this process had when it forked: ~25 MB is the least that it says.
        self.peak = 0
        self.written = 0

    def add(self, usage: resource.struct_rusage) -> None:
        self.cpu += usage.ru_utime + usage.ru_stime
        self.peak = max(self.peak, usage.ru_maxrss * 1024)
        self.written += usage.ru_oublock * tree.BLOCK_BYTES


def start(request: dict[str, Any], payload: bytes, terminal: Terminal | None) -> int:
    """The pid of the started program. Raises OSError as exec does."""
    os.chdir(request["cwd"])
    environment = {os.fsencode(name): os.fsencode(value) for name, value in request["envs"].items()}
    os.environb.clear()
    os.environb.update(environment)
    argv = shell_argv(payload) if request["shell"] else payload.split(b"\0")
    actions = terminal.file_actions() if terminal else []
    try:
        return os.posix_spawnp(
            argv[0], argv, environment, setsid=True, setsigmask=[], setsigdef=SIGNALS_TO_RESET, file_actions=actions
        )
    except OSError as error:
        # gVisor says of an argument that is too long that it were a file's name.
        long = any(len(text) > LONGEST_ARGUMENT for text in (*argv, *environment.values()))
        if error.errno == errno.ENAMETOOLONG and long:
            raise OSError(errno.E2BIG, os.strerror(errno.E2BIG), error.filename) from error
        raise


def shell_argv(line: bytes) -> list[bytes]:
    if len(line) <= LONGEST_ARGUMENT:
        return [SHELL.encode(), b"-c", line]
    script = os.memfd_create("command", 0)
    os.set_inheritable(script, True)
    with os.fdopen(os.dup(script), "wb") as file:
        file.write(line)
    return [SHELL.encode(), f"/proc/self/fd/{script}".encode()]


def attend(control: socket.socket, woken: int, pid: int, used: Used) -> int:
    """Passes signals on and reaps until the program ends; its wait status."""
    poller = select.poll()
    poller.register(woken, select.POLLIN)
    poller.register(control, select.POLLIN)
    while True:
        for fd, _ in poller.poll():
            if fd == woken:
                os.read(woken, 4096)
                continue
            frame = frames.receive(control)
            if frame is None:
                # The executor does not listen any more: it ends this command through the spawner.
                poller.unregister(control)
            elif frame.header.get("all"):
                tree.send_signal(tree.descendants(tree.scan(), os.getpid()), int(frame.header["signal"]))
            else:
                signal_group(pid, int(frame.header["signal"]))
        ended = reap(pid, used)
        if ended is not None:
            return ended


def signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return


def reap(program: int, used: Used) -> int | None:
    """Reaps what has ended: the program's wait status, if it is among them."""
    found = None
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        used.add(usage)
        if pid == program:
            found = status


def reap_all(used: Used) -> None:
    """Waits for every child that is left (all were killed)."""
    while True:
        try:
            _, _, usage = os.wait4(-1, 0)
        except ChildProcessError:
            return
        used.add(usage)


def split_status(status: int) -> tuple[int, int]:
    """(exit code as a shell gives it, number of the signal or 0)."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return 128 + number, number
    return os.WEXITSTATUS(status), 0
