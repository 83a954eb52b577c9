"""A forked child of the spawner: it waits on its own socket for its work, answers that it has begun, and does the work.

It is forked ahead of its use, because under gVisor the fork takes longer than everything else. A context stays a
context; a supervisor takes one command after the other. Requests, with descriptors beside the prefix:
  {"op":"begin","cwd","envs","options"}  fds: stdout, stderr               a context, whose options name its `language`
  {"op":"begin","cwd","envs","shell"}    fds: stdin, stdout, stderr        a command; payload as for `Supervisor.run`
  {…,"terminal":{"rows","cols"}}         fds: a socket that takes its master   a command with a terminal
Answers: {"event":"begun"} before user code runs, or {"event":"refused","message"} before the child ends.
"""

import os
import resource
import socket
from collections.abc import Mapping
from typing import NoReturn

from .. import languages
from ..base import frames, linux
from . import command

CONTEXT, COMMAND, COPY = "context", "command", "copy"
OPEN_FILES = "RLIMIT_NOFILE"


def run(kind: str, control: socket.socket, rlimits: Mapping[str, int], address_space: int) -> NoReturn:
    """Never returns.

    `rlimits`: name → value, the kernel's limits of user code. `address_space`: bytes, for languages that are `bounded`.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    os.close(null)
    for name, value in rlimits.items():
        if (kind, name) != (COMMAND, OPEN_FILES):
            linux.set_limit(name, value)
    if kind == COMMAND:
        supervise(control, rlimits[OPEN_FILES])
    if frame := frames.receive_begin(control):
        become_context(control, frame, address_space)
    # The spare is not needed any more.
    os._exit(0)


def supervise(control: socket.socket, open_files: int) -> NoReturn:
    """Runs one command after the other."""
    supervisor = command.Supervisor(control, open_files)
    while frame := frames.receive_begin(control):
        supervisor.run(frame.header, frame.payload)
    os._exit(0)


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
    if languages.declared(language).bounded:
        resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
    linux.show_to_peers()
    os.environ.clear()
    os.environ.update(frame.header["envs"])
    frames.send(control, {"event": "begun"})
    languages.run(language, control, options)
