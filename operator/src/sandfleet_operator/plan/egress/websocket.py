"""WebSocket (RFC 6455) as far as a proxy has to know it: its handshake, and where a frame ends (pure)."""

import base64
import binascii
import hashlib

from sandfleet_operator.plan.egress.credentials import Headers

NAME = b"websocket"
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
KEY_BYTES, MASK_BYTES, MAX_HEAD = 16, 4, 14
# What stands for a length of 2 and of 8 bytes behind the first two.
LENGTH_BYTES = {126: 2, 127: 8}
OPCODES = frozenset((0, 1, 2, 8, 9, 10))
RESERVED, OPCODE, MASKED, LENGTH = 0x70, 0x0F, 0x80, 0x7F


def key_of(method: bytes, version: bytes, headers: Headers) -> bytes:
    """The key of a request that asks for WebSocket and nothing else; empty for every other request."""
    found = dict(headers)
    if len(found) < len(headers) and any(_count(headers, name) > 1 for name in (b"upgrade", b"sec-websocket-key")):
        return b""
    key = found.get(b"sec-websocket-key", b"")
    is_handshake = method == b"GET" and version == b"1.1" and found.get(b"sec-websocket-version") == b"13"
    has_body = b"content-length" in found or b"transfer-encoding" in found
    return key if is_handshake and not has_body and _upgrades(headers) and _is_key(key) else b""


def is_accepted(key: bytes, headers: Headers) -> bool:
    """Whether the headers of a status 101 answer the request with this key."""
    accepted = base64.b64encode(hashlib.sha1(key + GUID, usedforsecurity=False).digest())
    return _upgrades(headers) and [value for name, value in headers if name == b"sec-websocket-accept"] == [accepted]


def _upgrades(headers: Headers) -> bool:
    upgrade = [value.lower() for name, value in headers if name == b"upgrade"]
    words = b",".join(value.lower() for name, value in headers if name == b"connection").split(b",")
    return upgrade == [NAME] and b"upgrade" in [word.strip() for word in words]


def _count(headers: Headers, wanted: bytes) -> int:
    return sum(name == wanted for name, _ in headers)


def _is_key(key: bytes) -> bool:
    try:
        return len(base64.b64decode(key, validate=True)) == KEY_BYTES
    except binascii.Error:
        return False


class NoFrameError(Exception):
    """The bytes are something else, as a request of HTTP, or a frame that only the other end may send."""


class Frames:
    """Follows the frames of one direction."""

    def __init__(self, *, is_client: bool) -> None:
        self._mask = MASKED if is_client else 0
        self._head = b""
        self._left = 0

    @property
    def is_between(self) -> bool:
        """Whether the last frame is complete."""
        return not self._left and not self._head

    def follow(self, data: bytes) -> None:
        """Raises NoFrameError."""
        at = 0
        while at < len(data):
            if not self._left:
                head = self._head + data[at : at + MAX_HEAD]
                size, length = self._read(head)
                if not size:
                    self._head = head
                    return
                at += size - len(self._head)
                self._head, self._left = b"", length
            step = min(self._left, len(data) - at)
            self._left -= step
            at += step

    def _read(self, head: bytes) -> tuple[int, int]:
        """The sizes of the frame's head, 0 as long as it is not complete, and of its payload."""
        if head[0] & RESERVED or head[0] & OPCODE not in OPCODES or (len(head) > 1 and head[1] & MASKED != self._mask):
            raise NoFrameError
        more = LENGTH_BYTES.get(head[1] & LENGTH, 0) if len(head) > 1 else 0
        size = 2 + more + (MASK_BYTES if self._mask else 0)
        if len(head) < size:
            return 0, 0
        return size, int.from_bytes(head[2 : 2 + more]) if more else head[1] & LENGTH
