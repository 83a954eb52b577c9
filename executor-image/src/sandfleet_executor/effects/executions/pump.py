"""Reads a pipe into a sink, coalescing small writes."""

import asyncio
import contextlib
import errno
import fcntl
import os
from collections.abc import Callable

READ_BYTES = 256 << 10
# After less than this the pipe gets a moment to fill: fewer, larger messages. The first byte never waits.
SMALL_READ_BYTES = 16 << 10
COALESCE_SECONDS = 0.01
# The same for a terminal: a read of it gives 4 KiB at most, and a person waits for the echo.
QUICK_SMALL_BYTES = 1 << 10
QUICK_SECONDS = 0.001
DRAIN_BYTES = 4 << 20
PIPE_BYTES = 1 << 20
WRITABLE = 0o622


def make_pipe() -> tuple[int, int]:
    """(read end, not blocking; write end), both closed on exec."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    # Over the per-user limit on pipe memory a small pipe works as well, only slower.
    with contextlib.suppress(OSError):
        fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    # User code may open what it holds by its path (/dev/stdout), also as another user than this process. gVisor changes
    # no modes: there it is the same user.
    with contextlib.suppress(OSError):
        os.fchmod(reader, WRITABLE)
    return reader, writer


class Pump:
    """Owns the read end `fd` and calls `sink` with the data. A `quick` pump waits only shortly for more."""

    def __init__(self, fd: int, sink: Callable[[bytes], None], *, quick: bool = False) -> None:
        self.sink = sink
        self._small, self._pause = (QUICK_SMALL_BYTES, QUICK_SECONDS) if quick else (SMALL_READ_BYTES, COALESCE_SECONDS)
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._paused = False
        self._watched = False
        self.ended = False
        self._watch()

    def pause(self) -> None:
        self._paused = True
        self._unwatch()

    def resume(self) -> None:
        self._paused = False
        self._watch()

    def drain(self) -> None:
        """Takes the bytes in the pipe now, without waiting."""
        taken = 0
        while taken < DRAIN_BYTES and (data := self._read()):
            taken += len(data)
            self.sink(data)

    def close(self) -> None:
        """Takes nothing more."""
        if self._timer:
            self._timer.cancel()
        self._unwatch()
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1
        self.ended = True

    def _read(self) -> bytes:
        if self.ended:
            return b""
        try:
            data = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return b""
        except OSError as error:
            # A terminal ends in this way when its last process has closed it.
            if error.errno != errno.EIO:
                raise
            data = b""
        if not data:
            self.close()
        return data

    def _on_readable(self) -> None:
        data = self._read()
        if not data:
            return
        if len(data) < self._small:
            self._unwatch()
            self._timer = self._loop.call_later(self._pause, self._watch)
        self.sink(data)

    def _watch(self) -> None:
        self._timer = None
        if not (self._paused or self.ended or self._watched):
            self._watched = True
            self._loop.add_reader(self._fd, self._on_readable)

    def _unwatch(self) -> None:
        if self._watched:
            self._watched = False
            self._loop.remove_reader(self._fd)
