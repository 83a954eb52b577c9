"""How bytes go between an executor and the egress process: each piece behind its length.

A piece of no length is the end of one direction, which TLS cannot say. With the highest bit the piece is a report of
the egress process about the connection, as JSON.
"""

from enum import Enum, auto

PIECE_BYTES = 256 << 10
LENGTH_BYTES = 4
END = bytes(LENGTH_BYTES)
REPORT = 1 << 31
MOST_REPORT = 64 << 10
# The egress process has read all, and takes another greeting: what follows belongs to another connection.
AGAIN = b'{"again":true}'


class Kind(Enum):
    BYTES = auto()
    REPORT = auto()
    END = auto()


class Pieces:
    """Takes apart what comes, however it was cut on its way."""

    def __init__(self) -> None:
        # A length or a report that is not all here.
        self._rest = b""
        # Bytes of the present piece that are still to come.
        self._left = 0

    @property
    def is_between(self) -> bool:
        """Whether all that has come is whole."""
        return not self._rest and not self._left

    def feed(self, data: bytes) -> list[tuple[Kind, bytes]]:
        """Bytes are not held back until their piece is complete. Raises ValueError."""
        data = self._rest + data
        at = 0
        found: list[tuple[Kind, bytes]] = []
        while at < len(data):
            if self._left:
                piece = data[at : at + self._left]
                at, self._left = at + len(piece), self._left - len(piece)
                found.append((Kind.BYTES, piece))
                continue
            start = at + LENGTH_BYTES
            size = int.from_bytes(data[at:start])
            is_report, size = bool(size & REPORT), size & ~REPORT
            if start > len(data) or (is_report and start + size > len(data) and size <= MOST_REPORT):
                break
            if size > (MOST_REPORT if is_report else 2 * PIECE_BYTES):
                raise ValueError("a piece is too long")
            at = start
            if is_report:
                found.append((Kind.REPORT, data[at : at + size]))
                at += size
            elif size:
                self._left = size
            else:
                found.append((Kind.END, b""))
        self._rest = data[at:]
        return found


def piece(data: bytes) -> bytes:
    return len(data).to_bytes(LENGTH_BYTES) + data


def report(data: bytes) -> bytes:
    return (len(data) | REPORT).to_bytes(LENGTH_BYTES) + data
