"""The sandbox as a whole: its namespace, its contexts and commands, its lease."""

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from sandfleet_executor.core.config import ExecutorConfig
from sandfleet_executor.core.egress.variables import JAVA, trusting, variables
from sandfleet_executor.core.errors import (
    BusyError,
    FullError,
    MismatchError,
    NotFoundError,
    PreemptingError,
    RestoringError,
    SuspendingError,
)
from sandfleet_executor.core.executions.events import Notice
from sandfleet_executor.core.executions.outcomes import Cause
from sandfleet_executor.core.files.changes import Mark
from sandfleet_executor.core.journal import transcript
from sandfleet_executor.core.limits import FORK_BYTES, Limits
from sandfleet_executor.core.packages import manifest
from sandfleet_executor.core.packages.manifest import Manifest
from sandfleet_executor.core.requests import DEFAULT_CONTEXT
from sandfleet_executor.core.services import parse
from sandfleet_executor.core.session import bwrap
from sandfleet_executor.core.session.expiry import Expiry, Lease, Tenancy
from sandfleet_executor.core.tools.values import Caller
from sandfleet_executor.effects.commands import helper_programs
from sandfleet_executor.effects.commands.command import Command, CommandRequest
from sandfleet_executor.effects.commands.helper_programs import Said
from sandfleet_executor.effects.contexts.interpreter_slot import ContextServices, ContextSpec
from sandfleet_executor.effects.contexts.queue import CellRequest
from sandfleet_executor.effects.contexts.registry import Contexts
from sandfleet_executor.effects.contexts.state_store import StateStore
from sandfleet_executor.effects.egress.way_out import WayOut
from sandfleet_executor.effects.executions.execution import Execution
from sandfleet_executor.effects.executions.meter import Ledger, SessionServices
from sandfleet_executor.effects.executions.registry import Executions
from sandfleet_executor.effects.files.inotify import WorkspaceWatcher
from sandfleet_executor.effects.files.threads import FileThreads
from sandfleet_executor.effects.files.walk import open_to_owner
from sandfleet_executor.effects.journal.journal import Journal
from sandfleet_executor.effects.namespace.cgroup import Groups
from sandfleet_executor.effects.namespace.keeper import Making, NamespaceKeeper
from sandfleet_executor.effects.namespace.launch import host_of, session_environment
from sandfleet_executor.effects.namespace.namespace import Namespace
from sandfleet_executor.effects.review.reviews import Reviews
from sandfleet_executor.effects.services.manager import Services, ServiceSession
from sandfleet_executor.effects.session import disk
from sandfleet_executor.effects.session.mounts import Mounts
from sandfleet_executor.effects.session.notices import Notices
from sandfleet_executor.effects.session.packages import Packages
from sandfleet_executor.effects.session.preload import Preload
from sandfleet_executor.effects.tools.broker import ToolBroker

# The memory that a copy of a context takes at least: under gVisor, where forks are dear, and elsewhere.
LEAST_FORK_BYTES = FORK_BYTES if "gvisor" in os.uname().release else 4 << 20
# How long executions may take to end with the sandbox, in seconds.
END_SECONDS = 5.0
# How long a look at what is installed may take, in seconds.
LOOK_SECONDS = 15.0


@dataclass(frozen=True)
class Claim:
    """What a session asks of the sandbox that it is bound to."""

    session_id: str
    lease: Lease
    envs: dict[str, str]
    limits: Limits
    mounts: Mapping[str, str]
    # Its code may connect to hosts by name.
    egress: bool = False
    authority: bytes = b""


def begin_in(workspace_fd: int, watcher: WorkspaceWatcher) -> Mark:
    """A mark on the workspace before code runs in it, which may find it closed by code that ran before."""
    with suppress(OSError):
        open_to_owner(workspace_fd)
    return watcher.begin()


class Session:
    # What the claim asked for, over the variables of the template.
    given_envs: Mapping[str, str] = MappingProxyType({})

    def __init__(
        self,
        config: ExecutorConfig,
        groups: Groups,
        watcher: WorkspaceWatcher,
        executions: Executions,
        *,
        workspace_fd: int,
        threads: FileThreads,
        reviews: Reviews,
        journal: Journal,
    ) -> None:
        """Raises BadRequest for mounts that this machine has no place for."""
        self.config = config
        self.executions, self.reviews, self.journal = executions, reviews, journal
        self.limits, self.closed = fitting(config.limits), asyncio.Event()
        self.session_id, self.started = "", time.time()
        # No execution begins: the session is being suspended, and its time rests; or preempted; or restored.
        self.held = self.preempted = self.restoring = False
        # The machine does not change: looked at once, and not for every command.
        self._envs = bwrap.with_own(config.envs, session_environment(config))
        self.mounts = Mounts(config, host_of(config).prefixes, workspace_fd, threads)
        self._commands: dict[str, Command] = {}
        now = time.monotonic()
        self.tenancy = Tenancy(Lease(now + config.lease if config.lease else None, config.idle_timeout), now)
        self.ledger = Ledger(counts_writes=disk.counts_writes(config.workspace))
        self.preload = Preload(config.preload)
        self.tools = ToolBroker(brokered=config.brokered, put=journal.put, count=self.ledger.tallies.called)
        self.egress = WayOut(config.egress_socket, lambda: self.namespaces.tmp_fd())  # noqa: PLW0108  made of this
        self.namespaces = NamespaceKeeper(self._making(), groups, counts_writes=self.ledger.counts_writes)
        self.disk = disk.Disk(workspace_fd, lambda: int(self.limits.disk_bytes), self._disk_questions())
        self.packages = Packages(config.packages, config.packages_timeout, self._install, journal.put)
        # For the executor's own programs: they do not wait for packages.
        begin = partial(begin_in, workspace_fd, watcher)
        self._own_programs = SessionServices(self.namespaces.get, begin, watcher.since, self.ledger)
        self._notices = Notices(self.mounts.notices, self.packages.notices, self.preload.notices)
        waiting = replace(self._own_programs, settled=self.packages.settled, reviews=reviews)
        self._services = replace(waiting, notices=self._notices.take, tools=self.tools, contacts=self.egress.contacts)
        self.states = StateStore(Path(config.state_dir) if config.state_dir else None)
        self.contexts = Contexts(self._context_services(), self._default_context, self._check_room)
        self.services = Services(self._service_session(), parse.services(list(config.services), self.workdir))

    def _making(self) -> Making:
        listen = {"tools": self.tools.listen, "egress": self.egress.listen}
        return Making(self._config_now, self.mounts.open, self.preload.heard, listen, self.egress.renew)

    def tell(self, notice: Notice) -> None:
        """From now on each context is told this, once."""
        self._notices.add(notice)

    def _config_now(self) -> ExecutorConfig:
        return replace(self.config, limits=self.limits, preload=self.preload.status.wanted)

    def _disk_questions(self) -> disk.Questions:
        still = partial(self.namespaces.still, disk.STILL_SECONDS)
        return disk.Questions(self.namespaces.unlinked, still, self.ledger.written)

    def _context_services(self) -> ContextServices:
        return ContextServices(
            self._services,
            self.states,
            copied_bytes=lambda: self.config.rollback.most_bytes(self.limits),
            memory_bytes=lambda: self.limits.memory_bytes,
            lend=lambda asked, descriptor: self.contexts.lend(asked, descriptor),  # noqa: PLW0108  they are made of this
        )

    def _service_session(self) -> ServiceSession:
        return ServiceSession(
            self.namespaces.get,
            self.environment,
            lambda: self.limits.memory_bytes,
            lambda name: self.tools.environment(Caller(service=name)),
        )

    def _default_context(self) -> ContextSpec:
        return ContextSpec(DEFAULT_CONTEXT, self.workdir, self.environment({}))

    # The executor's own programs, with user code's rights: the folder of packages is the user's.

    async def _install(self, mode: str, wanted: str, seconds: float) -> Said:
        argv = helper_programs.program(self.config, helper_programs.INSTALL, mode, self._packages_folder, wanted)
        return await self._run_own(argv, "packages:install", seconds)

    async def installed(self) -> Manifest:
        """What is installed in the session. Raises BadManifest where a look at it fails."""
        requirements = self.config.packages
        argv = helper_programs.program(
            self.config, helper_programs.LOOK, self._packages_folder, json.dumps(list(requirements))
        )
        said = await self._run_own(argv, "environment:look", LOOK_SECONDS)
        if said.end.outcome != "ok":
            raise manifest.BadManifest(f"cannot look at what is installed: {said.end.message}")
        envs = self.environment({})
        return manifest.parse(said.out, {name: envs[name] for name in bwrap.FIXED if name in envs}, requirements)

    @property
    def _packages_folder(self) -> str:
        return f"{self.workdir}/{bwrap.PACKAGES}"

    async def _run_own(self, argv: list[str], name: str, seconds: float) -> Said:
        return await helper_programs.run(
            argv, self._own_programs, self.environment({}), self.limits, name=name, seconds=seconds
        )

    # Lease and idleness

    async def open(self, claim: Claim, prepare: Callable[[], Awaitable[None]]) -> Namespace:
        """Binds the sandbox to a session, or renews its lease.

        Raises MismatchError, RestoringError, NamespaceError and BadRequest.

        `prepare` is awaited before anything of the session begins.
        """
        if not self.session_id:
            await self.mounts.check(claim.mounts)
            if self.restoring:
                raise RestoringError(f"cannot open session {claim.session_id}: the sandbox is being filled")
        if self.session_id and self.session_id != claim.session_id:
            raise MismatchError(f"cannot open session {claim.session_id}: the sandbox belongs to another one")
        self.tenancy.lease = claim.lease
        self.touch(works=not self.session_id)
        if not self.session_id:
            before, self.limits = self.limits, fitting(claim.limits)
            self.session_id = claim.session_id
            # In a pod the egress process knows what the session may reach, and says why not.
            if self.config.egress_address or (claim.egress and self.config.egress_socket):
                self.egress.open(claim.session_id, claim.authority)
                self._envs |= variables(self._envs.get(JAVA, "")) | (trusting() if claim.authority else {})
            else:
                self.egress.shut()
            # Before the first record, which says of them only digests.
            self.given_envs, self._envs = claim.envs, self.environment(claim.envs)
            changed = self.mounts.add(claim.mounts) or self.limits != before
            self.journal.open(claim.session_id)
            if changed:
                # No user code has run yet: the namespace is made again, with the lower limits and the mounts.
                await self.namespaces.close()
        namespace = await self.namespaces.get()
        await prepare()
        self.packages.begin(self.services.hold, self.services.release)
        self.services.begin()
        return namespace

    def touch(self, *, works: bool = True) -> None:
        """A caller has used the sandbox; `works`: not only to keep it."""
        self.tenancy.touch(time.monotonic(), works=works)

    def expired(self) -> Expiry | None:
        """Why the sandbox's time is over; None while there is time, or while it is held."""
        if self.held:
            return None
        working = self.executions.running > 0 or self.restoring
        in_use = working or self.packages.installing or bool(self.reviews.pending())
        return self.tenancy.expired(time.monotonic(), in_use=in_use)

    # Executions

    def register(self, kind: int, execution_id: str, fingerprint: bytes, output_limit: int) -> Execution:
        """A new execution, of an id that is new. Raises SuspendingError, BusyError and FullError."""
        if self.held:
            kind_of, why = (PreemptingError, "preempted") if self.preempted else (SuspendingError, "suspended")
            raise kind_of(f"cannot start execution {execution_id}: the sandbox is being {why}")
        if self.restoring:
            raise RestoringError(f"cannot start execution {execution_id}: a snapshot is being restored")
        if self.executions.running >= self.limits.executions:
            raise BusyError(f"cannot start execution {execution_id}: {self.limits.executions} are running or waiting")
        if self.disk.is_hopeless:
            why = "the workspace is far beyond its limit: remove files first, over the API"
            raise FullError(f"cannot start execution {execution_id}: {why}")
        return self.executions.begin(kind, execution_id, fingerprint, output_limit)

    def execute(self, context_id: str, execution: Callable[[], Execution], request: CellRequest) -> Execution:
        """Runs a cell in the background. Raises NotFoundError, BusyError and StateError."""
        context = self.contexts.find_or_default(context_id, request.persistence)
        made = execution()
        made.recording.note(
            **transcript.cell_asked(
                request.code,
                context_id,
                context.spec.language,
                request.envs,
                request.timeout,
                on_failure=request.rolls_back,
            )
        )
        self.touch()
        self.executions.run(made, context.run(made, request))
        return made

    def start_command(self, execution: Execution, request: CommandRequest) -> None:
        """Runs a command in the background."""
        command = Command(execution, request, self._services)
        self._commands[execution.id] = command
        self.touch()
        task = self.executions.run(execution, command.run())
        task.add_done_callback(lambda _: self._commands.pop(execution.id, None))

    def command(self, execution_id: str) -> Command:
        """A running command. Raises NotFoundError."""
        if command := self._commands.get(execution_id):
            return command
        raise NotFoundError(f"cannot find command {execution_id}: it is not running")

    def commands(self) -> list[Command]:
        return list(self._commands.values())

    async def delete_context(self, context_id: str) -> None:
        self._notices.forget(context_id)
        await self.contexts.delete(context_id)

    def environment(self, envs: dict[str, str]) -> dict[str, str]:
        """The variables that a context or command starts with."""
        return bwrap.with_own(envs, self._envs)

    @property
    def workdir(self) -> str:
        """The workspace as user code sees it."""
        return bwrap.WORKSPACE if self.config.isolation == "namespace" else self.config.workspace

    async def _check_room(self, count: int) -> None:
        """Raises BusyError where so many copies of a context would not fit before anything is written to them."""
        used = await (await self.namespaces.get()).usage()
        if used["memory"] + used["tmp"] + count * LEAST_FORK_BYTES > self.limits.memory_bytes:
            raise BusyError(f"cannot fork {count} contexts: the memory that is left has no room for them")

    async def close(self, why: Cause = Cause.CLOSE) -> None:
        """Ends everything in the sandbox. The files stay."""
        self.namespaces.refuse()
        self.packages.close()
        self.executions.stop_all(why)
        await self.contexts.save_last()
        await self.services.close()
        self.tools.close()
        self.egress.shut()
        await self.namespaces.close()
        await self.services.end()
        await self.executions.ended(END_SECONDS)
        self.journal.put("closed", {"reason": why.name.lower()})
        self.closed.set()


def fitting(limits: Limits) -> Limits:
    """What of them holds on this machine."""
    return limits.fitting_gvisor() if "gvisor" in os.uname().release else limits
