"""What is wrong with a script's syntax, asked of a bash that runs nothing: the live one says it in the cell's standard error alone."""

import os
import select
import signal
import time

from .languages import LANGUAGES

# How long it may take, in seconds.
PATIENCE = 2.0
READ_BYTES = 64 << 10
# Of what it says, in bytes, and of the line that is passed on, in characters.
MOST_BYTES = 256 << 10
MOST_CHARACTERS = 1024


def error_in(path: str, *, extended: bool) -> str:
    """As "line 3: syntax error near unexpected token `fi'"; empty where there is no error, or nothing can be learned.

    `extended`: with the patterns of extglob.
    """
    reader, writer = os.pipe()
    try:
        pid = _start(path, writer, extended=extended)
    except OSError:
        os.close(reader)
        return ""
    finally:
        os.close(writer)
    said, whole = _read(reader, time.monotonic() + PATIENCE)
    os.close(reader)
    if not whole:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return first_error(said, path) if os.waitstatus_to_exitcode(status) > 0 else ""


def first_error(said: bytes, path: str) -> str:
    """Without the name of the script; warnings are no errors."""
    for line in said.decode("utf-8", "replace").splitlines():
        text = line.removeprefix(f"{path}: ")
        if text != line and ": warning: " not in text:
            return text[:MOST_CHARACTERS]
    return ""


def _start(path: str, stderr: int, *, extended: bool) -> int:
    options = ["-O", "extglob"] if extended else []
    return os.posix_spawn(
        LANGUAGES["bash"].program,
        ["bash", "--norc", "--noprofile", *options, "-n", path],
        # Nothing of the user's: BASH_ENV names a script that would be run.
        {"LC_ALL": "C"},
        file_actions=[(os.POSIX_SPAWN_DUP2, stderr, 2)],
        setsigmask=[],
        setsigdef=[signal.SIGINT, signal.SIGPIPE],
    )


def _read(fd: int, until: float) -> tuple[bytes, bool]:
    """What it says, and whether that is all."""
    said = b""
    while (left := until - time.monotonic()) > 0 and select.select([fd], [], [], left)[0]:
        data = os.read(fd, READ_BYTES)
        if not data:
            return said, True
        said = (said + data)[:MOST_BYTES]
    return said, False
