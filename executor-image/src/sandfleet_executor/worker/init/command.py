"""The supervisor of a command: starts the program, reports its end, and kills what the program left running.

The supervisor is a subreaper, so daemons (setsid, double fork) stay below it. The program cannot trace it.
"""

import errno
import os
import resource
import select
import signal
import socket
from typing import Any

from ..base import frames, linux, tree
from .terminal import Terminal

NOT_FOUND = 127
# Of programs that a command left running.
MOST_NAMES = 5
NOT_EXECUTABLE = 126
# A foreign root may have no bash.
SHELL = next((path for path in ("/bin/bash", "/usr/bin/bash") if os.access(path, os.X_OK)), "/bin/sh")
# Linux takes single arguments up to 128 KiB; a longer shell line is passed as a file.
LONGEST_ARGUMENT = 120 * 1024
WHY = {
    errno.E2BIG: "Linux takes up to 131071 bytes in one argument or variable, and 2 MiB in all; use stdin or a file",
    errno.EAGAIN: "the sandbox has as many processes as its limit allows",
}


class NoFolderError(OSError):
    """The working directory cannot be entered."""


class Supervisor:
    """Forked ahead and used for many commands: under gVisor a fork and an exit take longer than the rest."""

    def __init__(self, control: socket.socket, open_files: int) -> None:
        """`open_files`: the limit of programs. The supervisor's own is higher until it starts the first."""
        self.control, self._open_files = control, open_files
        linux.become_subreaper()
        self.woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def run(self, request: dict[str, Any], payload: bytes) -> None:
        """Runs a command to its end.

        `request`: {cwd, envs, shell: bool, tell: bool, terminal: {rows, cols}?}; `payload`: NUL-joined argv, or the
        shell line. Standard input, output and error are in place; with a terminal, standard error is a socket that
        takes its master. Sends {"event":"begun"} before user code runs; with `tell` {"event":"running","pid"}; at the
        end
        {"event":"failed","code":126|127,"message","folder"?}, or, when no process of the command is left,
        {"event":"exited","code","signal","leftover","names","cpu","peak","written"}.
        """
        terminal = Terminal(request["terminal"], 2) if request.get("terminal") else None
        # Not before: a process may send no descriptor while its user has more than this on their way, and others of the
        # user can bring that about. Where this supervisor has had a program, a fresh one takes its place.
        linux.set_limit("RLIMIT_NOFILE", self._open_files)
        frames.send(self.control, {"event": "begun"})
        try:
            pid = start(request, payload, terminal)
        except OSError as error:
            code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
            message = f"{error.strerror}: {os.fsdecode(error.filename or '')}"
            if error.errno in WHY:
                message += f" ({WHY[error.errno]})"
            end: dict[str, Any] = {"event": "failed", "code": code, "message": message}
            if isinstance(error, NoFolderError):
                end |= {"code": NOT_EXECUTABLE, "folder": True}
            self.release_files()
        else:
            # The program has its own copies. Held here, its pipes would stay open after its end.
            self.release_files()
            if request.get("tell"):
                frames.send(self.control, {"event": "running", "pid": pid})
            end = {"event": "exited", **self.wait_for_end(pid)}
        if terminal:
            terminal.close()
        frames.send(self.control, end)

    def release_files(self) -> None:
        """Closes the command's streams and leaves its folder."""
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        os.close(null)
        os.chdir("/")

    def wait_for_end(self, pid: int) -> dict[str, Any]:
        """How the program ended; what it left running is killed then."""
        used = Usage()
        status = pass_signals_on(self.control, self.woken, pid, used)
        leftover = tree.kill_tree(os.getpid(), include_root=False)
        names = tree.names_below(os.getpid(), MOST_NAMES) if leftover else []
        reap_all(used)
        code, number = linux.split_status(status)
        return {
            "code": code,
            "signal": number,
            "leftover": leftover,
            "names": names,
            "cpu": used.cpu,
            "peak": used.peak,
            "written": used.written,
        }


class Usage:
    """What all reaped processes of one command used."""

    def __init__(self) -> None:
        self.cpu = 0.0
        # The kernel starts a child's figure at the size of this process when it forked: the least is about 25 MB.
        self.peak = 0
        self.written = 0

    def add(self, usage: resource.struct_rusage) -> None:
        self.cpu += usage.ru_utime + usage.ru_stime
        self.peak = max(self.peak, usage.ru_maxrss * 1024)
        self.written += usage.ru_oublock * tree.BLOCK_BYTES


def start(request: dict[str, Any], payload: bytes, terminal: Terminal | None) -> int:
    """Starts the program; its pid. Raises OSError as exec does."""
    try:
        os.chdir(request["cwd"])
    except OSError as error:
        raise NoFolderError(error.errno, error.strerror, error.filename) from error
    environment = {os.fsencode(name): os.fsencode(value) for name, value in request["envs"].items()}
    os.environb.clear()
    os.environb.update(environment)
    argv = shell_argv(payload) if request["shell"] else payload.split(b"\0")
    actions = terminal.file_actions() if terminal else []
    try:
        return os.posix_spawnp(
            argv[0],
            argv,
            environment,
            setsid=True,
            setsigmask=[],
            setsigdef=linux.SIGNALS_TO_RESET,
            file_actions=actions,
        )
    except OSError as error:
        # gVisor reports an argument that is too long as a file name that is too long.
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


def pass_signals_on(control: socket.socket, woken: int, pid: int, used: Usage) -> int:
    """Passes the executor's signals on, and reaps, until the program ends; its wait status."""
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
                # The executor has closed this socket: it kills the command through the spawner.
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


def reap(program: int, used: Usage) -> int | None:
    """Reaps all ended children; the program's wait status if the program is one of them."""
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


def reap_all(used: Usage) -> None:
    """Waits for all children that are left. They were killed."""
    while True:
        try:
            _, _, usage = os.wait4(-1, 0)
        except ChildProcessError:
            return
        used.add(usage)
