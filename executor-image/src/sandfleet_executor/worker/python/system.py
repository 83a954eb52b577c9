"""`!cmd`, `x = !cmd` and `%%bash`: children with the context's descriptors, without a terminal and without input."""

import codecs
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import IO

INTERRUPT_GRACE_SECONDS = 0.5
CHUNK_BYTES = 64 << 10
SHELLS = ("/bin/bash", "/usr/bin/bash", "/bin/sh")


def find_shell() -> str:
    """The shell that runs commands."""
    return next((path for path in SHELLS if os.access(path, os.X_OK)), "sh")


def run(argv: Sequence[str], feed: bytes | None = None, *, capture: bool, env: dict[str, str] | None = None) -> int:
    """Runs a program to its end; its exit code as in IPython: negative for a signal.

    Its output goes to the context's descriptors, or with `capture` to sys.stdout. An exception (an interrupt) ends the
    program's process group and propagates.
    """
    sink = subprocess.PIPE if capture else None
    process = _start(argv, feed, sink, env)
    try:
        _feed(process, feed)
        if process.stdout is not None:
            _copy(process.stdout)
        return exit_code(process.wait())
    except BaseException:  # An interrupt, or an error of a signal handler of the user's.
        end_group(process)
        raise
    finally:
        if process.stdout is not None:
            process.stdout.close()


def output_of(argv: Sequence[str]) -> tuple[str, int]:
    """The output of a program, both streams in order, and its exit code."""
    process = _start(argv, None, subprocess.PIPE, None)
    try:
        data, _ = process.communicate()
    except BaseException:  # An interrupt, or an error of a signal handler of the user's.
        end_group(process)
        raise
    return data.decode("utf-8", "replace"), exit_code(process.returncode)


def end_group(process: "subprocess.Popen[bytes]") -> None:
    """Interrupts the program's process group, and kills it after a moment."""
    for number in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(INTERRUPT_GRACE_SECONDS)
            return


def exit_code(code: int) -> int:
    """-n for a shell's 128+n: signal n ended the program."""
    return 128 - code if code > 128 else code


def _start(
    argv: Sequence[str], feed: bytes | None, sink: int | None, env: dict[str, str] | None
) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL if feed is None else subprocess.PIPE,
        stdout=sink,
        stderr=None if sink is None else subprocess.STDOUT,
        env=env,
        process_group=0,
    )


def _feed(process: "subprocess.Popen[bytes]", feed: bytes | None) -> None:
    if feed is None or process.stdin is None:
        return
    # A program may end before it has read everything.
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(feed)
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()


def _copy(source: IO[bytes]) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while data := os.read(source.fileno(), CHUNK_BYTES):
        sys.stdout.write(decoder.decode(data))
    sys.stdout.write(decoder.decode(b"", final=True))
