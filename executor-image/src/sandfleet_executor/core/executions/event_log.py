"""The numbered events of one execution in a bounded ring."""

from sandfleet_executor.core.executions.events import Event, Gap, Output

# How many places of forgotten events are kept before the list is made anew, and what stands in them.
SLACK = 1024
FORGOTTEN = Gap(0, 0)


class EventLog:
    """Appends events from number 1; forgets the oldest when their sizes (bytes) are over `capacity`."""

    def __init__(self, capacity: int) -> None:
        # May be raised for events that only move here from where they were held already.
        self.capacity = capacity
        # Those before `_head` are forgotten.
        self._events: list[Event] = []
        self._head = 0
        self._size = 0
        # Bytes of output in the events before the first that is held.
        self._passed = 0
        # Bytes of all events ever appended.
        self.total = 0
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
        self.total += event.size
        self.next += 1
        # The newest stays whatever its size: it may be the end.
        while self._size > self.capacity and self.next - self.first > 1:
            self._drop_first()
        return self.next - 1

    def replace_last(self, event: Event) -> None:
        """Replaces the newest event, which no reader has seen yet, by another of the same size."""
        self._events[-1] = event

    def discard_before(self, number: int) -> None:
        """Frees what every reader has seen."""
        while self.first < min(number, self.next):
            self._drop_first()

    def read(
        self, number: int, seen: int, *, before: int | None = None, most: int | None = None
    ) -> list[tuple[int, Event]]:
        """The events from `number` on, up to but without number `before` and until they are `most` bytes (at least
        one).

        Where they begin later, a gap with the number of the last missing one comes first.
        `seen` is the bytes of output in the events before `number`, as the reader has counted them.
        """
        missing = self.first - number
        start = max(number, self.first)
        end = self.next if before is None else min(before, self.next)
        found: list[tuple[int, Event]] = []
        if missing > 0 and start <= end:
            found.append(
                (self.first - 1, Gap(stream=0, dropped_bytes=max(0, self._passed - seen), dropped_events=missing))
            )
        place, size = self._head + start - self.first, 0
        for index in range(start, end):
            event = self._events[place + index - start]
            size += event.size
            if most is not None and size > most and index > start:
                break
            found.append((index, event))
        return found

    def passed_before(self, number: int) -> int:
        """Bytes of output in the events before `number`, which is held or next."""
        held = self._events[self._head : self._head + number - self.first]
        return self._passed + sum(output_bytes(event) for event in held)

    def weight_before(self, number: int) -> int:
        """Bytes of the events before `number`, which is held or next."""
        if number - self.first < self.next - number:
            held = self._events[self._head : self._head + number - self.first]
            return self.total - self._size + sum(event.size for event in held)
        return self.total - sum(event.size for event in self._events[self._head + number - self.first :])

    def _drop_first(self) -> None:
        event, self._events[self._head] = self._events[self._head], FORGOTTEN
        self._head += 1
        self._size -= event.size
        self.first += 1
        self._passed += output_bytes(event)
        if self._head > SLACK and 2 * self._head > len(self._events):
            del self._events[: self._head]
            self._head = 0


def output_bytes(event: Event) -> int:
    """Bytes of output that an event of the log carries."""
    return len(event.data) if isinstance(event, Output) else 0
