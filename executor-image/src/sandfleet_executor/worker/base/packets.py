"""Packets of a SOCK_SEQPACKET socket: big-endian u32 (length of the header), a JSON header or nothing, raw bytes.

The kernel keeps the borders of packets: a process that dies while it sends leaves no half packet. Both sides treat what
they read as hostile.
"""

import socket
import struct
from json import dumps
from typing import Any

from .frames import Frame, FrameError, decode_header

MAX_PACKET = 64 << 10
PREFIX = struct.Struct(">I")


def pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a new connection."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def encode(header: dict[str, Any] | None, payload: bytes = b"") -> bytes:
    """The bytes of a packet. Raises FrameError over the limit."""
    text = dumps(header, separators=(",", ":")).encode("ascii") if header is not None else b""
    data = b"".join((PREFIX.pack(len(text)), text, payload))
    if len(data) > MAX_PACKET:
        raise FrameError(f"cannot send a packet of {len(data)} bytes: the limit is {MAX_PACKET}")
    return data


def decode(data: bytes) -> Frame:
    """The packet's header ({} if it has none) and payload. Raises FrameError."""
    if len(data) < PREFIX.size:
        raise FrameError("cannot read a packet: it is too short")
    (size,) = PREFIX.unpack_from(data)
    end = PREFIX.size + size
    if end > len(data):
        raise FrameError("cannot read a packet: it is shorter than it says")
    return Frame(decode_header(data[PREFIX.size : end]) if size else {}, data[end:])
