"""Snapshots for tests: a store in memory, entries of trees, trees that Hypothesis makes."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field

from hypothesis import strategies as st
from sandfleet_operator.plan.snapshots.entries import Entry, Extent, Kind
from sandfleet_operator.plan.snapshots.errors import Reason, SnapshotError
from sandfleet_operator.plan.snapshots.manifest import About, Manifest
from sandfleet_operator.snapshots.backends import Found
from sandfleet_operator.snapshots.keys import SecretKeys
from sandfleet_operator.snapshots.store import Chance, SnapshotStore
from sandfleet_operator.snapshots.writer import Threads

KEYS = SecretKeys({"first": bytes(range(32))}, "first")


class AtOnce(Executor):
    """Does work where it is submitted, so that what happens has one order."""

    def submit(self, work: Callable, /, *args: object, **kwargs: object) -> Future:
        future: Future = Future()
        try:
            future.set_result(work(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - a future keeps them all
            future.set_exception(error)
        return future


@dataclass
class MemoryObjects:
    """`before` is called with each operation and its key; what it raises is what the caller gets."""

    now: Callable[[], float] = lambda: 0.0
    before: Callable[[str, str], None] = lambda operation, key: None
    held: dict[str, tuple[bytes, float]] = field(default_factory=dict)

    def put(self, key: str, data: bytes, *, new: bool = False) -> None:
        self.before("put", key)
        if new and key in self.held:
            raise SnapshotError(Reason.EXISTS, f"cannot write {key}: it is there already")
        self.held[key] = bytes(data), self.now()

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        self.before("get", key)
        if key not in self.held:
            raise SnapshotError(Reason.NOT_FOUND, f"cannot read {key}: it is not there")
        data = self.held[key][0]
        return data[start:] if length is None else data[start : start + length]

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.before("delete", key)
            self.held.pop(key, None)

    def list(self, prefix: str) -> Iterator[Found]:
        self.before("list", prefix)
        yield from [
            Found(key, len(data), when) for key, (data, when) in sorted(self.held.items()) if key.startswith(prefix)
        ]

    def close(self) -> None:
        pass


@dataclass
class Clock:
    """Time and chance of a test."""

    seconds: float = 1_800_000_000.0
    names: Iterator[int] = field(default_factory=itertools.count)

    def chance(self) -> Chance:
        return Chance(lambda: self.seconds, lambda: self.seconds, lambda count: next(self.names).to_bytes(count, "big"))


def store_in_memory(
    objects: MemoryObjects | None = None, keys: SecretKeys = KEYS, clock: Clock | None = None
) -> SnapshotStore:
    chance = (clock or Clock()).chance()
    return SnapshotStore(objects or MemoryObjects(chance.now), keys, chance, Threads(AtOnce(), AtOnce()))


@dataclass(frozen=True)
class File:
    """`pieces`: offset and data; between them are holes where it is sparse."""

    pieces: tuple[tuple[int, bytes], ...]
    size: int
    sparse: bool = False


def file(data: bytes) -> File:
    return File(((0, data),) if data else (), len(data))


Tree = Sequence[tuple[Entry, bytes]]
ROOT = Entry("workspace", b"", Kind.DIRECTORY, 0o755)


def flat(files: Mapping[bytes, bytes], tree: str = "workspace") -> Tree:
    """A folder with these files."""
    root = Entry(tree, b"", Kind.DIRECTORY, 0o755)
    made = [(Entry(tree, name, Kind.FILE, 0o644, size=len(data)), data) for name, data in sorted(files.items())]
    return [(root, b""), *made]


def save(
    store: SnapshotStore,
    tenant: str,
    tree: Tree,
    *,
    facts: bytes = b"",
    snapshot_id: str | None = None,
    **about: object,
) -> Manifest:
    writer = store.writer(tenant, About(**about), snapshot_id)
    try:
        for entry, data in tree:
            writer.add([entry], data)
        return writer.commit(facts)
    finally:
        writer.abort()


def load(store: SnapshotStore, tenant: str, snapshot_id: str, **how: object) -> Tree:
    """The snapshot as it was saved."""
    entries, data = [], bytearray()
    for part in store.reader(tenant, snapshot_id, **how).parts():
        entries += part.entries
        assert len(data) + len(part.data) <= sum(entry.data_bytes for entry in entries), "data before its entry"
        data += part.data
    found, start = [], 0
    for entry in entries:
        found.append((entry, bytes(data[start : start + entry.data_bytes])))
        start += entry.data_bytes
    assert start == len(data)
    return found


names = st.binary(min_size=1, max_size=12).filter(
    lambda name: not set(name) & {0, ord("/")} and name not in {b".", b".."}
)
xattrs = st.dictionaries(
    st.binary(min_size=1, max_size=5).filter(lambda name: 0 not in name), st.binary(max_size=40)
).map(lambda some: tuple(sorted((b"user." + name, value) for name, value in some.items())))
modes = st.integers(0, 0o7777)
times = st.integers(-(1 << 60), 1 << 60)


@st.composite
def file_bodies(draw: st.DrawFn) -> tuple[int, tuple[Extent, ...] | None, bytes]:
    """Size, extents and data: small ones, ones of many chunks, and sparse ones."""
    if draw(st.booleans()):
        data = draw(st.binary(max_size=200)) * draw(st.sampled_from([1, 1, 1, 5000]))
        return len(data), None, data
    extents, data, end = [], b"", 0
    for gap, piece in draw(
        st.lists(st.tuples(st.integers(1, 1 << 40), st.binary(min_size=1, max_size=50)), max_size=4)
    ):
        extents.append(Extent(end + gap, len(piece)))
        end += gap + len(piece)
        data += piece
    return end + draw(st.integers(0, 1 << 30)), tuple(extents), data


@st.composite
def trees(draw: st.DrawFn, tree: str = "workspace", depth: int = 3) -> list[tuple[Entry, bytes]]:
    """A tree in the order of its names, with all kinds of entries."""
    found: list[tuple[Entry, bytes]] = []
    linked: list[bytes] = []

    def folder(path: bytes, left: int) -> None:
        entry = Entry(tree, path, Kind.DIRECTORY, draw(modes), draw(times), xattrs=draw(xattrs))
        found.append((entry, b""))
        for name in sorted(draw(st.sets(names, max_size=4))):
            inside = path + b"/" + name if path else name
            kinds = ["file", "file", "symlink", *(["folder"] if left else []), *(["link"] if linked else [])]
            kind = draw(st.sampled_from(kinds))
            if kind == "folder":
                folder(inside, left - 1)
            elif kind == "symlink":
                target = draw(st.binary(min_size=1, max_size=30).filter(lambda text: 0 not in text))
                found.append((Entry(tree, inside, Kind.SYMLINK, 0o777, draw(times), target=target), b""))
            elif kind == "link":
                found.append((Entry(tree, inside, Kind.HARD_LINK, target=draw(st.sampled_from(linked))), b""))
            else:
                size, extents, data = draw(file_bodies())
                names_more = draw(st.booleans())
                entry = Entry(
                    tree, inside, Kind.FILE, draw(modes), draw(times), size, extents, b"", names_more, draw(xattrs)
                )
                found.append((entry, data))
                if names_more:
                    linked.append(inside)

    folder(b"", depth)
    return found
