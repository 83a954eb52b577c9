"""What the harness says while it works: each step has a number and the time that it usually takes."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Self, TextIO

from .plan import Say

TICK_SECONDS = 1.0


def duration(seconds: float) -> str:
    """As people say it: a first guess deserves no digits."""
    if seconds < 20:
        return "a few seconds"
    if seconds < 50:
        return "half a minute"
    minutes = round(seconds / 60)
    return "a minute" if minutes < 2 else f"{minutes} minutes"


def numbered(say: Say, planned: Mapping[str, float]) -> Say:
    """Put the number before each message of the plan, which maps messages to their usual seconds, in order.

    Other messages pass through as they are: a step may turn out to need more than was planned.
    """
    order = list(planned)

    def tell(message: str) -> None:
        if message in planned:
            position = f"step {order.index(message) + 1} of {len(order)}"
            message = f"{position}, about {duration(planned[message])}: {message}"
        say(message)

    return tell


def timed(prefix: str, stream: TextIO | None = None) -> Say:
    """Print each message on a line of its own, after the time since the beginning; without a stream on stderr."""
    began = time.monotonic()

    def tell(message: str) -> None:
        print(f"{prefix}: {time.monotonic() - began:5.1f} s  {message}", file=stream or sys.stderr, flush=True)

    return tell


@contextmanager
def steps(prefix: str, planned: Mapping[str, float], stream: TextIO | None = None) -> Iterator[Say]:
    """Say how much there is to do, then number the steps. On a terminal the last line counts its seconds."""
    stream = stream or sys.stderr
    say = timed(prefix, stream)
    if len(planned) > 1:
        say(f"{len(planned)} steps, about {duration(sum(planned.values()))} in all")
    if not stream.isatty():
        yield numbered(say, planned)
        return
    with _Counting(prefix, stream) as counting:
        yield numbered(counting.say, planned)


class _Counting:
    """One line on a terminal, written again each second until the next message."""

    def __init__(self, prefix: str, stream: TextIO) -> None:
        self._prefix, self._stream = prefix, stream
        self._message, self._began = "", 0.0
        self._lock, self._over = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._count, name="progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._message:
            self._write("\n")

    def say(self, message: str) -> None:
        with self._lock:
            self._write("\n" if self._message else "")
            self._message, self._began = message, time.monotonic()
            self._show()

    def _count(self) -> None:
        while not self._over.wait(TICK_SECONDS):
            with self._lock:
                self._show()

    def _show(self) -> None:
        if self._message:
            seconds = int(time.monotonic() - self._began)
            line = f"{self._prefix}: {seconds // 60}:{seconds % 60:02}  {self._message}"
            # A line that wraps could not be written again.
            self._write(f"\r{line[: shutil.get_terminal_size().columns - 1]}")

    def _write(self, text: str) -> None:
        # A terminal that has gone away ends no build.
        with suppress(OSError):
            self._stream.write(text)
            self._stream.flush()
