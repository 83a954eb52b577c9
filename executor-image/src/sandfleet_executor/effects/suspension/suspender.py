"""Suspends a session: keeps what would end with its processes, and brings it back in the next executor."""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sandfleet_executor.core.contexts.states import Persistence
from sandfleet_executor.core.errors import BadRequest, BusyError, ExistsError, SuspendingError
from sandfleet_executor.core.executions.outcomes import Cause
from sandfleet_executor.core.services.plan import Service, TakenError, TooManyError
from sandfleet_executor.core.services.spec import ServiceSpec
from sandfleet_executor.core.suspension import record as records
from sandfleet_executor.core.suspension.record import (
    MAX_TRIES,
    BadRecord,
    ContextReport,
    InUseError,
    KeptContext,
    NotSavedError,
    Record,
    Resumption,
    Suspension,
)
from sandfleet_executor.effects.contexts.context import Context
from sandfleet_executor.effects.contexts.interpreter_slot import ContextSpec
from sandfleet_executor.effects.contexts.state_store import SUSPENDED, NothingToSaveError, StateError, no_space
from sandfleet_executor.effects.namespace.children import NamespaceError
from sandfleet_executor.effects.session.session import Session
from sandfleet_executor.effects.suspension.saving import NOT_SUPPORTED, keep_context
from sandfleet_executor.worker.languages import find

RECORD, UNFINISHED = "suspended.json", "suspended.tmp"
# All contexts together may take so long to be saved, in seconds.
SAVE_SECONDS = 60.0
# How long a suspended sandbox waits for its end before it goes on, in seconds.
HOLD_SECONDS = 120.0
# What a running execution has to end by an interrupt, which keeps the variables, in seconds; and by force after that.
INTERRUPT_SECONDS, KILL_SECONDS = 2.0, 5.0
# Of executions that a message names.
NAMED = 3
NOT_STARTED = "NotStarted"
# A context without an interpreter has lost its variables before, and has told so.
HARMLESS = frozenset({NOT_SUPPORTED, NothingToSaveError.reason})

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Codec:
    """Declared services as bytes, and back. `decode` raises BadRequest."""

    encode: Callable[[ServiceSpec], bytes]
    decode: Callable[[bytes], ServiceSpec]


class Suspender:
    """`folder` outlives the executor; None: nothing does. `connections` counts open connections to ports."""

    def __init__(self, session: Session, folder: Path | None, connections: Callable[[], int], services: Codec) -> None:
        self._session = session
        self._folder = folder
        self._connections = connections
        self._codec = services
        self._keeping: asyncio.Task[Suspension] | None = None
        self._thaw: asyncio.TimerHandle | None = None
        self._beginning: asyncio.Task[None] | None = None
        self._resuming: asyncio.Task[Resumption] | None = None

    # The end of this executor's part

    async def suspend(self, *, force: bool, unused: bool = False) -> Suspension:
        """Keeps what can be kept, and holds the session. Raises InUseError, NotSavedError and StateError.

        `unused`: only a session without a running service, too.
        """
        if self._keeping is None:
            if not force:
                self._check_unused(services=unused)
            self._hold()
            self._session.preempted = unused
            self._keeping = asyncio.create_task(self._keep(force=force))
        return await asyncio.shield(self._keeping)

    @contextlib.asynccontextmanager
    async def held(self, *, force: bool, unused: bool = False) -> AsyncIterator[tuple[tuple[str, ...], int]]:
        """Holds the session for its last save, and for its end; what was ended for it: executions and connections.

        `unused`: only a session without a running service, too. If the save fails, the session goes on. Raises
        InUseError and SuspendingError.
        """
        if self._keeping is not None:
            raise SuspendingError("cannot save: the sandbox is being suspended")
        if not force:
            self._check_unused(services=unused)
        self._hold()
        self._session.preempted = unused
        try:
            ended, connections = await self._end_executions(), self._connections()
            await self.resumed()
            yield ended, connections
        except BaseException:  # A cancellation too: the session goes on.
            self._go_on()
            raise
        self._thaw = asyncio.get_running_loop().call_later(HOLD_SECONDS, self._go_on)

    def unhold(self) -> None:
        """Its last save could not be kept."""
        if self._keeping is None and self._session.held:
            self._go_on()

    def _hold(self) -> None:
        self._session.held = True
        if self._thaw is not None:
            self._thaw.cancel()

    def idle(self) -> float | None:
        """Seconds since a caller has worked with the sandbox; None while something in it does."""
        try:
            self._check_unused(services=True)
        except InUseError:
            return None
        return self._session.tenancy.idle(time.monotonic())

    def _check_unused(self, *, services: bool) -> None:
        if running := [one.id for one in self._session.executions.live()]:
            more = f" and {len(running) - NAMED} more" if len(running) > NAMED else ""
            raise InUseError("ExecutionRunning", f"{', '.join(running[:NAMED])}{more} is running or waiting")
        if self._session.packages.installing:
            raise InUseError("PackagesInstalling", "the packages of its template are being installed")
        if count := self._connections():
            raise InUseError("ConnectionOpen", f"{count} connections to its ports are open")
        if services and (wanted := [one.name for one in self._session.services.all() if one.runtime.wanted]):
            raise InUseError("ServiceRunning", f"service {wanted[0]} is running")

    async def _keep(self, *, force: bool) -> Suspension:
        try:
            return await self._kept(force=force)
        except BaseException:  # A cancellation too: the session goes on.
            self._go_on()
            raise

    async def _kept(self, *, force: bool) -> Suspension:
        session = self._session
        ended, connections = await self._end_executions(), self._connections()
        await self.resumed()
        give_up = asyncio.get_running_loop().time() + SAVE_SECONDS
        found = [await self._keep_context(one, give_up) for one in session.contexts.all()]
        if not force:
            check_saved([report for _, report in found])
        services = session.services.all()
        await asyncio.to_thread(self._write, self.record([kept for kept, _ in found]))
        self._thaw = asyncio.get_running_loop().call_later(HOLD_SECONDS, self._go_on)
        return Suspension(
            contexts=records.bounded([report for _, report in found]),
            services=tuple(one.name for one in services if one.runtime.wanted and not one.removed),
            ended_executions=ended,
            ended_connections=connections,
            tmp_bytes=await self._tmp_bytes(),
        )

    def record(self, contexts: Sequence[KeptContext]) -> Record:
        """Of the session as it is now, with these contexts."""
        services = self._session.services.all()
        return Record(
            session_id=self._session.session_id,
            contexts=tuple(contexts),
            services=tuple(self._codec.encode(one.spec) for one in services if _is_declared(one)),
            stopped=tuple(one.name for one in services if not one.runtime.wanted),
        )

    async def _end_executions(self) -> tuple[str, ...]:
        """Ends those that run; an interrupt keeps the variables of their contexts."""
        running = self._session.executions.live()
        for one in running:
            one.stop(Cause.INTERRUPT, INTERRUPT_SECONDS)
        await self._session.executions.ended(INTERRUPT_SECONDS + KILL_SECONDS)
        return tuple(one.id for one in running)

    async def _keep_context(self, context: Context, give_up: float) -> tuple[KeptContext, ContextReport]:
        left = max(1.0, give_up - asyncio.get_running_loop().time())
        return await keep_context(self._session, context, SUSPENDED, left)

    async def _tmp_bytes(self) -> int:
        try:
            return int((await (await self._session.namespaces.get()).usage())["tmp"])
        except NamespaceError:
            return 0

    def _go_on(self) -> None:
        """The session was not ended, or could not be kept: it goes on as if it had not been asked."""
        self._session.held = self._session.preempted = False
        self._keeping = None
        if self._thaw is not None:
            self._thaw.cancel()
        asyncio.get_running_loop().run_in_executor(None, self._forget)

    # The beginning of the next one's

    async def begin(self) -> None:
        """At the beginning of a session, once: what a suspension of it has kept begins to come back."""
        if self._beginning is None:
            self._beginning = asyncio.create_task(self._begin())
        await asyncio.shield(self._beginning)

    async def _begin(self) -> None:
        record = await asyncio.to_thread(self._read)
        if record is None:
            return
        own = self._session.session_id
        if not record.is_of(own) or record.tries >= MAX_TRIES:
            # Of another session of the workspace; or all who tried have ended at it.
            await asyncio.to_thread(self._forget)
            return
        if record.snapshot:
            self._session.journal.put("restored", {"session": own, "contexts": len(record.contexts)})
        with contextlib.suppress(StateError):
            # From now on it is of this session alone.
            mine = replace(record, session_id=own, snapshot="", tries=record.tries + 1)
            await asyncio.to_thread(self._write, mine)
        # Before any cell can be asked for: those that come wait for their context.
        contexts = [(one, self._again(one)) for one in record.contexts]
        services = self._declare(record)
        self._resuming = asyncio.create_task(self._bring_back(contexts, services))

    def check(self, record: Record) -> None:
        """Raises BadRequest where services of another executor's record cannot be declared."""
        for one in record.services:
            self._codec.decode(one)

    async def prepared(self) -> str:
        """The snapshot that the sandbox was filled with, while it is warm; empty: none."""
        record = None if self._session.session_id else await asyncio.to_thread(self._read)
        return record.snapshot if record is not None else ""

    @property
    def lasts(self) -> bool:
        """Whether what it keeps outlives the executor."""
        return self._folder is not None

    async def take_on(self, record: Record) -> None:
        """Brings back what a snapshot has, in a session that has begun and has no contexts; `keep` has its record."""
        await self.resumed()
        contexts = [(one, self._again(one)) for one in record.contexts]
        try:
            specs = [self._codec.decode(one) for one in record.services]
            self._session.services.apply(specs, keep_others=False, stopped=record.stopped)
        except (BadRequest, TakenError, TooManyError, NamespaceError, ValueError) as error:
            _log.warning("cannot declare the services of the snapshot: %s", error)
        services = tuple(one.name for one in self._session.services.all() if one.runtime.wanted and not one.removed)
        self._resuming = asyncio.create_task(self._bring_back(contexts, services))

    async def resumed(self) -> Resumption | None:
        """What has come back, when that is done; None where nothing was kept."""
        return await asyncio.shield(self._resuming) if self._resuming else None

    def _again(self, kept: KeptContext) -> Context | None:
        session = self._session
        if find(kept.language) is None:
            return None
        persistence = Persistence(kept.autosave, resume=kept.autosave is not None, kept=kept.saved)
        spec = ContextSpec(kept.id, kept.cwd, session.environment(dict(kept.envs)), kept.language, persistence)
        try:
            return session.contexts.keep(spec)
        except (ExistsError, BusyError, StateError) as error:
            _log.warning("cannot bring back context %s: %s", kept.id, error)
            return None

    def _declare(self, record: Record) -> tuple[str, ...]:
        """Declares the services again, and says which are to run."""
        services = self._session.services
        try:
            services.resume([self._codec.decode(one) for one in record.services], record.stopped)
        except (BadRequest, TakenError, TooManyError, NamespaceError, ValueError) as error:
            _log.warning("cannot declare the services of the suspended session: %s", error)
        return tuple(one.name for one in services.all() if one.runtime.wanted)

    async def _bring_back(
        self, contexts: list[tuple[KeptContext, Context | None]], services: tuple[str, ...]
    ) -> Resumption:
        reports = [await self._brought_back(kept, context) for kept, context in contexts]
        await asyncio.to_thread(self._forget)
        return Resumption(records.bounded(reports), services)

    async def _brought_back(self, kept: KeptContext, context: Context | None) -> ContextReport:
        report = ContextReport(kept.id, kept.language, reason=kept.reason, message=kept.message)
        if context is None:
            return replace(report, reason=NOT_STARTED, message="the context cannot be made again")
        try:
            await context.begin()
        except (NamespaceError, BadRequest) as error:
            return replace(report, reason=NOT_STARTED, message=str(error))
        back = context.resumed
        if back is None:
            return report if kept.reason else replace(report, reason="StateDamaged", message=context.variables.problem)
        return replace(
            report,
            variables=back.count,
            missing=(*back.manifest.unsaved, *back.unrestored),
            omitted=back.manifest.unsaved_omitted + back.unrestored_omitted,
        )

    # The record

    def _write(self, record: Record) -> None:
        """Raises StateError."""
        self.keep(record.encode())

    def keep(self, record: bytes) -> None:
        """Writes an encoded record. Blocks; raises StateError."""
        if self._folder is None:
            return
        unfinished = self._folder / UNFINISHED
        with no_space("of the suspension"):
            with unfinished.open("wb") as file:
                file.write(record)
                file.flush()
                os.fsync(file.fileno())
            unfinished.rename(self._folder / RECORD)

    def _read(self) -> Record | None:
        if self._folder is None:
            return None
        try:
            return records.decode((self._folder / RECORD).read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, BadRecord) as error:
            _log.warning("%s", error)
            self._forget()
            return None

    def _forget(self) -> None:
        """The record first: without it, the states mean nothing."""
        if self._folder is not None:
            with contextlib.suppress(OSError):
                (self._folder / RECORD).unlink(missing_ok=True)
                self._session.states.delete_all(SUSPENDED)


def _is_declared(one: Service) -> bool:
    """Whether a caller has declared it, and not withdrawn it."""
    return not one.from_template and not one.removed


def check_saved(reports: Sequence[ContextReport]) -> None:
    """Raises NotSavedError."""
    for one in reports:
        if one.reason and one.reason not in HARMLESS:
            why = f"the variables of context {one.id} cannot be saved: {one.message}"
            raise NotSavedError(f"cannot suspend the sandbox: {why}")
