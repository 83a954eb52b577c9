"""A local tree as a tar stream, piece by piece."""

# Names are the kernel's bytes, which pathlib does not take.
# ruff: noqa: PTH115, PTH118, PTH123, PTH208

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterator

from sandfleet.values.files import Progress, Skipped

PIECE_BYTES = 512 * 1024
_BLOCK = 512
_END = bytes(2 * _BLOCK)
_KINDS = {stat.S_IFREG: tarfile.REGTYPE, stat.S_IFDIR: tarfile.DIRTYPE, stat.S_IFLNK: tarfile.SYMTYPE}
_SKIPS_LISTED = 1000


class Packer:
    """Reads the tree as it is asked for. What cannot be read is skipped, and said."""

    def __init__(self, top: bytes) -> None:
        self._top = top
        self.skipped: list[Skipped] = []
        self.skipped_count = 0
        self._files = 0
        self._bytes = 0

    @property
    def progress(self) -> Progress:
        """How far it is."""
        return Progress(self._files, self._bytes)

    def pieces(self) -> Iterator[bytes]:
        """Yield the archive. Raises OSError when the top itself cannot be read."""
        held = bytearray()
        for block in self._blocks():
            held += block
            if len(held) >= PIECE_BYTES:
                yield bytes(held)
                held.clear()
        yield bytes(held)

    def _blocks(self) -> Iterator[bytes]:
        # Of each level the names that are left, and the way there.
        levels = [(b"", sorted(os.listdir(self._top), reverse=True))]
        while levels:
            above, names = levels[-1]
            if not names:
                levels.pop()
                continue
            name = above + names.pop()
            try:
                status = os.lstat(os.path.join(self._top, name))
                yield from self._entry(name, status)
                if stat.S_ISDIR(status.st_mode):
                    inside = os.listdir(os.path.join(self._top, name))
                    levels.append((name + b"/", sorted(inside, reverse=True)))
            except OSError as error:
                self._skip(name, error.strerror or str(error))
        yield _END

    def _skip(self, name: bytes, why: str) -> None:
        self.skipped_count += 1
        if len(self.skipped) < _SKIPS_LISTED:
            self.skipped.append(Skipped(os.fsdecode(name), why.lower()))

    def _entry(self, name: bytes, status: os.stat_result) -> Iterator[bytes]:
        path = os.path.join(self._top, name)
        kind = stat.S_IFMT(status.st_mode)
        if kind == stat.S_IFREG:
            yield from self._file(name, path)
        elif kind in _KINDS:
            yield _header(name, status, os.readlink(path) if kind == stat.S_IFLNK else b"")
        else:
            self._skip(name, "it is a pipe, a socket or a device")

    def _file(self, name: bytes, path: bytes) -> Iterator[bytes]:
        with open(path, "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            yield _header(name, status, b"")
            left = status.st_size
            while left and (data := file.read(min(left, PIECE_BYTES))):
                left -= len(data)
                self._bytes += len(data)
                yield data
            if left:
                # The header has told the size, so that much follows.
                self._skip(name, f"it shrank meanwhile: its last {left} bytes are zeros")
            while left:
                zeros = bytes(min(left, PIECE_BYTES))
                left -= len(zeros)
                yield zeros
        self._files += 1
        yield bytes(-status.st_size % _BLOCK)


def _header(name: bytes, status: os.stat_result, target: bytes) -> bytes:
    head = tarfile.TarInfo(os.fsdecode(name))
    head.type = _KINDS[stat.S_IFMT(status.st_mode)]
    head.mode = stat.S_IMODE(status.st_mode)
    head.mtime = int(status.st_mtime)
    head.linkname = os.fsdecode(target)
    if head.type == tarfile.REGTYPE:
        head.size = status.st_size
    return head.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
