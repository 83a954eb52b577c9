"""How bytes stand in a record: their number, their SHA-256, and the begin of them as text."""

import hashlib
from typing import Any

from sandfleet_executor.core.executions.events import Gap, Output

SHOWN_BYTES = 8 << 10
CODE_BYTES = 256 << 10


class Digest:
    """Bytes that come piece by piece."""

    __slots__ = ("_bytes", "_dropped", "_hash", "_most", "_shown")

    def __init__(self, shown: int = SHOWN_BYTES) -> None:
        self._hash = hashlib.sha256()
        self._bytes = 0
        self._dropped = 0
        self._shown = bytearray()
        self._most = shown

    def take(self, data: bytes) -> None:
        self._hash.update(data)
        if self._bytes < self._most:
            self._shown += data[: self._most - self._bytes]
        self._bytes += len(data)

    def see(self, event: Output | Gap) -> None:
        """What was shown, and what was dropped before it was."""
        if isinstance(event, Output):
            self.take(event.data)
        else:
            self._dropped += event.dropped_bytes

    def blob(self) -> dict[str, Any]:
        """As it stands in a record."""
        made: dict[str, Any] = {"bytes": self._bytes, "sha256": self._hash.hexdigest()}
        made["text"] = self._shown.decode("utf-8", "replace")
        made["cut"] = self._bytes > self._most or self._dropped > 0
        if self._dropped:
            made["dropped"] = self._dropped
        return made


def blob(data: bytes, shown: int = SHOWN_BYTES) -> dict[str, Any]:
    """Of bytes that are there as a whole."""
    cut = len(data) > shown
    text = (data[:shown] if cut else data).decode("utf-8", "replace")
    return {"bytes": len(data), "sha256": sha256(data), "text": text, "cut": cut}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def path_text(path: bytes) -> str:
    """A path as text that `os.fsencode` turns back."""
    return path.decode("utf-8", "surrogateescape")
