"""A forked process before its work is known: it waits on its own socket, says that it has begun, and becomes what it is told.

It is forked ahead of its use, because a fork under gVisor takes longer than all the rest. A context is one for good; what
supervises a command is told the next one after its end. Request, descriptors beside the prefix:
  {"op":"begin","cwd","envs","options"}  fds: stdout, stderr          a context
  {"op":"begin","cwd","envs","shell"}    fds: stdin, stdout, stderr   a command; payload as command.run takes it
  {…,"terminal":{"rows","cols"}}         fds: a socket for its master   the same, with a terminal
The options of a context name its `language` (languages.py).
Answers: {"event":"begun"} before anything of the user's runs, or {"event":"refused","message"} and the end.
"""

import os
import resource
import socket
from typing import NamedTuple, NoReturn

from . import command, frames, languages, linux

CONTEXT, COMMAND, COPY = "context", "command", "copy"


class Limits(NamedTuple):
    """For what a child becomes: bytes of address space and of one file, processes of the user, open files of each process."""

    address_space: int
    processes: int
    open_files: int
    file_bytes: int


def run(kind: str, control: socket.socket, limits: Limits) -> NoReturn:
    """Never returns."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    os.close(null)
    resource.setrlimit(resource.RLIMIT_NPROC, (limits.processes, limits.processes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits.file_bytes, limits.file_bytes))
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits.open_files, limits.open_files))
    if kind == COMMAND:
        supervise(control)
    if frame := receive(control):
        become_context(control, frame, limits.address_space)
    # Nobody has use for it any more.
    os._exit(0)


def supervise(control: socket.socket) -> NoReturn:
    """One command after the other."""
    supervisor = command.Supervisor(control)
    while frame := receive(control):
        supervisor.run(frame.header, frame.payload)
    os._exit(0)


def receive(control: socket.socket) -> frames.Frame | None:
    """The next request to begin, its descriptors put in place; None at the end."""
    while True:
        frame, fds = frames.receive_with_fds(control, 3)
        # Standard input may not be among them.
        for number, fd in enumerate(fds, 3 - len(fds)):
            os.dup2(fd, number)
            os.close(fd)
        # A signal for a command that had ended meanwhile is for nobody.
        if frame is None or frame.header["op"] == "begin":
            return frame


def become_context(control: socket.socket, frame: frames.Frame, address_space: int) -> NoReturn:
    cwd, options = frame.header["cwd"], frame.header["options"]
    language = options.get("language", languages.PYTHON)
    if why := languages.missing(language):
        frames.send(control, {"event": "refused", "message": f"cannot start a context of {language}: {why}"})
        os._exit(0)
    try:
        os.chdir(cwd)
    except OSError:
        frames.send(control, {"event": "refused", "message": f"cannot work in {cwd}: there is no such directory"})
        os._exit(0)
    if languages.LANGUAGES[language].bounded:
        resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
    linux.show_to_peers()
    os.environ.clear()
    os.environ.update(frame.header["envs"])
    frames.send(control, {"event": "begun"})
    languages.run(language, control, options)
