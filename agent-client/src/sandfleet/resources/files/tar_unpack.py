"""A tree that comes from an executor, written to this machine. Every byte of it is hostile.

Only what an executor's archive has is understood: files, directories and symlinks, with pax headers for long names.
Anything else breaks the protocol. Each name is taken from a directory that is open, and no link is followed on the way.
"""

# Names are the kernel's bytes, which pathlib does not take.
# ruff: noqa: PTH103

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import TypeAlias, TypeVar

from sandfleet.errors import InvalidArgument, LimitReached, ProtocolError
from sandfleet.values.files import Progress, Skipped, Transfer

MAX_ENTRIES = 250_000
MAX_DEPTH = 256
_BLOCK = 512
# A name and a link's text have 4 KiB each.
_MAX_EXTENSION = 64 * 1024
_MAX_NAME, _MAX_PATH = 255, 4096
_SKIPS_LISTED = 1000
_LAST_SECOND = 1 << 34
_FILE, _DIRECTORY, _SYMLINK, _PAX = b"0", b"5", b"2", b"x"
_IN_THE_WAY = (errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)

Answer = TypeVar("Answer")
Steps: TypeAlias = Generator[None, None, Answer]


class _Refused(Exception):
    """It is not written; the message says why."""


class Unpacker:
    """Writes an archive below a directory, which it makes. Close it in any case."""

    def __init__(self, top: bytes, limit: int) -> None:
        """`limit` in bytes, of all files. Raises OSError, InvalidArgument."""
        if os.open not in os.supports_dir_fd:
            raise InvalidArgument("cannot copy a tree here: this system cannot open a name relative to a directory")
        os.makedirs(top, exist_ok=True)
        self._top = os.open(top, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        self._limit = limit
        self._buffer = bytearray()
        self._steps = self._read()
        next(self._steps)
        self._folder: tuple[tuple[bytes, ...], int] = ((), os.dup(self._top))
        self._files = self._directories = self._links = self._bytes = self._entries = 0
        self._skipped: list[Skipped] = []
        self._skipped_count = 0
        self.ended = False

    @property
    def progress(self) -> Progress:
        """How far it is."""
        return Progress(self._files, self._bytes)

    def feed(self, data: bytes) -> None:
        """Take a piece. Raises ProtocolError, LimitReached, OSError."""
        if self.ended:
            return
        self._buffer += data
        with suppress(StopIteration):
            next(self._steps)

    def close(self) -> None:
        """Close what is open, and remove the file that is not whole."""
        self._steps.close()
        os.close(self._folder[1])
        os.close(self._top)

    def transfer(self, skipped: list[Skipped], count: int) -> Transfer:
        """Say what was written; `skipped` and `count` are what was left out on the other side."""
        listed = tuple([*skipped, *self._skipped][:_SKIPS_LISTED])
        return Transfer(self._files, self._directories, self._links, self._bytes, listed, self._skipped_count + count)

    # Reading: each `yield` waits for the next piece

    def _read(self) -> Steps[None]:
        said: dict[bytes, bytes] = {}
        while (block := (yield from self._take(_BLOCK))) != bytes(_BLOCK):
            _check(block)
            size = _octal(block[124:136])
            letter = block[156:157]
            if letter == _PAX:
                if size > _MAX_EXTENSION or said:
                    raise _broken("its extended headers are too large")
                padded = yield from self._take(size + -size % _BLOCK)
                said = _records(padded[:size])
                continue
            self._entries += 1
            if self._entries > MAX_ENTRIES:
                raise LimitReached(f"cannot download: it has more than {MAX_ENTRIES} entries")
            yield from self._entry(letter, block, said, size)
            said = {}
        self.ended = True
        self._buffer.clear()

    def _take(self, count: int) -> Steps[bytes]:
        while len(self._buffer) < count:
            yield
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def _some(self, most: int) -> bytearray:
        """Take what is there, without a copy where it is all wanted."""
        if len(self._buffer) <= most:
            part, self._buffer = self._buffer, bytearray()
        else:
            part = self._buffer[:most]
            del self._buffer[:most]
        return part

    def _entry(self, letter: bytes, block: bytes, said: dict[bytes, bytes], size: int) -> Steps[None]:
        path = said.get(b"path", block[:100].partition(b"\0")[0])
        mode = _octal(block[100:108]) & 0o777
        if letter == _FILE:
            size = _decimal(said[b"size"]) if b"size" in said else size
            yield from self._file(path, mode, size, min(_octal(block[136:148]), _LAST_SECOND))
        elif letter == _DIRECTORY:
            self._attempt(path, lambda names: self._make_directory(names, mode))
        elif letter == _SYMLINK:
            target = said.get(b"linkpath", block[157:257].partition(b"\0")[0])
            self._attempt(path, lambda names: self._link(names, target))
        else:
            raise _broken("it has an entry that is no file, directory or symlink")

    def _file(self, path: bytes, mode: int, size: int, modified: int) -> Steps[None]:
        if self._bytes + size > self._limit:
            raise LimitReached(f"cannot download: it has more than {self._limit} bytes; use a higher limit")
        opened: list[_File] = []
        self._attempt(path, lambda names: opened.append(_File(self._enter(names[:-1]), names[-1], mode)))
        file = opened[0] if opened else None
        try:
            left = size
            while left:
                while not self._buffer:
                    yield
                part = self._some(left)
                left -= len(part)
                self._bytes += len(part)
                if file is not None:
                    file.write(part)
            yield from self._take(-size % _BLOCK)
            if file is not None:
                self._attempt(path, lambda _: file.commit(modified))
                self._files += file.committed
        finally:
            if file is not None:
                file.discard()

    # Writing

    def _attempt(self, path: bytes, step: Callable[[tuple[bytes, ...]], None]) -> None:
        try:
            step(_names(path))
        except _Refused as refused:
            self._skip(path, str(refused))
        except OSError as error:
            if error.errno not in _IN_THE_WAY:
                raise
            self._skip(path, "something else has its name, or that of its directory")

    def _skip(self, path: bytes, why: str) -> None:
        self._skipped_count += 1
        if len(self._skipped) < _SKIPS_LISTED:
            self._skipped.append(Skipped(os.fsdecode(path[:_MAX_PATH]), why))

    def _enter(self, names: tuple[bytes, ...]) -> int:
        """Open a directory below the top, one name after the other; make what is missing. The last one stays open."""
        if self._folder[0] == names:
            return self._folder[1]
        fd = os.dup(self._top)
        try:
            for name in names:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=fd)
                    self._directories += 1
                inner = os.open(name, _FOLDER, dir_fd=fd)
                os.close(fd)
                fd = inner
        except BaseException:  # Whatever it was: nothing stays open.
            os.close(fd)
            raise
        os.close(self._folder[1])
        self._folder = (names, fd)
        return fd

    def _make_directory(self, names: tuple[bytes, ...], mode: int) -> None:
        fd = self._enter(names[:-1])
        try:
            # The user who copies has to be able to write there; the umask applies as to all new files.
            os.mkdir(names[-1], mode | 0o700, dir_fd=fd)
            self._directories += 1
        except FileExistsError:
            os.close(os.open(names[-1], _FOLDER, dir_fd=fd))

    def _link(self, names: tuple[bytes, ...], target: bytes) -> None:
        _check_link(target, len(names) - 1)
        fd = self._enter(names[:-1])
        partial = _partial_name()
        os.symlink(target, partial, dir_fd=fd)
        try:
            os.rename(partial, names[-1], src_dir_fd=fd, dst_dir_fd=fd)
        except BaseException:  # Whatever it was: nothing stays half-made.
            os.unlink(partial, dir_fd=fd)
            raise
        self._links += 1


class _File:
    """A file on its way, under a name of its own until it is whole."""

    def __init__(self, folder: int, name: bytes, mode: int) -> None:
        self._name = name
        self._partial = _partial_name()
        self._file = os.open(self._partial, _NEW, mode, dir_fd=folder)
        self._folder = os.dup(folder)
        self.committed = False

    def write(self, data: bytearray) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._file, rest) :]

    def commit(self, modified: int) -> None:
        os.utime(self._file, (modified, modified))
        os.rename(self._partial, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        self.committed = True

    def discard(self) -> None:
        """Close it; remove it unless it has taken its place."""
        if not self.committed:
            with suppress(FileNotFoundError):
                os.unlink(self._partial, dir_fd=self._folder)
        os.close(self._file)
        os.close(self._folder)


def _partial_name() -> bytes:
    return b".sandfleet-partial-" + secrets.token_hex(12).encode()


def _names(path: bytes) -> tuple[bytes, ...]:
    """Return the names on the way. Raises _Refused."""
    names = tuple(name for name in path.split(b"/") if name not in (b"", b"."))
    if not names or path.startswith(b"/") or b".." in names or b"\0" in path:
        raise _Refused("its name leads elsewhere")
    if len(path) > _MAX_PATH or len(names) > MAX_DEPTH or any(len(name) > _MAX_NAME for name in names):
        raise _Refused("its name is too long")
    return names


def _check_link(target: bytes, depth: int) -> None:
    """Raise _Refused unless it stays inside: up first, no further than the top, then down only.

    So no chain of such links leads out; with `..` behind a name that may itself be a link, one could.
    """
    names = [name for name in target.split(b"/") if name not in (b"", b".")]
    ups = 0
    while ups < len(names) and names[ups] == b"..":
        ups += 1
    if not target or target.startswith(b"/") or b"\0" in target or ups > depth or b".." in names[ups:]:
        raise _Refused("it is a link that may lead outside")
    if len(target) > _MAX_PATH:
        raise _Refused("it is a link to no possible name")


def _broken(why: str) -> ProtocolError:
    return ProtocolError(f"cannot read the executor's archive: {why}", reason="InvalidArchive")


def _check(block: bytes) -> None:
    if _octal(block[148:156]) != sum(block[:148] + b" " * 8 + block[156:]):
        raise _broken("a checksum is wrong")


def _octal(field: bytes) -> int:
    if field[:1] == b"\x80":
        # Of files of 8 GiB and more.
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b" \0")
    if digits.strip(b"01234567"):
        raise _broken("a number is none")
    return int(digits or b"0", 8)


def _decimal(digits: bytes) -> int:
    if not digits or len(digits) > 19 or digits.strip(b"0123456789"):
        raise _broken("a number is none")
    return int(digits)


def _records(data: bytes) -> dict[bytes, bytes]:
    said = {}
    start = 0
    while start < len(data):
        space = data.find(b" ", start, start + 8)
        length = data[start:space] if space > 0 else b""
        end = start + (_decimal(length) if length else 0)
        key, equals, value = data[space + 1 : end].partition(b"=")
        if not length or end > len(data) or not equals or not value.endswith(b"\n"):
            raise _broken("an extended header is broken")
        said[key] = value[:-1]
        start = end
    return said
