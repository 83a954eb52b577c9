"""Single keys of a terminal; and the key q, which ends what Ctrl-C ends."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager

# How long the reader of keys may outlive the screen, in seconds.
_LOOK = 0.2


@contextmanager
def single() -> Iterator[int]:
    """Read single keys of standard input, a descriptor. What was typed before is dropped: it was for something else."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd)
        yield fd
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


@contextmanager
def quitting() -> Iterator[None]:
    """While a screen is shown, treat q as Ctrl-C; the terminal is as before afterwards. Elsewhere it does nothing."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or threading.current_thread() is not threading.main_thread():
        yield
        return
    over = threading.Event()
    with single() as fd:
        reader = threading.Thread(target=_read, args=(fd, over), daemon=True)
        reader.start()
        try:
            yield
        finally:
            over.set()
            reader.join()


def _read(fd: int, over: threading.Event) -> None:
    while not over.is_set():
        if not select.select([fd], [], [], _LOOK)[0]:
            continue
        key = os.read(fd, 1)
        if key in (b"q", b"Q"):
            # To the thread that waits: only its own signals interrupt what it waits in.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        if key in (b"", b"q", b"Q"):
            return
