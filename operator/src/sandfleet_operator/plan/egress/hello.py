"""The first message of TLS: the name of the server that a client asks for (RFC 8446, RFC 6066).

The message is read as strictly as it can be: what servers might read in two ways counts as no name.
"""

from dataclasses import dataclass

# Content type of a handshake, and of its first message.
HANDSHAKE, CLIENT_HELLO = 22, 1
# All versions of TLS have it in the record.
MAJOR = 3
RECORD_HEADER, MESSAGE_HEADER = 5, 4
# A ClientHello with keys of several post-quantum groups has a few kilobytes.
MAX_HELLO = 16 << 10
MAX_RECORD = 16 << 10
# Extensions: the server's name, and Encrypted Client Hello, which hides another name.
SERVER_NAME, ENCRYPTED = 0, 0xFE0D
HOST_NAME = 0
RANDOM_BYTES = 32


class NotTlsError(Exception):
    """The bytes are no ClientHello, or one that is malformed."""


@dataclass(frozen=True, slots=True)
class Hello:
    # Empty: none was asked for.
    server_name: str
    # Another name is hidden in it.
    encrypted: bool


class _Reader:
    """Reads from the front of bytes."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, count: int) -> bytes:
        """Raises NotTlsError where there are fewer."""
        start, self._at = self._at, self._at + count
        if self._at > len(self._data):
            raise NotTlsError("a length is wrong")
        return self._data[start : self._at]

    def number(self, count: int) -> int:
        return int.from_bytes(self.take(count), "big")

    def vector(self, length_bytes: int) -> bytes:
        return self.take(self.number(length_bytes))

    def __bool__(self) -> bool:
        return self._at < len(self._data)


def read(data: bytes) -> Hello | None:
    """The ClientHello that the bytes begin with; None: more bytes are needed. Raises NotTlsError."""
    message = b""
    while data:
        if data[0] != HANDSHAKE or (len(data) > 1 and data[1] != MAJOR):
            raise NotTlsError("it is no TLS")
        if len(data) < RECORD_HEADER:
            return None
        size = int.from_bytes(data[3:RECORD_HEADER], "big")
        if not 0 < size <= MAX_RECORD:
            raise NotTlsError("a record has a wrong length")
        message += data[RECORD_HEADER : RECORD_HEADER + size]
        if (body := _body(message)) is not None:
            return _hello(body)
        data = data[RECORD_HEADER + size :]
    return None


def _body(message: bytes) -> bytes | None:
    """Of the ClientHello; None while a part of it is missing. Raises NotTlsError."""
    if message and message[0] != CLIENT_HELLO:
        raise NotTlsError("it begins with no ClientHello")
    if len(message) < MESSAGE_HEADER:
        return None
    whole = MESSAGE_HEADER + int.from_bytes(message[1:MESSAGE_HEADER], "big")
    if whole > MAX_HELLO:
        raise NotTlsError("the ClientHello is too large")
    return message[MESSAGE_HEADER:whole] if len(message) >= whole else None


def _hello(body: bytes) -> Hello:
    reader = _Reader(body)
    # The version and the random number, the session's id, ciphers, compressions.
    reader.take(2 + RANDOM_BYTES)
    for length_bytes in (1, 2, 1):
        reader.vector(length_bytes)
    extensions = _Reader(reader.vector(2)) if reader else _Reader(b"")
    if reader:
        raise NotTlsError("bytes follow the ClientHello's end")
    found: dict[int, bytes] = {}
    while extensions:
        kind, content = extensions.number(2), extensions.vector(2)
        if kind in found:
            raise NotTlsError("an extension comes twice")
        found[kind] = content
    return Hello(_server_name(found[SERVER_NAME]) if SERVER_NAME in found else "", ENCRYPTED in found)


def _server_name(content: bytes) -> str:
    outer = _Reader(content)
    names = _Reader(outer.vector(2))
    kind, name = names.number(1), names.vector(2)
    if outer or names or kind != HOST_NAME or not name.isascii():
        raise NotTlsError("it asks for several servers, or for none that has a name")
    return name.decode("ascii")
