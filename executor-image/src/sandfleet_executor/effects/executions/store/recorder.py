"""Records the events of a live execution in the store, and counts the readers of all executions."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sandfleet_executor.core.errors import RpcError
from sandfleet_executor.core.executions import records
from sandfleet_executor.core.executions.event_log import output_bytes
from sandfleet_executor.core.executions.events import Event, Finished
from sandfleet_executor.core.executions.records import Kept
from sandfleet_executor.effects.executions.store.log import Entry, Store, Write
from sandfleet_executor.effects.executions.store.reader import StoreReader

Numbered = list[tuple[int, Event]]
# The message of an event, as bytes.
Encode = Callable[[int, Event], bytes]

# The most readers in the whole sandbox, and the bytes that may be on their way to all of them.
MAX_READERS = 2048
ON_THE_WAY_BYTES = 32 << 20
MOST_BYTES = 1 << 20
LEAST_BYTES = 32 << 10


class TooManyReadersError(RpcError, RuntimeError, code="RESOURCE_EXHAUSTED", reason="TooManyReaders", retryable=True):
    """The number of readers is at its limit."""


class Readers:
    """Counts the readers; their number bounds the size of each message."""

    def __init__(self) -> None:
        self.count = 0

    @property
    def most(self) -> int:
        """Bytes of one message, unless one event is larger."""
        return max(LEAST_BYTES, min(MOST_BYTES, ON_THE_WAY_BYTES // max(1, self.count)))

    @contextmanager
    def one(self) -> Iterator[None]:
        """Raises TooManyReadersError."""
        if self.count >= MAX_READERS:
            raise TooManyReadersError(f"cannot attach: {MAX_READERS} are reading")
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1


class Recorder:
    """The stored side of one execution."""

    def __init__(self, store: Store, entry: Entry, encode: Encode, failed: str = "") -> None:
        self.entry = entry
        # Why the store could not even note the begin; empty where it did.
        self.failed = failed
        self._store = store
        self._encode = encode

    def prepare(self, batch: Numbered, output: int, weight: int) -> Write:
        """`output` and `weight` are the bytes of output and of events before the batch. Raises StoreError."""
        events = [Kept(self._encode(number, event), output_bytes(event), event.size) for number, event in batch]
        ended = isinstance(batch[-1][1], Finished)
        chunk, data = records.encode_chunk(self.entry.begun.number, batch[0][0], output, weight, events, ended=ended)
        return self._store.place(self.entry, chunk, data)

    def reader(self) -> StoreReader:
        return StoreReader(self._store.folder, self.entry)

    def close(self) -> None:
        """Nothing follows."""
        self._store.release(self.entry)
