"""Reads an untrusted tar stream piece by piece: plain and POSIX (pax) archives, and GNU's long names.

Memory is bounded whatever the archive says: nothing but one block and one extended header is kept. Names are bytes and
are given out as they stand in the archive; what may be done with them is decided elsewhere (core.files.unpacking).
"""

import enum
from collections.abc import Iterator
from dataclasses import dataclass

BLOCK = 512
# Of an extended header. A name has 4 KiB, what else stands there is of no use here.
MAX_EXTENSION_BYTES = 1 << 20
# Extended headers in a row; GNU tar writes two, of a long name and a long link.
MAX_EXTENSIONS = 8
_MAX_SIZE = 1 << 62
_MAX_DIGITS = 20
_ZEROS = bytes(BLOCK)


class ArchiveError(ValueError):
    """It is no tar archive, or a broken one. The message is the "why" of "cannot X: why"."""


class Kind(enum.Enum):
    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    HARDLINK = "hard link"
    SPARSE = "file with holes"
    OTHER = "device, pipe or something unknown"


@dataclass(frozen=True, slots=True)
class Entry:
    """`size` bytes of data follow; `modified` in seconds since the epoch; `link` the text of a symlink, or a hard
    link's file.
    """

    path: bytes
    kind: Kind
    size: int
    mode: int
    modified: int
    link: bytes


class EntryEnd:
    """All of an entry's data has come."""


END = EntryEnd()
Event = Entry | memoryview | EntryEnd

_KINDS = {
    b"0": Kind.FILE,
    b"\0": Kind.FILE,
    b"7": Kind.FILE,
    b"1": Kind.HARDLINK,
    b"2": Kind.SYMLINK,
    b"5": Kind.DIRECTORY,
}
# Devices and pipes: whatever size they tell, no data follows. Of any other letter, data does.
_WITHOUT_DATA = (b"1", b"2", b"3", b"4", b"5", b"6")
_PAX, _PAX_GLOBAL, _GNU_NAME, _GNU_LINK, _GNU_SPARSE = b"x", b"g", b"L", b"K", b"S"
_EXTENSIONS = (_PAX, _PAX_GLOBAL, _GNU_NAME, _GNU_LINK)


class Reader:
    """Takes the archive piece by piece. `ended` says that its end has come; what follows that is passed over."""

    def __init__(self) -> None:
        self.ended = False
        self._block = bytearray()
        # Data of the entry, and what fills its last block.
        self._left = 0
        self._padding = 0
        self._extension: tuple[bytes, bytearray] | None = None
        self._extensions = 0
        self._said: dict[bytes, bytes] = {}

    def feed(self, data: bytes) -> Iterator[Event]:
        """What the piece holds: of each entry itself, its data, its end. Raises ArchiveError."""
        rest = memoryview(data)
        while rest and not self.ended:
            if self._left:
                part, rest = rest[: self._left], rest[self._left :]
                self._left -= len(part)
                if self._extension is None:
                    yield part
                    if not self._left:
                        yield END
                else:
                    self._extension[1].extend(part)
            elif self._padding:
                skipped = min(self._padding, len(rest))
                self._padding -= skipped
                rest = rest[skipped:]
            else:
                wanted = BLOCK - len(self._block)
                self._block += rest[:wanted]
                rest = rest[wanted:]
                if len(self._block) == BLOCK:
                    block = bytes(self._block)
                    self._block.clear()
                    yield from self._header(block)
            if self._extension is not None and not self._left:
                self._take_extension(*self._extension)
                self._extension = None

    def _header(self, block: bytes) -> Iterator[Event]:
        if block == _ZEROS:
            self.ended = True
            return
        if not _is_sound(block):
            raise ArchiveError("a header's checksum is wrong")
        kind = block[156:157]
        size = _number(block[124:136])
        if kind in _EXTENSIONS:
            self._extensions += 1
            if size > MAX_EXTENSION_BYTES or self._extensions > MAX_EXTENSIONS:
                raise ArchiveError("it has more extended headers than any entry needs")
            self._extension = (kind, bytearray())
            self._expect(size)
            return
        if kind == _GNU_SPARSE:
            raise ArchiveError("it has files with holes in GNU's old format")
        entry = self._entry(block, kind, size)
        self._said, self._extensions = {}, 0
        yield entry
        self._expect(entry.size)
        if not entry.size:
            yield END

    def _expect(self, size: int) -> None:
        self._left, self._padding = size, -size % BLOCK

    def _entry(self, block: bytes, letter: bytes, size: int) -> Entry:
        said = self._said
        path = said.get(b"path", _name(block))
        kind = _KINDS.get(letter, Kind.OTHER)
        if letter == b"\0" and path.endswith(b"/"):
            # As archives had it before there were letters.
            kind = Kind.DIRECTORY
        if any(key.startswith(b"GNU.sparse.") for key in said):
            kind = Kind.SPARSE
        size = _decimal(said[b"size"]) if b"size" in said else size
        modified = said[b"mtime"].partition(b".")[0] if b"mtime" in said else None
        return Entry(
            path=path,
            kind=kind,
            size=0 if letter in _WITHOUT_DATA else size,
            mode=_number(block[100:108]) & 0o7777,
            modified=_number(block[136:148]) if modified is None else _decimal(modified, signed=True),
            link=said.get(b"linkpath", _text(block[157:257])),
        )

    def _take_extension(self, kind: bytes, data: bytearray) -> None:
        if kind == _PAX:
            self._said |= _records(bytes(data))
        elif kind != _PAX_GLOBAL:
            # A global header holds for the whole archive: nothing that may be said there is of use.
            self._said[b"path" if kind == _GNU_NAME else b"linkpath"] = _text(bytes(data))


def _is_sound(block: bytes) -> bool:
    told = block[148:156].rstrip(b" \0").lstrip(b" ")
    if not told or len(told) > _MAX_DIGITS or told.strip(b"01234567"):
        return False
    blank = block[:148] + b" " * 8 + block[156:]
    # Some old ones added up signed bytes.
    return int(told, 8) in (sum(blank), sum(byte - 256 if byte > 127 else byte for byte in blank))


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _name(block: bytes) -> bytes:
    name = _text(block[:100])
    prefix = _text(block[345:500]) if block[257:263] == b"ustar\0" else b""
    return prefix + b"/" + name if prefix else name


def _number(field: bytes) -> int:
    """Octal digits; or, as GNU has it, the number itself behind a set bit."""
    if field[0] & 0x80:
        number = int.from_bytes(bytes([field[0] & 0x7F]) + field[1:], "big")
        if field[0] != 0x80 or number > _MAX_SIZE:
            raise ArchiveError("a header has a number that is too large or negative")
        return number
    digits = field.strip(b" \0")
    if digits.strip(b"01234567"):
        raise ArchiveError("a header has a number that is none")
    return int(digits or b"0", 8)


def _decimal(text: bytes, *, signed: bool = False) -> int:
    digits = text[1:] if signed and text.startswith(b"-") else text
    if not digits or len(digits) > _MAX_DIGITS or digits.strip(b"0123456789") or int(digits) > _MAX_SIZE:
        raise ArchiveError("an extended header has a number that is none")
    return int(text)


def _records(data: bytes) -> dict[bytes, bytes]:
    """The records of a pax header: each its length in bytes, a space, a key, `=`, a value and a newline."""
    said = {}
    start = 0
    while start < len(data):
        # Seven digits: none is longer than a header may be.
        space = data.find(b" ", start, start + 8)
        length = data[start:space] if space > 0 else b""
        if not length or length.strip(b"0123456789"):
            raise ArchiveError("an extended header is broken")
        end = start + int(length)
        key, equals, value = data[space + 1 : end].partition(b"=")
        if end > len(data) or not equals or not value.endswith(b"\n"):
            raise ArchiveError("an extended header is broken")
        said[key] = value[:-1]
        start = end
    return said
