"""Frames on a stream socket: two big-endian u32 (lengths of header and payload), a JSON header, a raw payload.

Both sides treat what they read as hostile: a frame over the limits, or with a header other than a JSON object, is a
FrameError.
"""

import os
import socket
import struct
from collections.abc import Sequence
from itertools import accumulate

# By name: user code in the same process may replace the module's attributes.
from json import dumps, loads
from typing import Any, NamedTuple

MAX_HEADER_BYTES = 1 << 20
MAX_PAYLOAD_BYTES = 24 << 20
PREFIX = struct.Struct(">II")


class FrameError(Exception):
    """The other side broke the protocol."""


class Frame(NamedTuple):
    header: dict[str, Any]
    payload: bytes = b""


def encode(header: dict[str, Any], payload: bytes = b"") -> bytes:
    """The bytes of a frame. Raises FrameError over the limits."""
    # Lone surrogates are legal in Python strings and would not survive UTF-8: JSON's ASCII escapes carry them.
    text = dumps(header, separators=(",", ":")).encode("ascii")
    check_sizes(len(text), len(payload))
    return PREFIX.pack(len(text), len(payload)) + text + payload


def check_sizes(header: int, payload: int) -> None:
    """Raises FrameError when a frame of these sizes (bytes) is not allowed."""
    if header > MAX_HEADER_BYTES or payload > MAX_PAYLOAD_BYTES:
        raise FrameError(
            f"cannot take a frame of {header}+{payload} bytes: the limit is {MAX_HEADER_BYTES}+{MAX_PAYLOAD_BYTES}"
        )


def decode_header(text: bytes) -> dict[str, Any]:
    """The header's object. Raises FrameError for anything else."""
    try:
        header = loads(text)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"cannot read a frame: {error}") from error
    if not isinstance(header, dict):
        raise FrameError("cannot read a frame: its header is no object")
    return header


def joined(parts: Sequence[bytes]) -> tuple[list[int], bytes]:
    """Several byte strings as the payload of one frame, and the sizes that `split` takes."""
    return [len(part) for part in parts], b"".join(parts)


def split(sizes: Sequence[int], payload: bytes) -> list[bytes]:
    """The byte strings of `joined`. Raises FrameError for sizes that are not the payload's."""
    if not all(type(size) is int and size >= 0 for size in sizes) or sum(sizes) != len(payload):
        raise FrameError("cannot read a frame: its sizes are wrong")
    ends = list(accumulate(sizes))
    return [payload[end - size : end] for size, end in zip(sizes, ends, strict=True)]


def send(sock: socket.socket, header: dict[str, Any], payload: bytes = b"") -> None:
    """Blocks until the frame is sent."""
    sock.sendall(encode(header, payload))


def receive(sock: socket.socket) -> Frame | None:
    """Blocks for the next frame; None at the end of the stream."""
    return receive_after(sock, b"")


def receive_with_fds(sock: socket.socket, max_fds: int) -> tuple[Frame | None, list[int]]:
    """As `receive`, with the descriptors that came beside the prefix."""
    prefix, fds, _, _ = socket.recv_fds(sock, PREFIX.size, max_fds)
    return (receive_after(sock, prefix) if prefix else None), fds


def receive_begin(sock: socket.socket) -> Frame | None:
    """Blocks for the next request to begin; None at the end. Its descriptors become the standard streams."""
    while True:
        frame, fds = receive_with_fds(sock, 3)
        # Standard input may be missing: the last descriptor is always standard error.
        for number, fd in enumerate(fds, 3 - len(fds)):
            os.dup2(fd, number)
            os.close(fd)
        # A signal for a command that has ended meanwhile is dropped.
        if frame is None or frame.header["op"] == "begin":
            return frame


def receive_after(sock: socket.socket, begun: bytes) -> Frame | None:
    """As `receive`, when the first bytes of the prefix (`begun`) were read before, beside descriptors."""
    rest = _receive_exactly(sock, PREFIX.size - len(begun))
    if rest is None:
        return None
    prefix = begun + rest
    header_size, payload_size = PREFIX.unpack(prefix)
    check_sizes(header_size, payload_size)
    body = _receive_exactly(sock, header_size + payload_size)
    if body is None:
        return None
    return Frame(decode_header(body[:header_size]), body[header_size:])


def _receive_exactly(sock: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        chunk = sock.recv(min(size - len(data), 1 << 20))
        if not chunk:
            return None
        data += chunk
    return bytes(data)
