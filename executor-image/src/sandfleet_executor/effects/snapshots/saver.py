"""Reads a session into a snapshot: variables, then one walk of the frozen workspace, then the data of its files."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from sandfleet_executor.core.packages.manifest import BadManifest
from sandfleet_executor.core.snapshots.entries import Entry, Kind, Totals, Tree, whole
from sandfleet_executor.core.snapshots.session import Found
from sandfleet_executor.core.suspension.record import ContextReport, KeptContext, bounded
from sandfleet_executor.effects.contexts.state_store import SNAPSHOT, no_space
from sandfleet_executor.effects.files.threads import FileThreads
from sandfleet_executor.effects.namespace.children import NamespaceError
from sandfleet_executor.effects.session.session import Session
from sandfleet_executor.effects.snapshots.ledger import Earlier, Ledger, tells_changes
from sandfleet_executor.effects.snapshots.scan import Scan
from sandfleet_executor.effects.snapshots.spool import PIECE_BYTES, Piece, Pieces, Spool, unnamed_file
from sandfleet_executor.effects.suspension.saving import keep_context
from sandfleet_executor.effects.suspension.suspender import Suspender, check_saved

# Of all contexts together, in seconds; a context in which a cell runs that long is left out.
SAVE_SECONDS = 60.0
# How long the processes stand still at most, in seconds, and how long of that small files are read.
FREEZE_SECONDS, READ_SECONDS = 5.0, 1.0
# Listed of a session.
MAX_PACKAGES, MAX_RUNNING = 2000, 100

# The reason of what is not the sandbox's own.
HOST_FOLDER = "HostFolder"


@dataclass
class Walk:
    """One walk and how it went. `began` on the monotonic clock, `frozen` in seconds."""

    scan: Scan
    spool: Spool
    # For the next save; None: the file system does not tell what has changed.
    ledger: Ledger | None = None
    still: bool = False
    began: float = 0.0
    frozen: float = 0.0

    def may_read(self) -> bool:
        return self.still and time.monotonic() - self.began < READ_SECONDS


@dataclass
class Saving:
    """A snapshot that is being read. `found` is complete after the last piece."""

    totals: Totals
    found: Found
    pieces: AsyncIterator[Piece] = field(repr=False)


@dataclass(frozen=True)
class Contexts:
    """The contexts of the session, and the files of their variables."""

    kept: tuple[KeptContext, ...] = ()
    reports: tuple[ContextReport, ...] = ()
    files: tuple[tuple[Entry, int], ...] = ()

    def close(self) -> None:
        for _, fd in self.files:
            os.close(fd)


class Saver:
    """`workspace_fd` stays its owner's; `folder` is the executor's own."""

    def __init__(
        self, session: Session, suspender: Suspender, workspace_fd: int, threads: FileThreads, folder: Path
    ) -> None:
        self._session = session
        self._suspender = suspender
        self._workspace_fd = workspace_fd
        self._threads = threads
        self._folder = folder
        # Of the last save: what the next one need not read. None: there was none, or the file system does not tell.
        self._ledger: Ledger | None = None
        self._tells_changes: bool | None = None

    @contextlib.asynccontextmanager
    async def save_last(self, *, force: bool, unused: bool = False, base: str = "") -> AsyncIterator[Saving]:
        """Of a session that is to end: it is held meanwhile, and after it. Raises InUseError and NotSavedError, too."""
        async with (
            self._suspender.held(force=force, unused=unused) as (executions, connections),
            self.save(base=base) as saving,
        ):
            if not force:
                check_saved(saving.found.reports)
            yield replace(saving, found=replace(saving.found, ended=executions, ended_connections=connections))

    def unhold(self) -> None:
        """What the last save has read could not be kept: the session goes on."""
        self._suspender.unhold()

    @contextlib.asynccontextmanager
    async def save(self, *, variables: bool = True, base: str = "") -> AsyncIterator[Saving]:
        """Nothing of it stays behind in the sandbox. `base`: an earlier save whose data the caller has.

        Raises TooManyEntries, NoSpaceError, OSError and NamespaceError.
        """
        running = tuple(one.id for one in self._session.executions.live()[:MAX_RUNNING])
        contexts = await self._save_contexts() if variables else Contexts()
        try:
            packages = await self._packages()
            python, tmp_bytes = await self._looks()
            record = self._suspender.record(contexts.kept)
            async with self._next_ledger() as ledger, self._walked(ledger, base) as (walk, pieces):
                for mount in self._session.mounts.of_machine():
                    walk.scan.unsaved.add(mount.target.encode(), HOST_FOLDER)
                head = self._session.journal.head
                found = Found(
                    record=record,
                    reports=contexts.reports,
                    contract=self._session.config.contract,
                    limits=self._session.limits,
                    created=time.time_ns(),
                    journal=(head.number, head.hash),
                    python=python,
                    packages=packages,
                    running=running,
                    frozen_seconds=walk.frozen,
                    walk_seconds=walk.scan.seconds,
                    tmp_bytes=tmp_bytes,
                    unsaved=walk.scan.unsaved,
                    save_id=walk.ledger.save_id if walk.ledger else "",
                )
                saved = [entry for entry, _ in contexts.files]
                totals = Totals(
                    walk.scan.totals.entries + len(saved) + 1,
                    walk.scan.totals.bytes + sum(entry.size for entry in saved),
                )
                yield Saving(totals, found, self._all_pieces(contexts, pieces))
        finally:
            contexts.close()
            await asyncio.to_thread(self._session.states.delete_all, SNAPSHOT)

    async def _save_contexts(self) -> Contexts:
        give_up = asyncio.get_running_loop().time() + SAVE_SECONDS
        kept: list[KeptContext] = []
        reports: list[ContextReport] = []
        for context in self._session.contexts.all():
            left = max(1.0, give_up - asyncio.get_running_loop().time())
            one, report = await keep_context(self._session, context, SNAPSHOT, left)
            kept.append(one)
            reports.append(report)
        kept.sort(key=lambda one: one.id.encode())
        files = await asyncio.to_thread(self._open_states, [one.id for one in kept if one.saved])
        return Contexts(tuple(kept), bounded(reports), files)

    def _open_states(self, names: list[str]) -> tuple[tuple[Entry, int], ...]:
        found = []
        for name in names:
            fd = self._session.states.file(SNAPSHOT, name)
            size = os.fstat(fd).st_size
            entry = Entry(Tree.VARIABLES, name.encode(), Kind.FILE, 0o600, size=size, extents=whole(size))
            found.append((entry, fd))
        return tuple(found)

    async def _packages(self) -> tuple[tuple[str, str, str], ...]:
        """None where they cannot be looked at: a snapshot does not fail for it."""
        try:
            found = await self._session.installed()
        except (BadManifest, NamespaceError):
            return ()
        return tuple((one.name, one.version, one.origin) for one in found.packages[:MAX_PACKAGES])

    async def _looks(self) -> tuple[str, int]:
        """The version of Python, and what /tmp holds."""
        namespace = await self._session.namespaces.get()
        try:
            return namespace.hello.python, int((await namespace.usage())["tmp"])
        except NamespaceError:
            return namespace.hello.python, 0

    @contextlib.asynccontextmanager
    async def _walked(self, ledger: Ledger | None, base: str) -> AsyncIterator[tuple[Walk, Pieces]]:
        before = Earlier(self._ledger if self._ledger is not None and self._ledger.save_id == base else None)
        with no_space("of the walk"):
            spool = Spool(await asyncio.to_thread(unnamed_file, self._folder))
        scan = Scan(spool.put, lambda: walk.may_read(), before.has)  # noqa: PLW0108 - made in the next line
        walk = Walk(scan, spool, ledger)
        directory = os.dup(self._workspace_fd)

        def work() -> Pieces:
            walk.began, walked_ns = time.monotonic(), time.time_ns()
            try:
                walk.scan.run(os.dup(directory))
                return Pieces(spool, os.dup(directory), walk.scan.unsaved, ledger, walked_ns)
            except BaseException:  # Whatever ended the walk, the spool has no other owner.
                spool.close()
                raise

        async with contextlib.AsyncExitStack() as stack:
            try:
                async with self._frozen(walk):
                    pieces = await stack.enter_async_context(
                        self._threads.hold(lambda: os.close(directory), work, Pieces.close)
                    )
            finally:
                walk.scan.stopped = True
            yield walk, pieces

    @contextlib.asynccontextmanager
    async def _next_ledger(self) -> AsyncIterator[Ledger | None]:
        """It takes the place of the last one when all was read: then the next save builds on this one."""
        if self._tells_changes is None:
            self._tells_changes = await self._threads.run(tells_changes, self._workspace_fd)
        with no_space("of the walk"):
            ledger = Ledger(await asyncio.to_thread(unnamed_file, self._folder)) if self._tells_changes else None
        try:
            yield ledger
        except BaseException:  # A caller that leaves, too.
            if ledger is not None:
                ledger.close()
            raise
        if self._ledger is not None:
            self._ledger.close()
        self._ledger = ledger

    @contextlib.asynccontextmanager
    async def _frozen(self, walk: Walk) -> AsyncIterator[None]:
        """The processes stand still meanwhile, where they can be frozen."""
        namespace = await self._session.namespaces.get()
        began = time.monotonic()
        async with namespace.stand_still(FREEZE_SECONDS) as walk.still:
            try:
                yield
            finally:
                walk.frozen = min(time.monotonic() - began, FREEZE_SECONDS) if walk.still else 0.0

    async def _all_pieces(self, contexts: Contexts, pieces: Pieces) -> AsyncIterator[Piece]:
        """The trees in their order."""
        yield [Entry(Tree.VARIABLES, b"", Kind.DIRECTORY, 0o700), *(entry for entry, _ in contexts.files)], b""
        for entry, fd in contexts.files:
            for at in range(0, entry.size, PIECE_BYTES):
                yield [], await asyncio.to_thread(os.pread, fd, min(PIECE_BYTES, entry.size - at), at)
        with no_space("of the walk"):
            while (piece := await self._threads.run(pieces.next)) is not None:
                yield piece
