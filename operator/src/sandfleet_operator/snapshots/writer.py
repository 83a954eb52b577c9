"""Saves one snapshot: whole, or not at all.

The marker of the writer is written first, the manifest last and only where there is none. What happens in between is
seen by collections alone, which leave the packs of a marked writer alone (plan/snapshots/collection.py).
"""

import contextlib
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from itertools import islice

from sandfleet_operator.plan.snapshots import entries as lines
from sandfleet_operator.plan.snapshots import manifest as manifests
from sandfleet_operator.plan.snapshots.collection import MAX_SAVE_SECONDS
from sandfleet_operator.plan.snapshots.entries import Entry, Validator
from sandfleet_operator.plan.snapshots.errors import Reason, SnapshotError
from sandfleet_operator.plan.snapshots.manifest import MAX_FACTS, About, Content, Manifest, ranges
from sandfleet_operator.snapshots import tables
from sandfleet_operator.snapshots.base import Base, Segments
from sandfleet_operator.snapshots.keys import Keys
from sandfleet_operator.snapshots.layout import FENCE, TenantObjects, digest, opened
from sandfleet_operator.snapshots.packs import Packer, Place
from sandfleet_operator.snapshots.reader import Reader
from sandfleet_operator.snapshots.streams import META, StreamWriter

# Snapshots of the tenant whose chunks are not stored again, beside the parents: the newest.
KNOWN_SNAPSHOTS = 16


@dataclass(frozen=True, slots=True)
class Progress:
    """Of a save. `bytes`: data that came; `new_bytes`: of it, what no earlier snapshot had; `stored_bytes`: packs."""

    entries: int
    bytes: int
    new_bytes: int
    stored_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One save. `clock`: seconds that go on while the machine sleeps; `created_ms`: since the epoch."""

    id: str
    snapshot_id: str
    about: About
    created_ms: int
    clock: Callable[[], float]
    # An earlier snapshot whose data entries may have; empty: none.
    base: str = ""


@dataclass(frozen=True, slots=True)
class Threads:
    """For work that waits for the processor, and for work that waits for the store."""

    sealers: Executor
    transfers: Executor


class Writer:
    """Takes entries and data, then commits. For one thread at a time."""

    def __init__(self, objects: TenantObjects, keys: Keys, run: Run, threads: Threads) -> None:
        """Raises SnapshotError; nothing is left then."""
        manifests.check_about(run.about)
        self._objects, self._all_keys, self._run = objects, keys, run
        self._keys = keys.current(objects.tenant)
        self._deadline = run.clock() + MAX_SAVE_SECONDS
        self._packer = Packer(objects, run.id, self._keys, sealers=threads.sealers, uploaders=threads.transfers)
        self._over = self._tried = False
        self._threads = threads
        self._base_manifest: Manifest | None = None
        # What the executor has said at the base; None: there is none to build on.
        self.base_facts: bytes | None = None
        self._mark()
        try:
            self._learn()
            self._start_streams()
        except BaseException:
            self.abort()
            raise

    @property
    def progress(self) -> Progress:
        return Progress(
            self._validator.totals.entries, self._segments.got, self._packer.new_bytes, self._packer.stored_bytes
        )

    def add(
        self, entries: Sequence[Entry], data: bytes | memoryview = b"", known: Collection[int] = frozenset()
    ) -> None:
        """Data may come later than its entry, never before. Raises SnapshotError.

        `known`: places in `entries` of files whose data are those of the base: none come.
        """
        self._check_open()
        text = []
        for at, entry in enumerate(entries):
            self._validator.add(entry)
            text.append(lines.encode(entry))
            self._segments.expect(entry, known=at in known)
        self._entries.feed(b"".join(text))
        self._segments.feed(data)

    def commit(self, facts: bytes = b"") -> Manifest:
        """The snapshot exists, and its manifest has been read back.

        Raises:
            SnapshotError: it does not exist. With reason Unavailable the store may have it nevertheless; after
                `abort` either it has, or it never will.

        """
        self._check_open()
        self._segments.end()
        if len(facts) > MAX_FACTS:
            raise SnapshotError(Reason.TOO_LARGE, f"cannot save: the facts have over {MAX_FACTS} bytes")
        content = Content(
            entries=self._entries.end(),
            data=self._data.end(),
            facts=(self._packer.settle(self._packer.add(facts), META),) if facts else (),
        )
        self._packer.flush()
        self._check_packs()
        manifest = self._manifest(content)
        stored = self._keys.seal_manifest(manifest.id, manifests.encode(manifest))
        if self._run.clock() > self._deadline:
            raise SnapshotError(Reason.FENCED, f"cannot save: it took over {MAX_SAVE_SECONDS:.0f} s")
        self._put(stored)
        self._over = True
        with contextlib.suppress(SnapshotError):
            # Where it stays, the next collection removes it.
            self._objects.objects.delete([self._objects.writer_key(self._run.id)])
        return replace(manifest, digest=digest(stored))

    def abort(self) -> None:
        """Removes what was stored, as far as the store answers; the rest is left to the next collection."""
        if self._over:
            return
        self._over = True
        self._packer.drop()
        with contextlib.suppress(SnapshotError):
            if self._tried and not self._is_given_up():
                return
            own = [self._objects.pack_key(run, number) for run, number, _ in self._objects.packs(self._run.id)]
            self._objects.objects.delete(own)
            self._objects.objects.delete([self._objects.writer_key(self._run.id)])

    def _start_streams(self) -> None:
        self._validator = Validator()
        self._entries = StreamWriter(self._packer, self._keys.cuts, META)
        self._data = StreamWriter(self._packer, self._keys.cuts, "data")
        base = None
        if self._base_manifest is not None:
            base = Base(self._reader(self._base_manifest))
        self._segments = Segments(self._data, base)

    def _reader(self, manifest: Manifest) -> Reader:
        return Reader(self._objects, self._all_keys, manifest, self._threads.transfers, checks=False)

    def _check_open(self) -> None:
        if self._over:
            raise SnapshotError(Reason.NOT_FOUND, "cannot go on with the save: it has ended")

    def _mark(self) -> None:
        marker = json.dumps({"snapshot": self._run.snapshot_id}).encode("ascii")
        # Its name is random. Where a reply is lost and the write repeated, a second one is no error.
        self._objects.objects.put(self._objects.writer_key(self._run.id), marker)

    def _learn(self) -> None:
        """What is stored already. The marker is there before the trash is read: docs/dev/adr/0054."""
        objects, sid = self._objects, self._run.snapshot_id
        trash = objects.trash()
        taken = {name for name, _ in objects.names("manifests")}
        if sid in taken or sid in trash:
            raise SnapshotError(Reason.EXISTS, f"cannot save the snapshot {sid}: there is one of this id")
        if self._run.base in taken and self._run.base not in trash:
            self._build_on(self._run.base)
        for manifest in self._earlier(trash, taken):
            if manifest.key == self._keys.name and not self._know(manifest):
                return

    def _build_on(self, snapshot_id: str) -> None:
        """One that cannot be read is no reason not to save."""
        with contextlib.suppress(SnapshotError):
            manifest = self._objects.manifest(snapshot_id, self._all_keys)
            if manifest.key == self._keys.name:
                self._base_manifest, self.base_facts = manifest, self._reader(manifest).facts

    def _earlier(self, trash: frozenset[str], taken: set[str]) -> Iterator[Manifest]:
        parents = [name for name in self._run.about.parents if name in taken and name not in trash]
        for name in parents:
            with contextlib.suppress(SnapshotError):
                yield self._objects.manifest(name, self._all_keys)
        others = self._objects.manifests(self._all_keys, trash | frozenset(parents), unread=[])
        yield from islice(others, KNOWN_SNAPSHOTS)

    def _know(self, manifest: Manifest) -> bool:
        sources = manifest.content.sources
        for part in (*manifest.content.entries, *manifest.content.data):
            try:
                stored = self._objects.chunk_bytes(sources, part, part.length)
                for ref in tables.decode(self._keys.open(part.id, stored, part.size), len(sources)):
                    place = Place(sources[ref.source], ref.pack, ref.offset, ref.length)
                    if not self._packer.know(ref.id, place):
                        return False
            except SnapshotError as error:
                # A damaged snapshot is no reason not to save another one.
                if error.reason is not Reason.CORRUPT:
                    raise
        return True

    def _check_packs(self) -> None:
        """All that the manifest will name is there: what was uploaded, and what others have stored."""
        sizes = {
            (run, number): size
            for source in {run for run, _ in self._packer.needed}
            for run, number, size in self._objects.packs(source)
        }
        for (run, number), end in self._packer.needed.items():
            if sizes.get((run, number), 0) < end:
                raise SnapshotError(Reason.CORRUPT, f"cannot save: the store has lost the pack {run}/{number}")

    def _manifest(self, content: Content) -> Manifest:
        needed: dict[str, set[int]] = {}
        for run, number in self._packer.needed:
            needed.setdefault(run, set()).add(number)
        sources = self._packer.sources
        return Manifest(
            id=self._run.snapshot_id,
            run=self._run.id,
            tenant=self._objects.tenant,
            created_ms=self._run.created_ms,
            key=self._keys.name,
            about=self._run.about,
            totals=self._validator.totals,
            new_bytes=self._packer.new_bytes,
            stored_bytes=self._packer.stored_bytes,
            content=replace(
                content, sources=sources, packs=tuple(ranges(needed.get(source, ())) for source in sources)
            ),
        )

    def _put(self, stored: bytes) -> None:
        """Writes the manifest, and knows afterwards whether it is there."""
        key, failure = self._objects.manifest_key(self._run.snapshot_id), None
        self._tried = True
        try:
            self._objects.objects.put(key, stored, new=True)
        except SnapshotError as error:
            failure = error
        # Also after a failure: the reply may be what was lost.
        try:
            found = self._objects.objects.get(key, 0, len(stored) + 1)
        except SnapshotError as error:
            raise failure or error from error
        if found == FENCE:
            raise SnapshotError(Reason.FENCED, "cannot save: it took so long that a collection has given it up")
        if found != stored:
            sid = self._run.snapshot_id
            raise SnapshotError(Reason.EXISTS, f"cannot save the snapshot {sid}: another save has made it just now")
        opened(found, self._objects.tenant, self._run.snapshot_id, self._all_keys)

    def _is_given_up(self) -> bool:
        """Makes sure that no manifest of this run can appear any more, also one that is still on its way."""
        key = self._objects.manifest_key(self._run.snapshot_id)
        try:
            self._objects.objects.put(key, FENCE, new=True)
        except SnapshotError as error:
            if error.reason is not Reason.EXISTS:
                raise
            found = self._objects.objects.get(key)
            if found == FENCE:
                return True
            return opened(found, self._objects.tenant, self._run.snapshot_id, self._all_keys).run != self._run.id
        return True
