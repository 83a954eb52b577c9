"""Turns changes of the index into the events of one watch: bounded, coalesced, with moves put together."""

import enum
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice

from sandfleet_executor.core.files.changes import Change, below, folders_of, place_of

# Events that wait for one slow reader, and the bytes of their names.
MAX_PENDING = 8192
MAX_PENDING_BYTES = 1 << 20


class EventKind(enum.Enum):
    CREATED = 1
    MODIFIED = 2
    DELETED = 3
    MOVED = 4
    OVERFLOW = 5


@dataclass(frozen=True, slots=True)
class FileEvent:
    """`path` is relative to the workspace. `dropped` counts the lost events of an overflow; 0 where it is unknown."""

    kind: EventKind
    path: bytes = b""
    old_path: bytes = b""
    directory: bool = False
    dropped: int = 0
    sequence: int = 0


class Feed:
    """What one watch has still to be told. `on_news` is called when there is something again."""

    def __init__(self, top: bytes, *, recursive: bool, on_news: Callable[[], None]) -> None:
        """`top` relative to the workspace, empty for itself."""
        self._top = top
        self._recursive = recursive
        self._on_news = on_news
        # In order, by a number of their own.
        self._pending: dict[int, FileEvent] = {}
        self._bytes = 0
        self._next = 0
        # The newest pending event of a path, and the departure of a move that has not arrived.
        self._latest: dict[bytes, int] = {}
        self._departed: dict[int, int] = {}
        self._dropped = 0
        self._overflow = False
        self._sequence = 0

    def __bool__(self) -> bool:
        return bool(self._pending) or self._overflow

    def tell(self, change: Change) -> None:
        """Something changed."""
        if change.appeared:
            self._appear(change)
        elif change.vanished:
            self._vanish(change)
        elif self._concerns(change.path, itself=False):
            latest = self._pending.get(self._latest.get(change.path, -1))
            if latest is None or latest.kind not in (EventKind.CREATED, EventKind.MODIFIED):
                self._add(FileEvent(EventKind.MODIFIED, change.path))

    def _appear(self, change: Change) -> None:
        departed = self._departed.pop(change.cookie, -1) if change.cookie else -1
        if not self._concerns(change.path, itself=change.folder is not None):
            # It left the watched folder: its departure stays a deletion.
            return
        if departed in self._pending:
            old = self._take(departed)
            self._add(FileEvent(EventKind.MOVED, change.path, old.path, change.folder is not None))
            return
        kind = EventKind.MODIFIED if change.was_there else EventKind.CREATED
        self._add(FileEvent(kind, change.path, directory=change.folder is not None))
        if change.folder is not None and change.cookie:
            self._add_all_below(change)

    def _add_all_below(self, change: Change) -> None:
        """A directory came from elsewhere with all that is in it: nothing else will tell of that."""
        assert change.folder is not None
        for folder in folders_of(change.folder):
            path = place_of(folder, b"")[1].rstrip(b"/")
            if folder is not change.folder and self._concerns(path, itself=False):
                self._add(FileEvent(EventKind.CREATED, path, directory=True))
        for folder, name in below(change.folder):
            path = place_of(folder, name)[1]
            if self._concerns(path, itself=False):
                self._add(FileEvent(EventKind.CREATED, path))

    def _vanish(self, change: Change) -> None:
        if not self._concerns(change.path, itself=change.folder is not None):
            return
        key = self._add(FileEvent(EventKind.DELETED, change.path, directory=change.folder is not None))
        if change.cookie and key is not None:
            self._departed[change.cookie] = key

    def _concerns(self, path: bytes, *, itself: bool) -> bool:
        """With `itself` also the directory that is watched, and those above it."""
        if not self._top:
            return self._recursive or b"/" not in path
        if path.startswith(self._top + b"/"):
            return self._recursive or b"/" not in path[len(self._top) + 1 :]
        return itself and (path == self._top or self._top.startswith(path + b"/"))

    def _add(self, event: FileEvent) -> int | None:
        size = len(event.path) + len(event.old_path)
        # After the first dropped event none is kept until the reader has seen the overflow: events have no unseen gap.
        if self._dropped or len(self._pending) >= MAX_PENDING or self._bytes + size > MAX_PENDING_BYTES:
            self._dropped += 1
            self._overflow = True
            return None
        key = self._next
        self._next += 1
        self._pending[key] = event
        self._latest[event.path] = key
        self._bytes += size
        self._on_news()
        return key

    def _take(self, key: int) -> FileEvent:
        event = self._pending.pop(key)
        self._bytes -= len(event.path) + len(event.old_path)
        if self._latest.get(event.path) == key:
            del self._latest[event.path]
        return event

    def lose(self) -> None:
        """The kernel dropped events, or the workspace had to be scanned again."""
        self._overflow = True
        self._on_news()

    def take(self, limit: int) -> list[FileEvent]:
        """The next events; after all that were kept, the overflow."""
        events = [self._take(key) for key in list(islice(self._pending, limit))]
        # A departure that was told cannot become a move any more.
        self._departed = {cookie: key for cookie, key in self._departed.items() if key in self._pending}
        if not self._pending and self._overflow and len(events) < limit:
            events.append(FileEvent(EventKind.OVERFLOW, dropped=self._dropped))
            self._dropped, self._overflow = 0, False
        numbered = [replace(event, sequence=self._sequence + count) for count, event in enumerate(events, start=1)]
        self._sequence += len(numbered)
        return numbered
