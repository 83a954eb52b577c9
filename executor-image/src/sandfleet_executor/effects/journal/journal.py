"""The journal of this pod's session: records go to the disk in their order, each before its head is shown.

`N-F`      the lines of journal N from record F on; the newest file is written to
`about-N`  whose journal it is: pod and session

Nothing is synced, as in the store of executions: what a write has returned for survives the end of this process, but
not a machine that loses power. Heads that others keep then show what is missing.

The record of an execution does not hold up its result: it is made and written behind it, before the call ends with the
head, before the next record, and at most BEHIND_SECONDS later.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sandfleet_executor.core.errors import RpcError
from sandfleet_executor.core.journal import records, segments
from sandfleet_executor.core.journal.records import Head
from sandfleet_executor.core.journal.segments import Scan, Segment
from sandfleet_executor.effects.executions.store.files import NO_STORE, Folder, store_error
from sandfleet_executor.effects.journal import files
from sandfleet_executor.effects.journal.files import LineFile

Body = Mapping[str, Any]
# How long a record may wait behind the result that it is of.
BEHIND_SECONDS = 0.005

_log = logging.getLogger(__name__)


class NoJournalError(RpcError, LookupError, code="NOT_FOUND", reason="NoJournal"):
    """There is no journal of that pod here."""


class AheadOfJournalError(RpcError, ValueError, code="OUT_OF_RANGE", reason="AheadOfJournal"):
    """No record has that number yet."""


@dataclass(frozen=True, slots=True)
class Status:
    """Where a journal stands."""

    pod: str
    session: str
    head: Head
    anchor: Head
    missed: int = 0
    reason: str = ""


@dataclass(slots=True)
class Missed:
    """Records that could not be written: how many, why, and since when (seconds since the epoch)."""

    count: int = 0
    reason: str = ""
    since: float = 0.0


@dataclass(slots=True, eq=False)
class Place:
    """The place of one record in the order; its body may come later, and may be made when it is written."""

    kind: str
    body: Body | Callable[[], Body] | None = None


class Journal:
    """Everything is done in the event loop but for making it and reading."""

    def __init__(self, folder: Folder | None, pod: str, clock: Callable[[], float]) -> None:
        """Goes on where an earlier executor of this pod has ended."""
        self.head, self.anchor = Head(), Head()
        self.session = ""
        self.missed = Missed()
        self._opening: Callable[[], Body] | None = None
        self._folder, self._pod, self._clock = folder, pod, clock
        self._found: dict[str, Any] = {"earlier": None}
        self._number = 1
        self._segments: list[Segment] = []
        self._file: LineFile | None = None
        self._order: deque[Place] = deque()
        self._written = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._opened = False
        self._repaired: dict[str, Any] | None = None
        if folder:
            self._load(folder)

    # Writing

    def put(self, kind: str, body: Body) -> None:
        """Writes a record, behind those whose places were taken before. Never fails: see `missed`."""
        self.keep(self.promise(kind), body)

    def put_behind(self, kind: str, body: Callable[[], Body]) -> None:
        """Takes a place for a record that is made and written a moment later, so that a result comes before it."""
        self.promise(kind).body = body
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(BEHIND_SECONDS, self._catch_up)

    def _catch_up(self) -> None:
        self._timer = None
        self._flush()

    def promise(self, kind: str) -> Place:
        """The place of a record whose body comes later, and has to come."""
        place = Place(kind)
        self._order.append(place)
        return place

    def keep(self, place: Place, body: Body) -> None:
        """The body of a record whose place was taken."""
        place.body = body
        self._flush()

    def _flush(self) -> None:
        if self._opening is None:
            return
        while self._order and (ready := self._order[0].body) is not None:
            kind = self._order.popleft().kind
            self._append(kind, ready() if callable(ready) else ready)
        self._written.set()

    def begin(self, opening: Callable[[], Body]) -> None:
        """From now on records are written. `opening`: what the first of them says of the session."""
        self._opening = opening
        self._flush()

    async def settled(self) -> None:
        """Waits until all records that have a place by now are written."""
        self._flush()
        last = self._order[-1] if self._order else None
        while last and last in self._order:
            self._written.clear()
            await self._written.wait()

    def open(self, session: str) -> None:
        """The sandbox is bound to a session."""
        self.session = session
        self._opened = False
        self._begin()
        if self._folder:
            try:
                files.write_about(self._folder, self._number, self._pod, session)
            except OSError as error:
                _log.warning("cannot write whose journal it is: %s", error)

    def _begin(self) -> None:
        """The first record of this process, or of its session."""
        self._opened = True
        body = {**(self._opening() if self._opening else {}), **self._found}
        self._found = {"earlier": None}
        self._append("opened", body)
        if self._repaired:
            body, self._repaired = self._repaired, None
            self._append("repaired", body)

    def _append(self, kind: str, body: Body) -> None:
        if not self._opened:
            self._begin()
        at = self._clock()
        if self._folder is None:
            self._miss(NO_STORE, at)
            return
        try:
            if self.missed.count:
                missed = self.missed
                gap = {"missed": missed.count, "reason": missed.reason, "since": round(missed.since, 3)}
                self._write(self._folder, "gap", gap, at)
                self.missed = Missed()
            self._write(self._folder, kind, body, at)
        except OSError as error:
            self._miss(store_error(error).reason, at)

    def _miss(self, reason: str, at: float) -> None:
        if not self.missed.count:
            _log.warning("cannot write the journal: %s", reason)
        self.missed = Missed(self.missed.count + 1, reason, self.missed.since or at)

    def _write(self, folder: Folder, kind: str, body: Body, at: float) -> None:
        line, head = records.follow(self.head, kind, body, at)
        file = self._file
        if file is None or file.size + len(line) > segments.SEGMENT_BYTES:
            file = self._turn(folder, head.number)
        file.append(line)
        self.head = head

    def _turn(self, folder: Folder, first: int) -> LineFile:
        """The next file; the oldest go. Raises OSError."""
        if first == 1:
            files.write_about(folder, self._number, self._pod, self.session)
        made = LineFile(folder, segments.name_of(self._number, first))
        kept = [each for each in self._kept() if (each.journal, each.first) != (self._number, first)]
        self._segments = [*kept, Segment(self._number, first, 0)]
        if self._file:
            self._file.close()
        self._file = made
        for gone in segments.surplus(self._segments):
            self._drop(folder, gone)
        return made

    def _kept(self) -> list[Segment]:
        """The segments of all journals, the newest with what was written to it by now."""
        if self._file is None:
            return list(self._segments)
        *older, newest = self._segments
        return [*older, replace(newest, size=self._file.size)]

    def _drop(self, folder: Folder, gone: Segment) -> None:
        folder.remove(gone.name)
        self._segments.remove(gone)
        if not any(each.journal == gone.journal for each in self._segments):
            folder.remove(f"about-{gone.journal}")
        if gone.journal == self._number:
            # Its last record is the one before the next file.
            self.anchor = self._before(folder, next(each for each in self._segments if each.journal == self._number))

    def _before(self, folder: Folder, segment: Segment) -> Head:
        """The head before a segment's first record."""
        if not segment.size:
            return self.head
        found = segments.scan(next(files.lines_of(folder, segment, 0), b""))
        return found.before if found else Head()

    # Coming back

    def _load(self, folder: Folder) -> None:
        self._segments = files.found(folder)
        if not self._segments:
            return
        self._number = self._segments[-1].journal
        pod, session = files.read_about(folder, self._number)
        while self._segments and self._segments[-1].journal == self._number:
            scan = segments.scan(folder.read(self._segments[-1].name))
            if scan is None:
                # Its first record was cut off.
                folder.remove(self._segments.pop().name)
                continue
            self._come_back(folder, scan, pod, session)
            return
        self._number += 1

    def _come_back(self, folder: Folder, scan: Scan, pod: str, session: str) -> None:
        newest = self._segments[-1]
        if pod != self._pod or scan.damaged:
            self._number += 1
            earlier = {"pod": pod, "session": session, "n": scan.head.number, "hash": scan.head.hash}
            self._found = {"earlier": {**earlier, "damaged": True} if scan.damaged else earlier}
            return
        if scan.size < newest.size:
            cut = folder.read(newest.name)[scan.size :]
            self._repaired = {"bytes": len(cut), "sha256": records.hash_of(cut)}
        self.head, self.session = scan.head, session
        self._file = LineFile(folder, newest.name, scan.size)
        self._segments[-1] = replace(newest, size=scan.size)
        self.anchor = self._before(folder, next(each for each in self._segments if each.journal == self._number))
        self._found = {"earlier": None, "restarted": True}

    def unmentioned(self, ids: Iterable[str]) -> list[str]:
        """Those of the newest executions that have no record, by the newest two files; none where there is no file.

        Raises OSError.
        """
        if self._folder is None or not self._segments:
            return []
        newest = b"".join(self._folder.read(each.name) for each in self._segments[-2:])
        return [each for each in ids if newest.rfind(b'"id":' + records.encode(each)) < 0]

    # Reading

    def status(self, pod: str = "") -> Status:
        """Of the journal of a pod; this one's for "". Raises NoJournalError."""
        if pod in ("", self._pod):
            return Status(self._pod, self.session, self.head, self.anchor, self.missed.count, self.missed.reason)
        folder, kept = self._of(pod)
        scan = segments.scan(folder.read(kept[-1].name))
        head = scan.head if scan else Head()
        return Status(pod, files.read_about(folder, kept[-1].journal)[1], head, self._before(folder, kept[0]))

    def read(self, first: int, pod: str = "") -> Iterator[bytes]:
        """Whole lines of the records from `first` on, in messages. Blocks.

        Raises NoJournalError and AheadOfJournalError now, and OSError while it reads.
        """
        mine = pod in ("", self._pod)
        if mine and first > max(1, self.head.number + 1):
            raise AheadOfJournalError(f"cannot read from record {first} on: the newest is {self.head.number}")
        if mine and not any(each.journal == self._number for each in self._segments):
            return iter(())
        folder, kept = self._of(pod or self._pod)
        wanted = [each for each, later in zip(kept, [*kept[1:], None], strict=True) if not later or later.first > first]
        return (part for each in wanted for part in files.lines_of(folder, each, max(0, first - each.first)))

    def _of(self, pod: str) -> tuple[Folder, list[Segment]]:
        """The segments of a pod's newest journal."""
        if self._folder:
            for number in sorted({each.journal for each in self._segments}, reverse=True):
                if files.read_about(self._folder, number)[0] == pod:
                    return self._folder, [each for each in self._kept() if each.journal == number]
        raise NoJournalError(f"cannot find a journal of pod {pod[:80]}: this executor has none")


def open_journal(path: str, pod: str, clock: Callable[[], float]) -> Journal:
    """The journal in a folder; where that cannot be had, one that misses each record."""
    try:
        return Journal(Folder(path), pod, clock)
    except OSError as error:
        _log.warning("cannot open the journal: %s", error)
        return Journal(None, pod, clock)
