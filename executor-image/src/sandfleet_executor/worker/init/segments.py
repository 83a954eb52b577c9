"""Shared memory of System V: it outlives its maker."""

import ctypes
import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

IPC_PRIVATE, IPC_RMID, IPC_STAT = 0, 0, 2
# A kernel has at most 4,096 segments at a time; those that were removed have left numbers between them.
MAX_PROBES = 65_536
PAGE_BYTES = 4096


class Status(ctypes.Structure):
    """struct shmid64_ds of 64-bit machines (asm-generic/shmbuf.h)."""

    _fields_ = (
        ("permissions", ctypes.c_byte * 48),
        ("size", ctypes.c_size_t),
        ("times", ctypes.c_long * 3),
        ("maker", ctypes.c_int),
        ("last", ctypes.c_int),
        ("attached", ctypes.c_ulong),
        ("unused", ctypes.c_ulong * 2),
    )


class Segment(NamedTuple):
    """`rss`: bytes, at most."""

    number: int
    maker: int
    attached: int
    rss: int


_libc = ctypes.CDLL(None, use_errno=True)


def listed() -> list[Segment]:
    """Those of this IPC namespace."""
    try:
        with open("/proc/sysvipc/shm", "rb") as file:  # noqa: PTH123 - pathlib is not needed in PID 1
            return parsed(file.read())
    except OSError:
        return list(_probed()) if "gvisor" in os.uname().release else []


def parsed(text: bytes) -> list[Segment]:
    """The lines of /proc/sysvipc/shm."""
    lines = text.splitlines()
    names = lines[0].split()
    columns = [names.index(name) for name in (b"shmid", b"cpid", b"nattch", b"rss")]
    return [Segment(*(int(fields[column]) for column in columns)) for fields in map(bytes.split, lines[1:])]


def remove(numbers: Iterable[int]) -> None:
    """Ends segments; one that is attached ends with its last process."""
    for number in numbers:
        _libc.shmctl(number, IPC_RMID, None)


def _probed() -> Iterator[Segment]:
    """GVisor has no list. It numbers segments upwards, so that a new one is the last."""
    last = _libc.shmget(IPC_PRIVATE, PAGE_BYTES, 0o600)
    if last < 0:
        return
    remove([last])
    status = Status()
    for number in range(last - 1, max(-1, last - MAX_PROBES), -1):
        if _libc.shmctl(number, IPC_STAT, ctypes.byref(status)) == 0:
            yield Segment(number, status.maker, status.attached, status.size)
