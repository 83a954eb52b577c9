"""Which objects a store has: the keys below a tenant's prefix, and what is read from them.

PLACE is the tenant; on Kubernetes CLUSTER/NAMESPACE_UID/TENANT, so that no two clusters and no two namespaces of one
name have the same (docs/dev/adr/0062).

_owner                    the cluster whose store it is
PLACE/manifests/ID        a snapshot, or the fence that a collection has put there against a writer that it gave up
PLACE/packs/RUN/NUMBER    chunks of one writer, one behind the other
PLACE/writers/RUN         a writer that runs: the id of its snapshot
PLACE/trash/ID            a snapshot that is deleted: empty, or by whom, and then it can be taken back for a time
PLACE/round               the collection that is under way
PLACE/clock               for a moment: what time it is for the store
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sandfleet_operator.plan.snapshots.errors import Reason, SnapshotError, corrupt, hostile
from sandfleet_operator.plan.snapshots.manifest import MAX_MANIFEST, Manifest, Ref, checked_name, decode
from sandfleet_operator.snapshots.backends import Found, Objects
from sandfleet_operator.snapshots.keys import Keys, key_name

FENCE = b"sandfleet fence\n"
OWNER = "_owner"

UNREADABLE = (Reason.CORRUPT, Reason.FOREIGN, Reason.HOSTILE)


@dataclass(frozen=True, slots=True)
class TenantObjects:
    """What a store has of one tenant. `place`: what its keys begin with."""

    objects: Objects
    place: str

    def __post_init__(self) -> None:
        names = self.place.split("/")
        if len(names) not in {1, 3}:
            raise hostile(f"{self.place[:70]!r} is no place of a tenant")
        for name in names:
            checked_name(name, "a tenant")

    @property
    def tenant(self) -> str:
        """Whose keys are used."""
        return self.place.rpartition("/")[2]

    def manifest_key(self, snapshot_id: str) -> str:
        return f"{self.place}/manifests/{checked_name(snapshot_id, 'a snapshot')}"

    def pack_key(self, run: str, number: int) -> str:
        return f"{self.place}/packs/{checked_name(run, 'a run')}/{number:08d}"

    def writer_key(self, run: str) -> str:
        return f"{self.place}/writers/{checked_name(run, 'a run')}"

    def trash_key(self, snapshot_id: str) -> str:
        return f"{self.place}/trash/{checked_name(snapshot_id, 'a snapshot')}"

    @property
    def clock_key(self) -> str:
        return f"{self.place}/clock"

    @property
    def round_key(self) -> str:
        return f"{self.place}/round"

    def names(self, folder: str) -> Iterator[tuple[str, Found]]:
        """The last parts of the keys in a folder."""
        for found in self.objects.list(f"{self.place}/{folder}/"):
            yield found.key.rpartition("/")[2], found

    def packs(self, run: str = "") -> Iterator[tuple[str, int, int]]:
        """Run, number and bytes of each pack."""
        prefix = f"{self.place}/packs/"
        for found in self.objects.list(f"{prefix}{run}/" if run else prefix):
            of, _, number = found.key.removeprefix(prefix).partition("/")
            if number.isdecimal():
                yield of, int(number), found.size

    def trash(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.names("trash"))

    def store_time(self) -> float:
        """Seconds since the epoch, as the store dates what is written now; 0 where it does not say."""
        self.objects.put(self.clock_key, b"")
        now = max((found.modified for found in self.objects.list(self.clock_key)), default=0.0)
        self.objects.delete([self.clock_key])
        return now

    def raw_manifest(self, snapshot_id: str) -> bytes:
        """As it is stored. Reason NotFound where there is none, or a fence."""
        stored = self.objects.get(self.manifest_key(snapshot_id), 0, MAX_MANIFEST + 1)
        if stored == FENCE:
            raise SnapshotError(Reason.NOT_FOUND, f"cannot read the snapshot {snapshot_id}: its save was given up")
        if len(stored) > MAX_MANIFEST:
            raise corrupt("its manifest is too large")
        return stored

    def manifest(self, snapshot_id: str, keys: Keys) -> Manifest:
        """Verified to be this tenant's, and of this name. Says nothing of the trash."""
        return opened(self.raw_manifest(snapshot_id), self.tenant, snapshot_id, keys)

    def manifests(self, keys: Keys, without: frozenset[str], unread: list[str] | None = None) -> Iterator[Manifest]:
        """Newest first by their names; those that go while they are read are left out.

        Raises SnapshotError at one that cannot be read; where `unread` is given, its name is added there instead.
        """
        names = [name for name, _ in self.names("manifests") if name not in without]
        for name in reversed(names):
            try:
                yield self.manifest(name, keys)
            except SnapshotError as error:
                if unread is not None and error.reason in UNREADABLE:
                    unread.append(name)
                elif error.reason is not Reason.NOT_FOUND:
                    raise

    def chunk_bytes(self, sources: Sequence[str], ref: Ref, length: int) -> bytes:
        """`length` stored bytes from the place of a chunk on."""
        try:
            stored = self.objects.get(self.pack_key(sources[ref.source], ref.pack), ref.offset, length)
        except SnapshotError as error:
            if error.reason is Reason.NOT_FOUND:
                raise corrupt("one of its packs is gone") from error
            raise
        if len(stored) != length:
            raise corrupt("one of its packs is cut off")
        return stored


def opened(stored: bytes, tenant: str, snapshot_id: str, keys: Keys) -> Manifest:
    named = keys.named(tenant, key_name(stored))
    manifest = decode(named.open_manifest(snapshot_id, stored), tenant=tenant, snapshot_id=snapshot_id)
    return replace(manifest, digest=digest(stored))


def digest(stored: bytes) -> str:
    return hashlib.sha256(stored).hexdigest()
