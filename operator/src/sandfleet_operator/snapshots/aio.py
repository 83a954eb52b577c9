"""The store for code on an event loop: each call runs in a thread, one at a time for each writer and reader."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from sandfleet_rules.backoff import Backoff

from sandfleet_operator import malloc
from sandfleet_operator.cluster.lanes import NoTurnError, Turns
from sandfleet_operator.plan.lanes import Bounds, Party
from sandfleet_operator.plan.snapshots.collection import Collected
from sandfleet_operator.plan.snapshots.entries import Entry, RestoreLimits
from sandfleet_operator.plan.snapshots.errors import Reason, SnapshotError
from sandfleet_operator.plan.snapshots.manifest import About, Manifest
from sandfleet_operator.snapshots import bundle
from sandfleet_operator.snapshots.keys import Keys
from sandfleet_operator.snapshots.reader import Part, Reader
from sandfleet_operator.snapshots.store import SnapshotStore
from sandfleet_operator.snapshots.store import open_store as open_blocking
from sandfleet_operator.snapshots.writer import Progress, Writer

P = ParamSpec("P")
T = TypeVar("T")

# Transfers that wait, and for how long in seconds: less than the token of one is good for.
MOST_WAITING, TURN_SECONDS = 2_000, 1800.0
# Of a sandbox that has stalled twice, until its next transfer begins.
PAUSES = Backoff(first=60.0, longest=1800.0)
# How many heaps the threads share.
HEAPS = 2


class AsyncSnapshots:
    """As SnapshotStore, and as it says there.

    `most`: saves, and as many restores, that are worked on at once; `share`: of them, those of one tenant. So a restore
    waits for no save, and no tenant for the sandboxes of another. A sandbox that stalls twice is paused.
    """

    def __init__(self, store: SnapshotStore, most: int = 4, share: int | None = None) -> None:
        self.blocking = store
        # Own ones: those of the event loop are for short work.
        self._threads = _Threads(4 * most + 2)
        share = most if share is None else share
        bounds = Bounds(total=most, per_namespace=share, per_node=share, waiting=MOST_WAITING, pauses=PAUSES)
        self._saves, self._restores = Turns(bounds), Turns(bounds)
        # Each keeps a thread from its beginning to its end.
        self._files = Turns(Bounds(total=2, per_namespace=1, per_node=1, waiting=MOST_WAITING))

    @asynccontextmanager
    async def writer(
        self, tenant: str, about: About, snapshot_id: str | None = None, *, base: str = "", sandbox: str = ""
    ) -> AsyncIterator["AsyncWriter"]:
        """Leaving it without `commit` leaves no snapshot; with TimeoutError, `sandbox` has stalled.

        Raises SnapshotError.
        """
        async with _turn(self._saves, tenant, sandbox):
            writer = await self._threads.run(self.blocking.writer, tenant, about, snapshot_id, base=base)
            face = AsyncWriter(writer, self._threads)
            try:
                yield face
            finally:
                await asyncio.shield(face.abort())

    @asynccontextmanager
    async def reader(
        self,
        tenant: str,
        snapshot_id: str,
        *,
        digest: str | None = None,
        limits: RestoreLimits | None = None,
        sandbox: str = "",
    ) -> AsyncIterator["AsyncReader"]:
        """Manifest and entries are checked when it is entered. Left with TimeoutError, `sandbox` has stalled.

        Raises SnapshotError.
        """
        async with _turn(self._restores, tenant, sandbox):
            reader = await self._threads.run(self.blocking.reader, tenant, snapshot_id, digest=digest, limits=limits)
            face = AsyncReader(reader, self._threads)
            try:
                yield face
            finally:
                await asyncio.shield(face.close())

    async def get(self, tenant: str, snapshot_id: str, *, digest: str | None = None) -> Manifest:
        return await self._threads.run(self.blocking.get, tenant, snapshot_id, digest=digest)

    async def list(self, tenant: str, unread: list[str] | None = None) -> Sequence[Manifest]:
        return await self._threads.run(lambda: tuple(self.blocking.list(tenant, unread)))

    async def find(self, tenant: str, name: str, sandbox: str = "") -> Manifest | None:
        return await self._threads.run(self.blocking.find, tenant, name, sandbox)

    async def named(self, tenant: str, name: str) -> Sequence[Manifest]:
        return await self._threads.run(self.blocking.named, tenant, name)

    async def own(self, cluster: str) -> None:
        await self._threads.run(self.blocking.own, cluster)

    async def delete(self, tenant: str, snapshot_id: str, *, now: bool = False, by: str = "caller") -> bool:
        return await self._threads.run(self.blocking.delete, tenant, snapshot_id, now=now, by=by)

    async def undelete(self, tenant: str, snapshot_id: str, *, by: str = "") -> Manifest:
        return await self._threads.run(self.blocking.undelete, tenant, snapshot_id, by=by)

    async def deleted(self, tenant: str) -> Sequence[Manifest]:
        return await self._threads.run(lambda: tuple(self.blocking.deleted(tenant)))

    async def retain(self, tenant: str) -> Sequence[str]:
        return await self._threads.run(self.blocking.retain, tenant)

    async def collect(self, tenant: str, *, dry_run: bool = False) -> Collected:
        return await self._threads.run(self.blocking.collect, tenant, dry_run=dry_run)

    async def export(self, tenant: str, snapshot_id: str, path: Path) -> Manifest:
        async with _turn(self._files, tenant):
            return await self._threads.run(self.blocking.export, tenant, snapshot_id, path)

    async def requested(self, path: Path) -> Mapping[str, Any]:
        return await self._threads.run(bundle.requested, path)

    async def import_file(self, tenant: str, path: Path, about: About) -> Manifest:
        async with _turn(self._files, tenant):
            return await self._threads.run(self.blocking.import_file, tenant, path, about)

    async def close(self) -> None:
        await self._threads.run(self.blocking.close)
        self._threads.close()


class AsyncWriter:
    """One save. A call that is cancelled goes on in its thread; the next one waits for it."""

    def __init__(self, writer: Writer, threads: "_Threads") -> None:
        self._writer, self._threads = writer, threads
        self._lock = threading.Lock()

    @property
    def progress(self) -> Progress:
        return self._writer.progress

    @property
    def base_facts(self) -> bytes | None:
        return self._writer.base_facts

    async def add(
        self, entries: Sequence[Entry], data: bytes | memoryview = b"", known: Collection[int] = frozenset()
    ) -> None:
        """Returns when more may come: the store is not ahead of its threads. Raises SnapshotError."""
        await self._threads.run(_locked(self._lock, self._writer.add), entries, data, known)

    async def commit(self, facts: bytes = b"") -> Manifest:
        return await self._threads.run(_locked(self._lock, self._writer.commit), facts)

    async def abort(self) -> None:
        await self._threads.run(_locked(self._lock, self._writer.abort))


class AsyncReader:
    """One restore: iterate over it once."""

    def __init__(self, reader: Reader, threads: "_Threads") -> None:
        self._reader, self._threads = reader, threads
        self._parts: Iterator[Part] = reader.parts()
        self._lock = threading.Lock()

    @property
    def manifest(self) -> Manifest:
        return self._reader.manifest

    @property
    def facts(self) -> bytes:
        return self._reader.facts

    def __aiter__(self) -> "AsyncReader":
        return self

    async def __anext__(self) -> Part:
        part = await self._threads.run(_locked(self._lock, self._next))
        if part is None:
            raise StopAsyncIteration
        return part

    def _next(self) -> Part | None:
        return next(self._parts, None)

    async def close(self) -> None:
        await self._threads.run(_locked(self._lock, self._end))

    def _end(self) -> None:
        self._parts = iter(())


def share_heaps() -> None:
    """To be called before threads begin: each would have a heap of its own, which keeps the pieces that it has freed.

    The resident memory of a save of 4 GB was 213 MiB with up to eight heaps for each core, 131 with two, in the
    same time.
    """
    malloc.choose(arena_max=HEAPS)


def open_store(url: str, keys: Keys, most: int = 4, share: int | None = None) -> AsyncSnapshots:
    """As store.open_store; returns at once. Raises SnapshotError."""
    return AsyncSnapshots(open_blocking(url, keys), most, share)


@asynccontextmanager
async def _turn(turns: Turns, tenant: str, sandbox: str = "") -> AsyncIterator[None]:
    """Raises SnapshotError where there is none in time."""
    try:
        async with turns.turn(Party(tenant, sandbox), TURN_SECONDS):
            yield
    except NoTurnError as error:
        raise SnapshotError(Reason.UNAVAILABLE, f"cannot begin: {error}") from error


class _Threads:
    def __init__(self, most: int) -> None:
        self._executor = ThreadPoolExecutor(most, "snapshot")

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, partial(work, *args, **kwargs))

    def close(self) -> None:
        self._executor.shutdown(wait=False)


def _locked(lock: threading.Lock, work: Callable[P, T]) -> Callable[P, T]:
    def locked(*args: P.args, **kwargs: P.kwargs) -> T:
        with lock:
            return work(*args, **kwargs)

    return locked
