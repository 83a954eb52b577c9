"""A stream of a snapshot on its way into the store: cut into chunks, its table written as it goes."""

from collections import deque
from collections.abc import Sequence

from sandfleet_operator.plan.snapshots.errors import Reason, SnapshotError
from sandfleet_operator.plan.snapshots.manifest import MAX_PARTS, Ref
from sandfleet_operator.snapshots import tables
from sandfleet_operator.snapshots.cutter import Cutter
from sandfleet_operator.snapshots.packs import Packer, Place, Slot

# Chunks that are being sealed, and chunks that wait for their place.
_SEALING = 8
_WAITING = 1024
# Tables and entries lie apart from the data: a restore reads them first.
META = "meta"


class StreamWriter:
    def __init__(self, packer: Packer, seed: bytes, shelf: str) -> None:
        self._packer = packer
        self._cutter = Cutter(seed)
        self._shelf = shelf
        # Each with whether it was being sealed when it came.
        self._slots: deque[tuple[Slot, bool]] = deque()
        self._sealing = 0
        self._refs: list[Ref] = []
        self._parts: list[Ref] = []

    def feed(self, data: bytes | memoryview) -> None:
        for chunk in self._cutter.feed(data):
            self._add(chunk)

    def adopt(self, ref: Ref, sources: Sequence[str]) -> None:
        """The next data are a whole chunk that is stored already. `sources`: the runs that its table counts."""
        self._cut()
        place = Place(sources[ref.source], ref.pack, ref.offset, ref.length)
        self._put(Slot(ref.id, ref.size, place))

    def _cut(self) -> None:
        """What was fed ends a chunk, wherever its content would."""
        for chunk in self._cutter.end():
            self._add(chunk)

    def end(self) -> tuple[Ref, ...]:
        """The parts of the table; all chunks have their places."""
        self._cut()
        while self._slots:
            self._settle()
        if self._refs:
            self._end_part()
        return tuple(self._parts)

    def _add(self, chunk: memoryview) -> None:
        self._put(self._packer.add(chunk))

    def _put(self, slot: Slot) -> None:
        sealing = slot.place is None
        self._sealing += sealing
        self._slots.append((slot, sealing))
        while self._slots and (self._is_full() or self._slots[0][0].settles_at_once):
            self._settle()

    def _is_full(self) -> bool:
        return self._sealing > _SEALING or len(self._slots) > _WAITING

    def _settle(self) -> None:
        slot, sealing = self._slots.popleft()
        self._sealing -= sealing
        self._refs.append(self._packer.settle(slot, self._shelf))
        if len(self._refs) == tables.PART:
            self._end_part()

    def _end_part(self) -> None:
        if len(self._parts) == MAX_PARTS // 2:
            raise SnapshotError(Reason.TOO_LARGE, "cannot save: it has more data than a snapshot can have")
        self._parts.append(self._packer.settle(self._packer.add(tables.encode(self._refs)), META))
        self._refs.clear()
