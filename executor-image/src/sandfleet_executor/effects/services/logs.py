"""Logs of services: a ring in memory that RPCs read, and files in the workspace that user code reads."""

import asyncio
import contextlib
import os
import stat
from collections.abc import AsyncIterator, Callable

from sandfleet_executor.core.services.log import Ring
from sandfleet_executor.effects.files.threads import FileThreads
from sandfleet_executor.effects.files.walk import Pins, Roots, RootUnavailable, Spot, find

# Relative to the workspace: a folder whose changes no execution reports.
FOLDER = ".sandfleet/services"
# A file is turned over at this size, and one older is kept.
FILE_BYTES = 1 << 20
FILE_MODE = 0o644
OLDER = b".1"
# What comes within this time is written together, in seconds; where it cannot be written it is tried again later.
PAUSE_SECONDS = 0.2
AGAIN_SECONDS = 2.0
MESSAGE_BYTES = 256 << 10
MAX_PROBLEM = 200


def log_path(name: str) -> str:
    """Relative to the workspace."""
    return f"{FOLDER}/{name}.log"


class Log:
    """Of one service, for as long as it is declared."""

    def __init__(self, on_write: Callable[[], None]) -> None:
        self._on_write = on_write
        self.ring = Ring()
        # Up to which offset the file has it; what came before the service was declared anew is in the file as well.
        self.filed = 0
        # Why the file does not have the rest.
        self.problem = ""
        self._more = asyncio.Event()
        self._closed = False

    def write(self, data: bytes) -> None:
        self.ring.write(data)
        self._on_write()
        self._wake()

    def close(self) -> None:
        """Nothing more comes."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        self._more.set()
        self._more = asyncio.Event()

    async def pieces(self, offset: int, *, follow: bool) -> AsyncIterator[tuple[int, int, bytes]]:
        """(offset, bytes that are missing from there, bytes): one of the two last is empty."""
        while True:
            more = self._more
            start, data = self.ring.read(offset, MESSAGE_BYTES)
            if start > offset:
                yield offset, start - offset, b""
            if data:
                yield start, 0, data
            offset = start + len(data)
            if data:
                continue
            if not follow or self._closed:
                return
            await more.wait()


class LogFiles:
    """Written with the rights of the sandbox's user, below a folder that user code may do anything to."""

    def __init__(self, roots: Roots, threads: FileThreads) -> None:
        self._roots = roots
        self._threads = threads

    async def append(self, name: str, data: bytes) -> str:
        """Why it cannot be written; empty where it was."""
        try:
            await self._threads.run(self._append, f"/workspace/{log_path(name)}".encode(), data)
        except (OSError, ValueError, RootUnavailable) as error:
            # The file there may be a trap that user code has set.
            said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            return f"cannot write to {log_path(name)}: {said[:MAX_PROBLEM]}"
        return ""

    def _append(self, path: bytes, data: bytes) -> None:
        with contextlib.closing(self._roots.pin()) as pins:
            if self._is_full(pins, path, len(data)):
                self._turn_over(pins, path)
            with find(pins, path, follow_last=False, make_parents=True) as spot:
                fd = spot.open(os.O_WRONLY | os.O_APPEND | os.O_CREAT, FILE_MODE)
                try:
                    check_regular(os.fstat(fd))
                    rest = memoryview(data)
                    while rest:
                        rest = rest[os.write(fd, rest) :]
                finally:
                    os.close(fd)

    def _is_full(self, pins: Pins, path: bytes, more: int) -> bool:
        try:
            with find(pins, path, follow_last=False) as spot:
                status = spot.stat()
        except FileNotFoundError:
            return False
        check_regular(status)
        return status.st_size > 0 and status.st_size + more > FILE_BYTES

    def _turn_over(self, pins: Pins, path: bytes) -> None:
        with find(pins, path, follow_last=False) as spot:
            name = named(spot)
            os.rename(name, name + OLDER, src_dir_fd=spot.directory_fd, dst_dir_fd=spot.directory_fd)


def named(spot: Spot) -> bytes:
    assert spot.name is not None
    return spot.name


def check_regular(status: os.stat_result) -> None:
    """Raises ValueError for a pipe, a device, a folder, a link."""
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it is no file")


async def write_behind(logs: dict[str, Log], files: LogFiles, written: asyncio.Event) -> None:
    """Brings what services write into their files, one piece after the other; until it is cancelled."""
    loop = asyncio.get_running_loop()
    retry: dict[str, float] = {}
    while True:
        await written.wait()
        written.clear()
        for name, log in list(logs.items()):
            if log.filed < log.ring.next and loop.time() >= retry.get(name, 0.0):
                await file(name, log, files)
                retry[name] = loop.time() + AGAIN_SECONDS if log.problem else 0.0
        if any(log.problem for log in logs.values()):
            loop.call_later(AGAIN_SECONDS, written.set)
        for name in retry.keys() - logs.keys():
            del retry[name]
        await asyncio.sleep(PAUSE_SECONDS)


async def file(name: str, log: Log, files: LogFiles) -> None:
    """All that there is of one."""
    while log.filed < log.ring.next:
        start, data = log.ring.read(log.filed, MESSAGE_BYTES)
        missing = start - log.filed
        note = f"\n[sandfleet: {missing} bytes are missing here]\n".encode() if missing else b""
        log.problem = await files.append(name, note + data)
        if log.problem:
            return
        log.filed = start + len(data)
