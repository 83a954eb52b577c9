"""The supervisor of one command: starts the program, reports its end, and ends what it left running.

It is a subreaper, so that daemons (setsid, double fork) stay below it, and it is not the program's to trace.
"""

import errno
import os
import resource
import select
import signal
import socket
from typing import Any, NoReturn

from . import frames, linux, tree

NOT_FOUND = 127
NOT_EXECUTABLE = 126
SHELL = "/bin/bash"
# Longest single argument that Linux takes is 128 KiB; a longer shell line goes in by a descriptor.
LONGEST_ARGUMENT = 120 * 1024
SIGNALS_TO_RESET = [number for number in signal.valid_signals() if number not in {signal.SIGKILL, signal.SIGSTOP}]


def run(control: socket.socket, request: dict[str, Any], payload: bytes) -> NoReturn:
    """Never returns. `request` {cwd, envs, shell: bool, rlimits}, payload = NUL-joined argv or the shell line.

    Standard input, output and error are in place. Answers on `control`:
    {"event":"started","pid"} | {"event":"failed","code":126|127,"message"}, then
    {"event":"exited","code","signal","leftover","cpu","peak"}.
    """
    linux.become_subreaper()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    try:
        pid = start(request, payload)
    except OSError as error:
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        frames.send(control, {"event": "failed", "code": code, "message": f"{error.strerror}: {error.filename or ''}"})
        os._exit(0)
    # The program has its own copies; holding these would keep its pipes open after its end.
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    frames.send(control, {"event": "started", "pid": pid})
    status, used = attend(control, woken, pid)
    leftover = tree.kill_tree(os.getpid(), include_root=False)
    used += reap_all()
    code, number = split_status(status)
    # The kernel starts a child's figure at what this process had when it forked: ~25 MB is the least that it says.
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    frames.send(
        control, {"event": "exited", "code": code, "signal": number, "leftover": leftover, "cpu": used, "peak": peak}
    )
    os._exit(0)


def start(request: dict[str, Any], payload: bytes) -> int:
    """The pid of the started program. Raises OSError as exec does."""
    os.chdir(request["cwd"])
    environment = {os.fsencode(name): os.fsencode(value) for name, value in request["envs"].items()}
    os.environb.clear()
    os.environb.update(environment)
    argv = shell_argv(payload) if request["shell"] else payload.split(b"\0")
    try:
        return os.posix_spawnp(argv[0], argv, environment, setsid=True, setsigmask=[], setsigdef=SIGNALS_TO_RESET)
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


def attend(control: socket.socket, woken: int, pid: int) -> tuple[int, float]:
    """Passes signals on and reaps until the program ends; its wait status and the cpu seconds of all reaped."""
    used = 0.0
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
            else:
                signal_group(pid, int(frame.header["signal"]))
        ended, cpu = reap(pid)
        used += cpu
        if ended is not None:
            return ended, used


def signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return


def reap(program: int) -> tuple[int | None, float]:
    """Reaps what has ended: the program's wait status, if it is among them, and the cpu seconds of all."""
    used, found = 0.0, None
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return found, used
        if pid == 0:
            return found, used
        used += usage.ru_utime + usage.ru_stime
        if pid == program:
            found = status


def reap_all() -> float:
    """Waits for every child that is left (all were killed); their cpu seconds."""
    used = 0.0
    while True:
        try:
            _, _, usage = os.wait4(-1, 0)
        except ChildProcessError:
            return used
        used += usage.ru_utime + usage.ru_stime


def split_status(status: int) -> tuple[int, int]:
    """(exit code as a shell gives it, number of the signal or 0)."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return 128 + number, number
    return os.WEXITSTATUS(status), 0
