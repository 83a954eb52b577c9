"""The output limit of one stream: the head is passed on, the tail is kept, the middle is counted."""

from collections import deque

# The tail is held in memory, so it has a bound of its own, in bytes.
MAX_TAIL_BYTES = 8 << 20


class HeadAndTail:
    """Takes chunks; returns the part to pass on at once, and at the end the dropped bytes and the tail."""

    def __init__(self, limit: int, *, tail_only: bool = False) -> None:
        """`limit`: bytes that are passed on in all. `tail_only`: none at once, the last bytes at the end."""
        self._tail_room = limit if tail_only else min(limit // 2, MAX_TAIL_BYTES)
        self._head_room = limit - self._tail_room
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self.total = 0
        self.dropped = 0

    def feed(self, data: bytes) -> bytes:
        """The part of `data` that belongs to the head: to be passed on now. May be empty."""
        self.total += len(data)
        head = data[: self._head_room]
        self._head_room -= len(head)
        if rest := data[len(head) :]:
            self._keep(rest)
        return head

    def finish(self) -> tuple[int, list[bytes]]:
        """(bytes dropped, the chunks of the tail). Afterwards this is empty."""
        tail = list(self._tail)
        self._tail.clear()
        self._tail_size = 0
        return self.dropped, tail

    def _keep(self, data: bytes) -> None:
        self._tail.append(data)
        self._tail_size += len(data)
        while self._tail_size > self._tail_room:
            first = self._tail.popleft()
            excess = min(self._tail_size - self._tail_room, len(first))
            self.dropped += excess
            self._tail_size -= excess
            if rest := first[excess:]:
                self._tail.appendleft(rest)
