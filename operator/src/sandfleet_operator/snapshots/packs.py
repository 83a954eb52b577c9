"""Chunks on their way into packs: sealed by threads, placed in order, uploaded by threads. Memory stays bounded."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field

from sandfleet_operator.plan.snapshots.errors import Reason, SnapshotError
from sandfleet_operator.plan.snapshots.manifest import MAX_PACKS, Ref
from sandfleet_operator.snapshots.keys import TenantKeys
from sandfleet_operator.snapshots.layout import TenantObjects

PACK_BYTES = 8 << 20
# Packs on their way, beside the open ones.
_UPLOADS = 3
# Chunks whose place is remembered, so that their like is not stored again: 50 GiB of data, about 50 MB of memory.
MAX_KNOWN = 200_000


@dataclass(frozen=True, slots=True)
class Place:
    """Where the bytes of a chunk are, `run` says whose pack."""

    run: str
    pack: int
    offset: int
    length: int


@dataclass(slots=True)
class Slot:
    """A chunk that was added: it has a place, or is being sealed for one."""

    id: bytes
    size: int
    place: Place | None = None
    sealing: Future[bytes] | None = None

    @property
    def settles_at_once(self) -> bool:
        return self.place is not None or (self.sealing is not None and self.sealing.done())


@dataclass(slots=True)
class _Shelf:
    """The pack that is being filled with chunks of one kind, so that those of one kind lie together."""

    number: int = -1
    chunks: list[bytes] = field(default_factory=list)
    size: int = 0


class Packer:
    """Puts chunks into the packs of one run; each only once, as far as it remembers. Not for several threads."""

    def __init__(
        self, objects: TenantObjects, run: str, keys: TenantKeys, *, sealers: Executor, uploaders: Executor
    ) -> None:
        self._objects = objects
        self._run = run
        self._keys = keys
        self._sealers = sealers
        self._uploaders = uploaders
        self._known: dict[bytes, Slot | Place] = {}
        self._shelves: dict[str, _Shelf] = {}
        self._next = 0
        self._uploads: deque[Future[None]] = deque()
        self._sources = {run: 0}
        # How far each pack is needed: (run, number) → bytes.
        self.needed: dict[tuple[str, int], int] = {}
        self.new_bytes = 0
        self.stored_bytes = 0

    def know(self, chunk_id: bytes, place: Place) -> bool:
        """Takes a chunk that is stored already. False: no more are taken."""
        if len(self._known) < MAX_KNOWN:
            self._known.setdefault(chunk_id, place)
            return True
        return False

    def add(self, data: memoryview | bytes) -> Slot:
        chunk_id = self._keys.chunk_id(data)
        known = self._known.get(chunk_id)
        if isinstance(known, Slot):
            return known
        if known is not None:
            return Slot(chunk_id, len(data), known)
        slot = Slot(chunk_id, len(data), sealing=self._sealers.submit(self._keys.seal, chunk_id, data))
        if len(self._known) < MAX_KNOWN:
            self._known[chunk_id] = slot
        self.new_bytes += len(data)
        return slot

    def settle(self, slot: Slot, shelf: str) -> Ref:
        """Where the chunk is; waits until it is sealed, and for an upload if there are many."""
        if slot.place is None:
            assert slot.sealing is not None
            slot.place = self._place(slot.sealing.result(), shelf)
            slot.sealing = None
            if slot.id in self._known:
                self._known[slot.id] = slot.place
        place = slot.place
        source = self._sources.setdefault(place.run, len(self._sources))
        key, end = (place.run, place.pack), place.offset + place.length
        self.needed[key] = max(end, self.needed.get(key, 0))
        return Ref(slot.id, source, place.pack, place.offset, place.length, slot.size)

    @property
    def sources(self) -> tuple[str, ...]:
        """The runs whose packs were met, as Ref.source counts them."""
        return tuple(self._sources)

    def flush(self) -> None:
        """Returns when all that has a place is stored."""
        for shelf in self._shelves.values():
            self._upload(shelf)
        while self._uploads:
            self._uploads.popleft().result()

    def drop(self) -> None:
        """Waits until nothing is on its way any more, whatever has become of it."""
        while self._uploads:
            self._uploads.popleft().exception()

    def _place(self, stored: bytes, name: str) -> Place:
        shelf = self._shelves.setdefault(name, _Shelf())
        if shelf.chunks and shelf.size + len(stored) > PACK_BYTES:
            self._upload(shelf)
        if not shelf.chunks:
            shelf.number = self._next
            self._next += 1
            if shelf.number > MAX_PACKS:
                raise SnapshotError(Reason.TOO_LARGE, f"cannot save: a snapshot has at most {MAX_PACKS} packs")
        place = Place(self._run, shelf.number, shelf.size, len(stored))
        shelf.chunks.append(stored)
        shelf.size += len(stored)
        return place

    def _upload(self, shelf: _Shelf) -> None:
        if not shelf.chunks:
            return
        while len(self._uploads) >= _UPLOADS or (self._uploads and self._uploads[0].done()):
            self._uploads.popleft().result()
        put: Callable[[str, bytes], None] = self._objects.objects.put
        key, data = self._objects.pack_key(self._run, shelf.number), b"".join(shelf.chunks)
        shelf.chunks, shelf.size = [], 0
        self.stored_bytes += len(data)
        self._uploads.append(self._uploaders.submit(put, key, data))
