"""What System V has for processes to share: memory, queues of messages, semaphores. It outlives its maker."""

import ctypes
import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

IPC_PRIVATE, IPC_RMID, IPC_STAT = 0, 0, 2
# A kernel has at most 4,096 segments at a time; those that were removed have left numbers between them.
MAX_PROBES = 65_536
PAGE_BYTES = 4096
# As the kernel names them.
MEMORY, QUEUE, SEMAPHORES = "shm", "msg", "sem"
# What the kernel has for each message beside its text, and for each semaphore, in bytes.
MESSAGE_BYTES, SEMAPHORE_BYTES = 64, 64


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
    """`maker`: of a queue who has sent last; 0 where the kernel does not tell. `rss`: bytes, at most."""

    number: int
    maker: int
    attached: int
    rss: int
    kind: str = MEMORY


_libc = ctypes.CDLL(None, use_errno=True)


def listed() -> list[Segment]:
    """Those of this IPC namespace."""
    return [each for kind in (MEMORY, QUEUE, SEMAPHORES) for each in _of_kind(kind)]


def _of_kind(kind: str) -> list[Segment]:
    try:
        with open(f"/proc/sysvipc/{kind}", "rb") as file:  # noqa: PTH123 - pathlib is not needed in PID 1
            return parsed(file.read(), kind)
    except OSError:
        return list(_probed()) if kind == MEMORY and "gvisor" in os.uname().release else []


def parsed(text: bytes, kind: str = MEMORY) -> list[Segment]:
    """The lines of a file of /proc/sysvipc."""
    names, *lines = (line.split() for line in text.splitlines())
    rows = [{name: int(value) for name, value in zip(names, line, strict=True)} for line in lines]
    match kind:
        case "msg":
            return [
                Segment(row[b"msqid"], row[b"lspid"], 0, row[b"cbytes"] + row[b"qnum"] * MESSAGE_BYTES, kind)
                for row in rows
            ]
        case "sem":
            return [Segment(row[b"semid"], 0, 0, row[b"nsems"] * SEMAPHORE_BYTES, kind) for row in rows]
        case _:
            return [Segment(row[b"shmid"], row[b"cpid"], row[b"nattch"], row[b"rss"]) for row in rows]


def remove(gone: Iterable[Segment]) -> None:
    """Ends them; memory that is attached ends with its last process."""
    for each in gone:
        match each.kind:
            case "msg":
                _libc.msgctl(each.number, IPC_RMID, None)
            case "sem":
                _libc.semctl(each.number, 0, IPC_RMID)
            case _:
                _libc.shmctl(each.number, IPC_RMID, None)


def _probed() -> Iterator[Segment]:
    """GVisor has no list. It numbers segments upwards, so that a new one is the last."""
    last = _libc.shmget(IPC_PRIVATE, PAGE_BYTES, 0o600)
    if last < 0:
        return
    remove([Segment(last, 0, 0, 0)])
    status = Status()
    for number in range(last - 1, max(-1, last - MAX_PROBES), -1):
        if _libc.shmctl(number, IPC_STAT, ctypes.byref(status)) == 0:
            yield Segment(number, status.maker, status.attached, status.size)
