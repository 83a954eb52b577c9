"""A context as a process: its private descriptors, what a cell uses, and memory in reserve."""

import contextlib
import fcntl
import mmap
import os
import resource
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from . import tree

# The lowest private descriptor: code that closes low numbers must not meet it.
PRIVATE_DESCRIPTORS = 900
STATUS_BYTES = 8192
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
RESERVE_BYTES = 8 << 20
# A context ends with these when its executor has closed the socket, or when it cannot go on.
EXIT_CLOSED = 0
EXIT_BROKEN = 70
# Kept, because code may replace it: the process would live on.
_exit = os._exit


def end_after(serve: Callable[[], None], value_of: Callable[[BaseException], str] = str) -> NoReturn:
    """Ends the process after it has served a context. `value_of` gives the words of an error."""
    code = EXIT_BROKEN
    try:
        serve()
        code = EXIT_CLOSED
    except BaseException as error:  # noqa: BLE001 the process ends here; its parent reads the exit code
        text = f"cannot go on with this context: {type(error).__name__}: {value_of(error)}\n"
        os.write(2, text.encode("utf-8", "backslashreplace"))
    finally:
        _exit(code)


def private_copy(descriptor: int) -> int:
    """A copy of the descriptor with a high number that no child inherits."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    floor = min(PRIVATE_DESCRIPTORS, max(soft - 32, 3)) if soft > 0 else PRIVATE_DESCRIPTORS
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, floor)


class Descriptors:
    """Descriptors 0, 1 and 2 as the context got them."""

    def __init__(self) -> None:
        self._copies = tuple(private_copy(number) for number in range(3))

    def close(self) -> None:
        """In a copy of the context, which gets other ones."""
        for copy in self._copies:
            with contextlib.suppress(OSError):
                os.close(copy)

    def restore(self) -> None:
        """Undoes what code closed or redirected."""
        for number, copy in enumerate(self._copies):
            os.dup2(copy, number)


class Reserve:
    """Address space that is given back when code has used up the rest, so that the failure can be reported."""

    def __init__(self) -> None:
        self._pages: mmap.mmap | None = None

    def hold(self) -> None:
        if self._pages is None:
            # The next cell runs without a reserve if there is no room for one.
            with contextlib.suppress(OSError):
                self._pages = mmap.mmap(-1, RESERVE_BYTES)

    def release(self) -> None:
        if self._pages is not None:
            self._pages.close()
            self._pages = None


def resident_bytes() -> int:
    """Resident memory of this process."""
    fd = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return int(os.read(fd, 256).split()[1]) * PAGE_BYTES
    finally:
        os.close(fd)


class Usage(NamedTuple):
    cpu: float
    """Seconds, user and system, of the process and its ended children."""
    peak: int
    """The most bytes of resident memory; 0 if the kernel does not tell."""
    written: int
    """Bytes that the process and its ended children wrote to storage; 0 if the kernel does not tell."""


class Meter:
    """Measures one cell at a time, in this process or in a child that runs the cells."""

    def __init__(self, child: int | None = None) -> None:
        self._cpu = 0.0
        self._written = 0
        self._child = child
        whose = "self" if child is None else child
        self._clear = _open_private(f"/proc/{whose}/clear_refs", os.O_WRONLY)
        self._status = _open_private(f"/proc/{whose}/status", os.O_RDONLY)

    def close(self) -> None:
        for descriptor in (self._clear, self._status):
            if descriptor is not None:
                with contextlib.suppress(OSError):
                    os.close(descriptor)

    def start(self) -> None:
        self._cpu, self._written = self._used()
        if self._clear is not None:
            with contextlib.suppress(OSError):
                # 5 resets the high-water mark.
                os.write(self._clear, b"5")

    def stop(self) -> Usage:
        cpu, written = self._used()
        return Usage(max(cpu - self._cpu, 0.0), self._peak(), max(written - self._written, 0))

    def _used(self) -> tuple[float, int]:
        cpu, written = _used()
        if self._child is None:
            return cpu, written
        return cpu + tree.cpu_seconds(self._child), written + tree.written_bytes([self._child])

    def _peak(self) -> int:
        """Bytes. gVisor has no high-water mark: there, what is resident now; the guard's samples are added later."""
        if self._status is None:
            return 0
        try:
            text = os.pread(self._status, STATUS_BYTES, 0)
        except OSError:
            return 0
        _, found, rest = text.partition(b"VmRSS:" if self._clear is None else b"VmHWM:")
        return int(rest.split(None, 1)[0]) << 10 if found else 0


def _open_private(path: str, flags: int) -> int | None:
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return private_copy(descriptor)
    finally:
        os.close(descriptor)


def _used() -> tuple[float, int]:
    """Seconds of processor time, and bytes written to storage."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime
    return cpu, (own.ru_oublock + ended.ru_oublock) * tree.BLOCK_BYTES
