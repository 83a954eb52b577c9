"""Makes a tar stream of a tree, piece by piece, for FileThreads. Links are archived, never followed."""

import contextlib
import os
import stat
import tarfile
import threading
from collections import deque
from collections.abc import Generator, Iterator
from typing import TypeAlias

import zstandard

from sandfleet_executor.core.files.tar import BLOCK
from sandfleet_executor.core.files.unpacking import MAX_DEPTH, PERMISSIONS, Skips
from sandfleet_executor.effects.files.trees import NotARegularFile, TooManyEntries, names_of_users
from sandfleet_executor.effects.files.walk import Pins, Trail, find

MAX_ENTRIES = 200_000
PIECE_BYTES = 256 << 10
_ZSTD_LEVEL = 3
_END = bytes(2 * BLOCK)
_ZEROS = bytes(PIECE_BYTES)
_KINDS = {stat.S_IFREG: tarfile.REGTYPE, stat.S_IFDIR: tarfile.DIRTYPE, stat.S_IFLNK: tarfile.SYMTYPE}


Blocks: TypeAlias = Generator[bytes, None, None]


class Packer:
    """One archive that is being made. For any thread: it may be closed while a piece is made."""

    def __init__(self, roots: Pins, path: bytes, *, compressed: bool) -> None:
        """Of a directory all that is in it; of anything else that alone, by its own name."""
        self.skips = Skips()
        self.entries = 0
        self.bytes = 0
        self._lock = threading.Lock()
        self._closed = False
        with find(roots, path, follow_last=True) as spot:
            status = spot.stat()
            if stat.S_ISDIR(status.st_mode):
                trail = Trail(spot.open(os.O_PATH | os.O_DIRECTORY))
                names = None
            elif stat.S_IFMT(status.st_mode) not in _KINDS:
                raise NotARegularFile
            else:
                trail = Trail(os.dup(spot.directory_fd))
                names = deque([spot.name or b""])
        self._trail = trail
        self._tar = self._tree(names)
        self._pieces = _gather(_compress(self._tar) if compressed else self._tar)

    def read(self) -> bytes:
        """The next piece, about 256 KiB; empty at the end. Raises TooManyEntries, OSError."""
        with self._lock:
            return b"" if self._closed else next(self._pieces, b"")

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                self._pieces.close()
                self._tar.close()
                self._trail.__exit__()

    def _tree(self, names: deque[bytes] | None) -> Blocks:
        trail = self._trail
        levels = [self._names(trail.fd) if names is None else names]
        while levels:
            if not levels[-1]:
                levels.pop()
                if levels:
                    trail.leave()
                continue
            name = levels[-1].popleft()
            try:
                status = os.stat(name, dir_fd=trail.fd, follow_symlinks=False)
                yield from self._entry(trail, name, status)
                if stat.S_ISDIR(status.st_mode) and (inside := self._enter(trail, name)) is not None:
                    levels.append(inside)
            except FileNotFoundError:
                # Removed just now: it is not in the archive, and that is true.
                continue
            except OSError as error:
                self._skip(trail, name, (error.strerror or str(error)).lower())
        yield _END

    def _names(self, fd: int) -> deque[bytes]:
        return names_of_users(fd, MAX_ENTRIES - self.entries)

    def _enter(self, trail: Trail, name: bytes) -> deque[bytes] | None:
        if len(trail.names) >= MAX_DEPTH - 1:
            self._skip(trail, name, f"it is over {MAX_DEPTH} levels deep: nothing in it is archived")
            return None
        trail.enter(name)
        try:
            return self._names(trail.fd)
        except OSError:
            trail.leave()
            raise

    def _skip(self, trail: Trail, name: bytes, why: str) -> None:
        self.skips.add(b"/".join((*trail.names, name)), why)

    def _entry(self, trail: Trail, name: bytes, status: os.stat_result) -> Iterator[bytes]:
        kind = stat.S_IFMT(status.st_mode)
        if kind == stat.S_IFREG:
            yield from self._file(trail, name)
        elif kind in _KINDS:
            target = os.readlink(name, dir_fd=trail.fd) if kind == stat.S_IFLNK else b""
            yield self._header(trail, name, status, target)
        else:
            self._skip(trail, name, "it is a pipe, a socket or a device")

    def _header(self, trail: Trail, name: bytes, status: os.stat_result, target: bytes = b"") -> bytes:
        self.entries += 1
        if self.entries > MAX_ENTRIES:
            raise TooManyEntries
        head = tarfile.TarInfo(os.fsdecode(b"/".join((*trail.names, name))))
        head.type = _KINDS[stat.S_IFMT(status.st_mode)]
        head.mode = stat.S_IMODE(status.st_mode) & PERMISSIONS
        head.mtime = int(status.st_mtime)
        head.linkname = os.fsdecode(target)
        if head.type == tarfile.REGTYPE:
            head.size = status.st_size
        return head.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")

    def _file(self, trail: Trail, name: bytes) -> Iterator[bytes]:
        # Looked at again when it is open: what had the name a moment ago may be a pipe by now.
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=trail.fd)
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, fd)
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                self._skip(trail, name, "it was exchanged just now")
                return
            yield self._header(trail, name, status)
            self.bytes += status.st_size
            left = status.st_size
            while left and (data := _read(fd, min(left, PIECE_BYTES))):
                left -= len(data)
                yield data
            if left:
                self._skip(trail, name, f"it shrank or could not be read: its last {left} bytes are zeros here")
            elif os.fstat(fd).st_size > status.st_size:
                self._skip(trail, name, f"it grew: only its first {status.st_size} bytes are here")
            # The header has told the size, so that much follows.
            while left:
                yield _ZEROS[: min(left, PIECE_BYTES)]
                left -= min(left, PIECE_BYTES)
        yield _ZEROS[: -status.st_size % BLOCK]


def _read(fd: int, size: int) -> bytes:
    try:
        return os.read(fd, size)
    except OSError:
        # A header was sent: from here on the file has an end, not an error.
        return b""


def _gather(blocks: Blocks) -> Blocks:
    """Small pieces to larger ones."""
    held = bytearray()
    for block in blocks:
        if not held and len(block) >= PIECE_BYTES:
            yield block
            continue
        held += block
        if len(held) >= PIECE_BYTES:
            yield bytes(held)
            held.clear()
    if held:
        yield bytes(held)


def _compress(blocks: Blocks) -> Blocks:
    compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compressobj()
    for block in blocks:
        yield compressor.compress(block)
    yield compressor.flush()
