"""The numbered events of one execution in a bounded ring."""

from collections import deque

from sandfleet_executor.core.events import Event, Gap, Output


class EventLog:
    """Appends events from number 1; forgets the oldest when their sizes (bytes) are over `capacity`."""

    def __init__(self, capacity: int) -> None:
        # May be raised for events that only move here from where they were held already.
        self.capacity = capacity
        self._events: deque[Event] = deque()
        self._size = 0
        # Bytes of output in the events before the first that is held.
        self._passed = 0
        self.first = 1
        self.next = 1

    @property
    def size(self) -> int:
        """Bytes held."""
        return self._size

    def append(self, event: Event) -> int:
        """The event's number."""
        self._events.append(event)
        self._size += event.size
        self.next += 1
        # The newest stays whatever its size: it may be the end.
        while self._size > self.capacity and len(self._events) > 1:
            self._drop_first()
        return self.next - 1

    def discard_before(self, number: int) -> None:
        """Frees what every reader has seen."""
        while self.first < number and self._events:
            self._drop_first()

    def read(self, number: int, seen: int) -> list[tuple[int, Event]]:
        """All events from `number` on. Where they begin later, a gap with the number of the last missing one comes first.

        `seen` is the bytes of output in the events before `number`, as the reader has counted them.
        """
        missing = self.first - number
        start = max(number, self.first)
        found: list[tuple[int, Event]] = []
        if missing > 0:
            found.append((self.first - 1, Gap(stream=0, dropped_bytes=self._passed - seen, dropped_events=missing)))
        events = self._events if start == self.first else list(self._events)[start - self.first :]
        found += enumerate(events, start)
        return found

    def _drop_first(self) -> None:
        event = self._events.popleft()
        self._size -= event.size
        self.first += 1
        if isinstance(event, Output):
            self._passed += len(event.data)
