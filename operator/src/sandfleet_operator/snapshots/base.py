"""The data of an earlier snapshot of a session, for the entries of the next one that have not changed.

Both snapshots have their entries in one order, so both are read once, from the beginning to the end.
"""

from collections import deque
from collections.abc import Iterator

from sandfleet_operator.plan.snapshots.entries import Entry, Kind, data_bytes
from sandfleet_operator.plan.snapshots.errors import corrupt, hostile
from sandfleet_operator.plan.snapshots.manifest import Ref
from sandfleet_operator.snapshots.reader import Reader
from sandfleet_operator.snapshots.streams import StreamWriter

# A run of unchanged data of at least this length takes over the chunks as they are. The bytes of a shorter run are
# read, and cut as they were: no chunk is ended for it.
LEAST_RUN = 2 << 20


class Base:
    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._entries, self._refs = reader.entries(), reader.data_refs()
        # How far the entries were read in the data; and where the chunk lies that was reached.
        self._read = self._start = self._end = 0
        self._ref: Ref | None = None
        self._data: bytes | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        return self._reader.manifest.content.sources

    def span(self, entry: Entry) -> tuple[int, int]:
        """Where the data of the entry of this path begin and end. Raises SnapshotError: it has other data there."""
        for one in self._entries:
            start = self._read
            self._read += data_bytes((one,))
            if (one.tree, one.path) == (entry.tree, entry.path):
                if one.kind is not Kind.FILE or (one.size, one.extents) != (entry.size, entry.extents):
                    break
                return start, self._read
        raise hostile("it says that a file is as it was, which was another one, or none")

    def run(self, start: int, end: int) -> Iterator[Ref | memoryview]:
        """The data between these places: whole chunks, and pieces of those that begin or end elsewhere."""
        adopts = end - start >= LEAST_RUN
        while start < end:
            while self._end <= start:
                self._advance()
            assert self._ref is not None
            if adopts and start == self._start and self._end <= end:
                yield self._ref
                start = self._end
            else:
                stop = min(end, self._end)
                yield memoryview(self._chunk(self._ref))[start - self._start : stop - self._start]
                start = stop

    def _advance(self) -> None:
        self._ref, self._data = next(self._refs, None), None
        if self._ref is None:
            raise corrupt("it has less data than its entries")
        self._start, self._end = self._end, self._end + self._ref.size

    def _chunk(self, ref: Ref) -> bytes:
        if self._data is None:
            self._data = self._reader.chunk(ref)
        return self._data


Span = tuple[int, int]


class Segments:
    """The data of a save in the order of its entries: what comes, and what is as it was. Feeds a stream.

    `base` None: no entry may say that it is as it was.
    """

    def __init__(self, stream: StreamWriter, base: Base | None) -> None:
        self._stream, self._base = stream, base
        # Numbers of bytes that are to come, and places in the data of the base.
        self._expected: deque[int | Span] = deque()
        # Places that follow one another, and are taken over together.
        self._run: Span = (0, 0)
        # Data that came, or were taken over.
        self.got = 0

    def expect(self, entry: Entry, *, known: bool) -> None:
        """Raises SnapshotError."""
        if known and self._base is None:
            raise hostile("it says that a file is as it was, and there is nothing that it could have been")
        if known and self._base is not None:
            self._expected.append(self._base.span(entry))
        elif count := data_bytes((entry,)):
            last = self._expected[-1] if self._expected else None
            if isinstance(last, int):
                self._expected[-1] = last + count
            else:
                self._expected.append(count)

    def feed(self, data: bytes | memoryview) -> None:
        """Raises SnapshotError."""
        rest = memoryview(data)
        while self._expected and (rest or not isinstance(self._expected[0], int)):
            first = self._expected.popleft()
            if isinstance(first, int):
                self._take_over()
                self._stream.feed(rest[:first])
                taken = min(first, len(rest))
                self.got += taken
                rest = rest[taken:]
                if taken < first:
                    self._expected.appendleft(first - taken)
            else:
                self._join(first)
        if rest:
            raise hostile("more data came than its entries have")

    def end(self) -> None:
        """Raises SnapshotError."""
        self.feed(b"")
        if self._expected:
            raise hostile("its data is cut off")
        self._take_over()

    def _join(self, span: Span) -> None:
        if span[0] != self._run[1]:
            self._take_over()
            self._run = span
        self._run = self._run[0], span[1]

    def _take_over(self) -> None:
        start, end = self._run
        self._run = (end, end)
        if start == end or self._base is None:
            return
        self.got += end - start
        for one in self._base.run(start, end):
            if isinstance(one, memoryview):
                self._stream.feed(one)
            else:
                self._stream.adopt(one, self._base.sources)
