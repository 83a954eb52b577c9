"""Syntax errors of a script, from a second bash that runs nothing: the live one writes them to stderr alone."""

import os
import select
import signal
import time

from ..languages import LANGUAGES

# The longest time for a check, in seconds.
TIMEOUT = 2.0
READ_BYTES = 64 << 10
# The most of its output that is read, in bytes, and of the line that is passed on, in characters.
MAX_BYTES = 256 << 10
MAX_CHARACTERS = 1024


def error_in(path: str, *, extended: bool) -> str:
    """The first error, as "line 3: syntax error near unexpected token `fi'"; empty if none is found.

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
    output, whole = _read(reader, time.monotonic() + TIMEOUT)
    os.close(reader)
    if not whole:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return first_error(output, path) if os.waitstatus_to_exitcode(status) > 0 else ""


def first_error(output: bytes, path: str) -> str:
    """The first line of bash's messages that is no warning, without the name of the script."""
    for line in output.decode("utf-8", "replace").splitlines():
        text = line.removeprefix(f"{path}: ")
        if text != line and ": warning: " not in text:
            return text[:MAX_CHARACTERS]
    return ""


def _start(path: str, stderr: int, *, extended: bool) -> int:
    options = ["-O", "extglob"] if extended else []
    return os.posix_spawn(
        LANGUAGES["bash"].program,
        ["bash", "--norc", "--noprofile", *options, "-n", path],
        # Without the user's environment: BASH_ENV names a script that bash would run.
        {"LC_ALL": "C"},
        file_actions=[(os.POSIX_SPAWN_DUP2, stderr, 2)],
        setsigmask=[],
        setsigdef=[signal.SIGINT, signal.SIGPIPE],
    )


def _read(fd: int, until: float) -> tuple[bytes, bool]:
    """What bash writes, and whether that is all of it."""
    output = b""
    while (left := until - time.monotonic()) > 0 and select.select([fd], [], [], left)[0]:
        data = os.read(fd, READ_BYTES)
        if not data:
            return output, True
        output = (output + data)[:MAX_BYTES]
    return output, False
