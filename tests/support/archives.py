"""Tar archives that no honest program makes, entry by entry."""

import io
import tarfile
from dataclasses import dataclass, field

import zstandard

END = bytes(1024)


@dataclass(frozen=True)
class Member:
    """`kind` as tarfile has it; `pax` goes into an extended header as it is."""

    name: bytes
    data: bytes = b""
    kind: bytes = tarfile.REGTYPE
    link: bytes = b""
    mode: int = 0o644
    pax: dict = field(default_factory=dict)
    size: int | None = None

    def blocks(self):
        head = b""
        if len(self.name) > 100 or len(self.link) > 100 or self.pax:
            records = {**({b"path": self.name} if len(self.name) > 100 else {}), **self.pax}
            if len(self.link) > 100:
                records[b"linkpath"] = self.link
            head = pax_header(records)
        size = len(self.data) if self.size is None else self.size
        return head + header(self.name[:100], self.kind, size, self.link[:100], self.mode) + padded(self.data)


def padded(data):
    return data + bytes(-len(data) % 512)


def header(name, kind=tarfile.REGTYPE, size=0, link=b"", mode=0o644, *, size_field=None, magic=b"ustar\x0000"):
    block = bytearray(512)
    block[:100] = name.ljust(100, b"\0")
    block[100:108] = b"%07o\0" % mode
    block[108:124] = b"0000000\0" * 2
    block[124:136] = size_field or b"%011o\0" % size
    block[136:148] = b"%011o\0" % 1_000_000_000
    block[148:156] = b" " * 8
    block[156:157] = kind
    block[157:257] = link.ljust(100, b"\0")
    block[257:265] = magic
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def record(key, value):
    body = b" " + key + b"=" + value + b"\n"
    length = len(body)
    while length != len(b"%d" % length) + len(body):
        length = len(b"%d" % length) + len(body)
    return b"%d" % length + body


def pax_header(records):
    data = b"".join(record(key, value) for key, value in records.items())
    return header(b"pax", b"x", len(data)) + padded(data)


def tar(*members):
    return b"".join(member.blocks() for member in members) + END


def directory(name, mode=0o755):
    return Member(name, kind=tarfile.DIRTYPE, mode=mode)


def symlink(name, target):
    return Member(name, kind=tarfile.SYMTYPE, link=target)


def hard_link(name, target):
    return Member(name, kind=tarfile.LNKTYPE, link=target)


def zeros_zstd(count):
    """A tar with one file of zeros, compressed: a bomb. It is made without being held whole."""
    compressor = zstandard.ZstdCompressor(level=1).compressobj()
    made = [compressor.compress(header(b"bomb", size=count))]
    block = bytes(1 << 20)
    made += [compressor.compress(block) for _ in range(count // len(block))]
    made += [compressor.compress(END), compressor.flush()]
    return b"".join(made)


def names_of(data):
    """What Python's own tarfile finds in an archive."""
    with tarfile.open(fileobj=io.BytesIO(data), errors="surrogateescape") as archive:
        return {member.name: member for member in archive.getmembers()}
