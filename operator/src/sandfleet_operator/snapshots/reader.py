"""Reads one snapshot. All entries are checked before the first is given out, and each chunk before any of its bytes."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from itertools import islice

from sandfleet_operator.plan.snapshots.entries import Entry, Lines, RestoreLimits, Validator, data_bytes
from sandfleet_operator.plan.snapshots.errors import Reason, SnapshotError, corrupt
from sandfleet_operator.plan.snapshots.manifest import MAX_FACTS, Manifest, Ref
from sandfleet_operator.snapshots import tables
from sandfleet_operator.snapshots.keys import Keys
from sandfleet_operator.snapshots.layout import TenantObjects

# One request: stored bytes, and what they decode to.
_SPAN = 4 << 20
_DECODED = 8 << 20
# Chunks of others that are fetched along, because a request costs more than they do.
_GAP = 64 << 10
_AHEAD = 3
PART_ENTRIES = 256
PART_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a snapshot: some entries, then some data; data never comes before its entry."""

    entries: tuple[Entry, ...]
    data: bytes | memoryview


class Reader:
    """One snapshot that was found. For one thread at a time."""

    def __init__(
        self,
        objects: TenantObjects,
        keys: Keys,
        manifest: Manifest,
        fetchers: Executor,
        limits: RestoreLimits | None = None,
        *,
        checks: bool = True,
    ) -> None:
        """Checks the manifest and all entries; not all entries where not `checks`. Raises SnapshotError."""
        self._objects = objects
        self._keys = keys.named(objects.tenant, manifest.key)
        self._fetchers = fetchers
        self.manifest = manifest
        if checks:
            self._check_entries(limits)
        self.facts = b"".join(self._fetched(manifest.content.facts))
        if len(self.facts) > MAX_FACTS:
            raise corrupt("its facts are too long")

    def parts(self) -> Iterator[Part]:
        """All entries and data, in the order in which they were saved. Raises SnapshotError."""
        pieces = _Pieces(self._fetched(self.data_refs()))
        entries = self.entries()
        while batch := tuple(islice(entries, PART_ENTRIES)):
            wanted = data_bytes(batch)
            yield Part(batch, pieces.take(wanted))
            wanted -= pieces.taken
            while wanted:
                yield Part((), pieces.take(wanted))
                wanted -= pieces.taken
        pieces.end()

    def data_refs(self) -> Iterator[Ref]:
        """Where the chunks of the data are, in their order."""
        return self._refs(self.manifest.content.data)

    def chunk(self, ref: Ref) -> bytes:
        """One of them. Raises SnapshotError."""
        return self._fetch([ref])[0]

    def entries(self) -> Iterator[Entry]:
        stream = Lines()
        for data in self._fetched(self._refs(self.manifest.content.entries)):
            yield from stream.feed(data)
        stream.end()

    def _check_entries(self, limits: RestoreLimits | None) -> None:
        validator = Validator(limits)
        for entry in self.entries():
            validator.add(entry)
        if validator.totals != self.manifest.totals:
            raise corrupt("its manifest counts other entries than it has")

    def _refs(self, parts: Iterable[Ref]) -> Iterator[Ref]:
        for data in self._fetched(parts):
            yield from tables.decode(data, len(self.manifest.content.sources))

    def _fetched(self, refs: Iterable[Ref]) -> Iterator[bytes]:
        """The chunks in their order, a few requests ahead."""
        coming: deque[Future[list[bytes]]] = deque()
        for span in _spans(refs):
            coming.append(self._fetchers.submit(self._fetch, span))
            if len(coming) > _AHEAD:
                yield from coming.popleft().result()
        while coming:
            yield from coming.popleft().result()

    def _fetch(self, span: list[Ref]) -> list[bytes]:
        first = min(span, key=lambda ref: ref.offset)
        end = max(ref.offset + ref.length for ref in span)
        stored = memoryview(self._objects.chunk_bytes(self.manifest.content.sources, first, end - first.offset))
        found, before = [], None
        for ref in span:
            if before is None or ref != before:
                start = ref.offset - first.offset
                data = self._keys.open(ref.id, stored[start : start + ref.length], ref.size)
            found.append(data)
            before = ref
        return found


class _Pieces:
    """Takes from a stream of chunks in pieces of other sizes."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = memoryview(b"")
        self.taken = 0

    def take(self, most: int) -> memoryview:
        """Some of the next bytes, none only where `most` is 0."""
        if most and not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                raise corrupt("its data is cut off")
            self._rest = memoryview(chunk)
        piece, self._rest = self._rest[: min(most, PART_BYTES)], self._rest[min(most, PART_BYTES) :]
        self.taken = len(piece)
        return piece

    def end(self) -> None:
        if self._rest or next(self._chunks, None) is not None:
            raise corrupt("it has more data than its entries")


def _spans(refs: Iterable[Ref]) -> Iterator[list[Ref]]:
    """Groups of neighbours in the stream that lie near each other in one pack."""
    span: list[Ref] = []
    decoded = 0
    for ref in refs:
        if span and not _fits(span, ref, decoded):
            yield span
            span, decoded = [], 0
        span.append(ref)
        decoded += ref.size
    if span:
        yield span


def _fits(span: list[Ref], ref: Ref, decoded: int) -> bool:
    first, last = span[0], span[-1]
    gap = ref.offset - (last.offset + last.length)
    same = ref == last
    return (
        (ref.source, ref.pack) == (first.source, first.pack)
        and (same or 0 <= gap <= _GAP)
        and ref.offset + ref.length - first.offset <= _SPAN
        and decoded + ref.size <= _DECODED
    )


def find(objects: TenantObjects, keys: Keys, snapshot_id: str, digest: str | None) -> Manifest:
    """The manifest of a snapshot that is not deleted. `digest`: what it has to be. Raises SnapshotError."""
    if snapshot_id in objects.trash():
        raise SnapshotError(Reason.NOT_FOUND, f"cannot read the snapshot {snapshot_id}: it is deleted")
    try:
        manifest = objects.manifest(snapshot_id, keys)
    except SnapshotError as error:
        if error.reason is Reason.NOT_FOUND:
            raise SnapshotError(Reason.NOT_FOUND, f"cannot read the snapshot {snapshot_id}: there is none") from error
        raise
    if digest is not None and digest != manifest.digest:
        why = "it is not the one whose digest was noted when it was taken"
        raise SnapshotError(Reason.CHANGED, f"cannot read the snapshot {snapshot_id}: {why}")
    return manifest
