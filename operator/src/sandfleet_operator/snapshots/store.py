"""The store: saves, reads, lists, deletes and collects the snapshots of tenants. All of it blocks."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from sandfleet_operator.plan.snapshots.collection import QUARANTINE_SECONDS, Collected
from sandfleet_operator.plan.snapshots.entries import RestoreLimits
from sandfleet_operator.plan.snapshots.errors import Reason, SnapshotError
from sandfleet_operator.plan.snapshots.manifest import MAX_TEXT, About, Manifest, checked_name
from sandfleet_operator.plan.snapshots.retention import outlived
from sandfleet_operator.snapshots import bundle, reader
from sandfleet_operator.snapshots.backends import Objects
from sandfleet_operator.snapshots.backends.directory import DirectoryObjects
from sandfleet_operator.snapshots.collector import Collector
from sandfleet_operator.snapshots.keys import Keys
from sandfleet_operator.snapshots.layout import OWNER, UNREADABLE, TenantObjects
from sandfleet_operator.snapshots.reader import Reader
from sandfleet_operator.snapshots.writer import Run, Threads, Writer

_SEALERS = max(2, min(4, os.cpu_count() or 2))
_TRANSFERS = 4
_OVER = "it was deleted for good, or longer ago than 30 days"


def _awake_and_asleep() -> float:
    """Seconds that go on while the machine sleeps: a save that slept through a day has to know it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class Chance:
    """Where a store gets its time and its random names from. `now`: seconds since the epoch."""

    now: Callable[[], float] = time.time
    clock: Callable[[], float] = _awake_and_asleep
    random: Callable[[int], bytes] = os.urandom

    def new_name(self) -> str:
        """Ascends with the time."""
        return f"{int(self.now() * 1000):012x}-{self.random(8).hex()}"


@dataclass(frozen=True)
class SnapshotStore:
    """Snapshots of any number of tenants. For any thread; closing it lets its threads and connections go."""

    objects: Objects
    keys: Keys
    chance: Chance = Chance()
    threads: Threads = field(
        default_factory=lambda: Threads(
            ThreadPoolExecutor(_SEALERS, "snapshot-seal"), ThreadPoolExecutor(_TRANSFERS, "snapshot-transfer")
        )
    )

    def writer(self, tenant: str, about: About, snapshot_id: str | None = None, *, base: str = "") -> Writer:
        """Begin to save. Who gets it commits or aborts it. `base`: see Run. Raises SnapshotError."""
        run = Run(
            id=self.chance.new_name(),
            snapshot_id=checked_name(snapshot_id or self.chance.new_name(), "a snapshot"),
            about=about,
            created_ms=int(self.chance.now() * 1000),
            clock=self.chance.clock,
            base=base,
        )
        return Writer(TenantObjects(self.objects, tenant), self.keys, run, self.threads)

    def reader(
        self, tenant: str, snapshot_id: str, *, digest: str | None = None, limits: RestoreLimits | None = None
    ) -> Reader:
        """Check a snapshot and begin to read it. `digest`: its manifest has to have it. Raises SnapshotError."""
        objects = TenantObjects(self.objects, tenant)
        manifest = reader.find(objects, self.keys, snapshot_id, digest)
        return Reader(objects, self.keys, manifest, self.threads.transfers, limits)

    def get(self, tenant: str, snapshot_id: str, *, digest: str | None = None) -> Manifest:
        """`digest`: as of `reader`. Raises SnapshotError."""
        return reader.find(TenantObjects(self.objects, tenant), self.keys, snapshot_id, digest)

    def list(self, tenant: str, unread: list[str] | None = None) -> Iterator[Manifest]:
        """Newest first. A manifest that cannot be read is left out, and its id added to `unread`: it hides no other."""
        objects = TenantObjects(self.objects, tenant)
        yield from objects.manifests(self.keys, objects.trash(), unread=[] if unread is None else unread)

    def find(self, tenant: str, name: str, sandbox: str = "") -> Manifest | None:
        """The newest of this name, of this sandbox first: each of its snapshots has its own name."""
        found = self.named(tenant, name)
        return next((one for one in found if sandbox and one.about.sandbox == sandbox), next(iter(found), None))

    def named(self, tenant: str, name: str) -> Sequence[Manifest]:
        """Snapshots of this name, the newest first."""
        found = [manifest for manifest in self.list(tenant) if manifest.about.name == name]
        return sorted(found, key=lambda manifest: manifest.created_ms, reverse=True)

    def own(self, cluster: str) -> None:
        """Takes the store for this cluster. Raises SnapshotError: it is another's, whose snapshots it would mix up."""
        with contextlib.suppress(SnapshotError):
            # What is read back decides.
            self.objects.put(OWNER, cluster.encode("ascii"), new=True)
        owner = self.objects.get(OWNER, 0, MAX_TEXT).decode("ascii", "replace")
        if owner != cluster:
            why = f"its object {OWNER} says that it is that of cluster {owner[:64]}, and this is {cluster}"
            raise SnapshotError(Reason.DENIED, f"cannot use the store: {why}")

    def delete(self, tenant: str, snapshot_id: str, *, now: bool = False, by: str = "caller") -> bool:
        """From now on it cannot be read. Returns whether it was there.

        `undelete` takes it back, for QUARANTINE_SECONDS. Not where `now`, nor one that cannot be read: what it alone
        needs goes with the next collection then. `by` says who has deleted it.
        """
        objects = TenantObjects(self.objects, tenant)
        try:
            objects.manifest(snapshot_id, self.keys)
        except SnapshotError as error:
            if error.reason is Reason.NOT_FOUND:
                return False
            if error.reason not in UNREADABLE:
                raise
            # It is of no use, and no collection knows what it needs.
            now = True
        existed = snapshot_id not in objects.trash()
        if now:
            self.objects.put(objects.trash_key(snapshot_id), b"")
        elif existed:
            self.objects.put(objects.trash_key(snapshot_id), by.encode("ascii"))
        return existed

    def undelete(self, tenant: str, snapshot_id: str, *, by: str = "") -> Manifest:
        """Takes a deleted snapshot back. `by`: only what this one has deleted. Raises SnapshotError."""
        objects = TenantObjects(self.objects, tenant)
        marks = dict(objects.names("trash"))
        if (found := marks.get(snapshot_id)) is not None:
            if not (now := objects.store_time()) and found.size:
                why = "the store does not tell its time"
                raise SnapshotError(Reason.UNAVAILABLE, f"cannot take the snapshot {snapshot_id} back: {why}")
            if now - found.modified > QUARANTINE_SECONDS or not found.size:
                raise SnapshotError(Reason.NOT_FOUND, f"cannot take the snapshot {snapshot_id} back: {_OVER}")
            if by and self.objects.get(found.key) != by.encode("ascii"):
                raise SnapshotError(Reason.NOT_FOUND, f"cannot take the snapshot {snapshot_id} back: it was deleted")
            self.objects.delete([found.key])
        return self.get(tenant, snapshot_id)

    def deleted(self, tenant: str) -> Iterator[Manifest]:
        """What can be taken back, newest first."""
        objects = TenantObjects(self.objects, tenant)
        kept = {name for name, found in objects.names("trash") if found.size}
        others = frozenset(name for name, _ in objects.names("manifests") if name not in kept)
        yield from objects.manifests(self.keys, others, unread=[])

    def retain(self, tenant: str) -> tuple[str, ...]:
        """Delete what its retention does not keep, and say what. A wrong clock may have done it: see `undelete`."""
        over = tuple(outlived(self.list(tenant), int(self.chance.now() * 1000)))
        for snapshot_id in over:
            self.delete(tenant, snapshot_id, by="retention")
        return over

    def collect(self, tenant: str, *, dry_run: bool = False) -> Collected:
        """Remove what no snapshot of the tenant needs, or say what that would be. Raises SnapshotError."""
        collector = Collector(TenantObjects(self.objects, tenant), self.keys)
        return collector.would_collect() if dry_run else collector.collect()

    def export(self, tenant: str, snapshot_id: str, path: Path) -> Manifest:
        """Write a snapshot into one new file, which is not encrypted. Raises SnapshotError."""
        source = self.reader(tenant, snapshot_id)
        bundle.write(source, path)
        return source.manifest

    def import_file(self, tenant: str, path: Path, about: About) -> Manifest:
        """Save what an exported file has. Nothing in the file is trusted: what it says of itself is not used.

        `bundle.requested` says what it asks for; `bundle.imported` makes an `about` of it, once that was checked.
        """
        writer = self.writer(tenant, bundle.untrusted(about))
        try:
            with bundle.opened(path) as (_, parts):
                facts = b""
                for piece in parts:
                    if isinstance(piece, bytes):
                        facts = piece
                    else:
                        writer.add(piece.entries, piece.data)
            return writer.commit(facts)
        except BaseException:
            writer.abort()
            raise

    def close(self) -> None:
        for executor in (self.threads.sealers, self.threads.transfers):
            executor.shutdown(wait=True, cancel_futures=True)
        self.objects.close()


def open_store(url: str, keys: Keys) -> SnapshotStore:
    """The store at `file:///folder` or `s3://bucket/prefix?endpoint=…&region=…`. Raises SnapshotError."""
    parts = urlsplit(url)
    if parts.scheme == "file" and not parts.netloc and parts.path.startswith("/"):
        return SnapshotStore(DirectoryObjects(Path(parts.path)), keys)
    if parts.scheme == "s3" and parts.netloc:
        # Takes 0.3 s, and a store in a folder does not need it.
        from sandfleet_operator.snapshots.backends.s3 import S3Objects, connect

        options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        with contextlib.suppress(KeyError):
            client = connect(endpoint=options.pop("endpoint", None), region=options.pop("region", None))
        if not options:
            return SnapshotStore(S3Objects(client, parts.netloc, parts.path.strip("/")), keys)
    why = "it is neither file:///folder nor s3://bucket/prefix?endpoint=…&region=…"
    raise SnapshotError(Reason.HOSTILE, f"cannot open the store {url[:200]!r}: {why}")
