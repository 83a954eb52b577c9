"""Checks a journal, record by record: each fault names the record, and heads say up to where it is proved."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sandfleet.journal import signatures, statements
from sandfleet.journal.headfile import Heads
from sandfleet.journal.heads import KeptHead, SignedHead
from sandfleet.journal.records import NO_HASH, BadRecordError, Head, Line, Record, lines, read
from sandfleet.journal.statements import Keys

# Faults that are listed; further ones are counted.
MAX_FAULTS = 100
# Gaps in the numbers that are followed, and lines of one number.
_MAX_GAPS, _MAX_TWINS = 1000, 16


class FaultKind(enum.Enum):
    """What is wrong with a record."""

    CHANGED = "changed"
    MISSING = "missing"
    MOVED = "moved"
    REPEATED = "repeated"
    UNREADABLE = "unreadable"
    CUT = "cut"
    REPLACED = "replaced"
    CONTRADICTED = "contradicted"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of one record, or of records `number` to `last`; `why` is a sentence for people."""

    kind: FaultKind
    number: int
    why: str
    last: int = 0

    def __str__(self) -> str:
        records = f"records {self.number} to {self.last}" if self.last > self.number else f"record {self.number}"
        return f"{records}: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What a check of a journal has found.

    first, head     the first record of the file, and the last one, with its hash.
    count           records that could be read.
    faults          at most 100; `fault_count` counts all.
    kept            the newest record that a head of the client proves; 0: none does.
    signed          the newest record that a head signed by the fleet proves; 0: none does.
    is_pinned       whether the reader named the fleet's keys; otherwise those that came with the signatures count.
    ends_known      whether a head says that the last record is the newest: otherwise later ones may have been cut off.
    notes           sentences about what could not be used.
    pod_uid, session  whose journal it is: by the fleet's word where a signed head holds, else by the executor's.
    """

    first: int
    head: Head
    count: int
    faults: tuple[Fault, ...]
    fault_count: int
    kept: int
    signed: int
    is_pinned: bool
    ends_known: bool
    notes: tuple[str, ...] = ()
    pod_uid: str = ""
    session: str = ""

    @property
    def ok(self) -> bool:
        """Whether no record is at fault."""
        return not self.fault_count

    @property
    def proved(self) -> int:
        """The newest record for which client or fleet vouch, and not the executor alone; 0: none."""
        return max(self.kept, self.signed)


@dataclass(slots=True)
class _Known:
    """A head to compare with: who says it."""

    head: Head
    signed: bool
    said: str


@dataclass(slots=True)
class _Chain:
    """The records so far: numbers, hashes, gaps, and what is wrong with them."""

    first: int = 0
    count: int = 0
    top: Head = field(default_factory=Head)
    before: str = NO_HASH
    # All lines that have the highest number: where there are two, the next record says which one is real.
    twins: set[str] = field(default_factory=set)
    gaps: set[int] = field(default_factory=set)
    faults: list[Fault] = field(default_factory=list)
    fault_count: int = 0

    def fault(self, kind: FaultKind, number: int, why: str, last: int = 0) -> None:
        self.fault_count += 1
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(Fault(kind, number, why, last))

    def take(self, record: Record) -> None:
        self.count += 1
        number = record.number
        if not self.first:
            self._begin(record)
        elif number == self.top.number + 1:
            self._follow(record)
        elif number > self.top.number:
            last = number - 1
            why = "is not in the file" if last == self.top.number + 1 else "are not in the file"
            self.fault(FaultKind.MISSING, self.top.number + 1, why, last)
            if last - self.top.number <= _MAX_GAPS - len(self.gaps):
                self.gaps.update(range(self.top.number + 1, number))
            self._rise(record)
        else:
            self._fall(record)

    def _begin(self, record: Record) -> None:
        self.first, self.before = record.number, record.prev
        if record.number == 1 and record.prev != NO_HASH:
            self.fault(FaultKind.CHANGED, 1, "names a record before it, though it is the first one")
        self._rise(record)

    def _follow(self, record: Record) -> None:
        if record.prev not in self.twins:
            why = f"is not the one that record {record.number} was written after"
            self.fault(FaultKind.CHANGED, self.top.number, why)
        self._rise(record)

    def _rise(self, record: Record) -> None:
        self.top, self.twins = record.head, {record.head.hash}

    def _fall(self, record: Record) -> None:
        number = record.number
        if number in self.gaps:
            self.gaps.discard(number)
            self.fault(FaultKind.MOVED, number, f"stands behind record {self.top.number}")
        elif number < self.first:
            self.fault(FaultKind.MOVED, number, f"stands behind record {self.top.number}, and the file begins later")
        else:
            self.fault(FaultKind.REPEATED, number, "stands in the file twice")
            if number == self.top.number and len(self.twins) < _MAX_TWINS:
                self.twins.add(record.head.hash)


class Verifier:
    """Takes the lines of a journal in turn. The memory does not grow with the file."""

    def __init__(self, heads: Heads | None = None, keys: Keys | None = None) -> None:
        """`heads` prove records; `keys` are the fleet's."""
        self._heads, self._keys = heads or Heads(), keys or Keys()
        self._chain = _Chain()
        self._wanted: dict[int, list[_Known]] = {}
        self._seen: dict[int, set[str]] = {}
        self._notes: list[str] = []
        self._pod_uid = self._session = ""
        self._ready = False
        if self._heads.exported is not None:
            self._pod_uid = self._heads.exported.pod_uid

    def take(self, line: Line) -> Record | None:
        """Check the next line; return its record, if it is one."""
        try:
            record = None if line.oversized or line.cut else read(line.data)
        except BadRecordError:
            record = None
        chain = self._chain
        if record is None:
            number = chain.top.number + 1
            if line.cut:
                chain.fault(FaultKind.CUT, number, "is cut off: the file ends within it")
            else:
                chain.fault(FaultKind.UNREADABLE, number, "what stands behind the record before it is no record")
            return None
        if not self._ready:
            self._begin(record)
        chain.take(record)
        if record.number in self._wanted:
            self._seen.setdefault(record.number, set()).add(record.head.hash)
        return record

    def _begin(self, record: Record) -> None:
        """Choose the heads that are of this journal, once it is known whose it is."""
        self._ready = True
        if record.kind == "opened":
            pod_uid, session = record.body.get("pod"), record.body.get("session")
            self._pod_uid = pod_uid if isinstance(pod_uid, str) else self._pod_uid
            self._session = session[:512] if isinstance(session, str) else ""
        self._choose()

    def _choose(self) -> None:
        pods = {one.pod_uid for one in self._heads.kept} | {one.pod_uid for one in self._heads.signed}
        if not self._pod_uid and len(pods) == 1:
            # The record that names the pod is not in the file.
            self._pod_uid = pods.pop()
        kept = [one for one in self._heads.kept if one.pod_uid == self._pod_uid]
        signed = [one for one in self._heads.signed if one.pod_uid == self._pod_uid]
        self._note_others(len(self._heads.kept) - len(kept) + len(self._heads.signed) - len(signed))
        if signed and not signatures.can_check():
            self._notes.append(f"{len(signed)} signed heads do not count: {signatures.MISSING}")
            signed = []
        good, bad = statements.valid(signed, self._keys)
        # The fleet's word before the executor's.
        self._session = good[-1].session if good else self._session
        if bad:
            why = "none of the named keys has made it" if self._keys.pinned else "its signature does not hold"
            self._notes.append(
                f"{len(bad)} signed heads do not count, the newest of record {bad[-1].head.number}: {why}"
            )
        if self._heads.unreadable:
            self._notes.append(f"{self._heads.unreadable} lines of heads could not be read")
        for one in kept:
            self._want(_Known(one.head, signed=False, said="the client has kept another one"))
        for signed_head in good:
            self._want(_Known(signed_head.head, signed=True, said="the fleet has signed another one"))
        exported = self._heads.exported
        if exported is not None and exported.head.number:
            self._want(_Known(exported.head, signed=False, said="the executor told another one at the export"))
            if exported.anchor.number and exported.anchor.number == exported.head.number:
                self._notes.append("the executor had dropped all records at the export")

    def _note_others(self, count: int) -> None:
        if count:
            self._notes.append(f"{count} heads are of other pods")

    def _want(self, known: _Known) -> None:
        for other in self._wanted.setdefault(known.head.number, []):
            if other.head.hash != known.head.hash:
                why = "the executor has told two heads with its number: it has changed its past"
                self._chain.fault(FaultKind.CONTRADICTED, known.head.number, why)
        self._wanted[known.head.number].append(known)

    def end(self) -> Verification:
        """Return what was found."""
        if not self._ready:
            self._ready = True
            self._choose()
        chain = self._chain
        self._check_begin()
        newest = max(self._wanted, default=0)
        if newest > chain.top.number:
            missing = chain.top.number + 1
            why = "are missing at the end: a head proves that they were written"
            self._chain.fault(
                FaultKind.MISSING, missing, why if newest > missing else why.replace("are", "is", 1), newest
            )
        kept, signed = self._compare()
        return Verification(
            first=chain.first,
            head=chain.top,
            count=chain.count,
            faults=tuple(chain.faults),
            fault_count=chain.fault_count,
            kept=kept,
            signed=signed,
            is_pinned=self._keys.pinned,
            ends_known=bool(newest) and newest >= chain.top.number,
            notes=tuple(self._notes),
            pod_uid=self._pod_uid,
            session=self._session,
        )

    def _check_begin(self) -> None:
        chain = self._chain
        if chain.first <= 1:
            return
        anchor = Head(chain.first - 1, chain.before)
        exported = self._heads.exported
        if exported is not None and exported.anchor == anchor:
            self._notes.append(
                f"records 1 to {anchor.number} are not in the file: the executor had dropped them for room"
            )
            return
        words = "is not in the file" if anchor.number == 1 else "are not in the file"
        chain.fault(FaultKind.MISSING, 1, words, anchor.number)

    def _compare(self) -> tuple[int, int]:
        """Compare the heads with the records; return the newest that the client and the fleet have proved."""
        proved = {False: 0, True: 0}
        last_good = 0
        for number in sorted(self._wanted):
            if number > self._chain.top.number:
                break
            for known in self._wanted[number]:
                hashes = self._seen.get(number, set())
                if number == self._chain.first - 1 and not hashes:
                    hashes = {self._chain.before}
                if known.head.hash in hashes:
                    proved[known.signed] = last_good = number
                elif hashes:
                    since = f"since record {last_good}" if last_good else "from the begin on"
                    why = f"is another one than it was: {known.said}. The executor may have changed its past {since}"
                    self._chain.fault(FaultKind.REPLACED, number, why)
        return self._unbroken(proved[False]), self._unbroken(proved[True])

    def _unbroken(self, number: int) -> int:
        """A head proves what its chain holds: up to the first fault before it."""
        first = min((one.number for one in self._chain.faults), default=number + 1)
        return number if first > number else max(0, first - 1)


def verify(chunks: Iterable[bytes], heads: Heads | None = None, keys: Keys | None = None) -> Verification:
    """Check a journal that is given piece by piece."""
    verifier = Verifier(heads, keys)
    for line in lines(chunks):
        verifier.take(line)
    return verifier.end()


def heads_of(kept: Sequence[KeptHead] = (), signed: Sequence[SignedHead] = ()) -> Heads:
    """Make heads to check with."""
    return Heads(kept=list(kept), signed=list(signed))
