"""The end of a service's output, with the offset of each byte since the service was declared."""

RING_BYTES = 256 << 10
# The end of the output that is shown where a service is not ready.
TAIL_BYTES = 4096
TAIL_LINES = 20


class Ring:
    """Holds the last `capacity` bytes."""

    def __init__(self, capacity: int = RING_BYTES) -> None:
        self._capacity = capacity
        self._held = bytearray()
        # Offsets of the first byte that is held, and of the next that comes.
        self.first = 0
        self.next = 0

    def write(self, data: bytes) -> None:
        self._held += data
        self.next += len(data)
        # Not at each write: moving the rest costs.
        if len(self._held) > 2 * self._capacity:
            self._trim()

    def read(self, offset: int, most: int) -> tuple[int, bytes]:
        """(offset of the first, bytes): from `offset`, or from the first that is held where it is older."""
        self._trim()
        start = min(max(offset, self.first), self.next)
        return start, bytes(self._held[start - self.first : start - self.first + most])

    def tail(self, lines: int) -> int:
        """The offset at which the last so many lines begin, of those that are held."""
        self._trim()
        place = len(self._held)
        # The end of the last line is not the beginning of another.
        place -= self._held.endswith(b"\n")
        for _ in range(lines):
            place = self._held.rfind(b"\n", 0, place)
            if place < 0:
                return self.first
        return self.first + place + 1 if lines else self.next

    def last_lines(self) -> bytes:
        """For people: the last few, cut."""
        return self.read(self.tail(TAIL_LINES), self._capacity)[1][-TAIL_BYTES:]

    def _trim(self) -> None:
        if (excess := len(self._held) - self._capacity) > 0:
            del self._held[:excess]
            self.first += excess
