"""The sandbox as a whole: its namespace, its contexts and commands, its lease."""

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sandfleet_executor.core import autosave, bwrap
from sandfleet_executor.core.config import FORK_BYTES, ExecutorConfig, Limits
from sandfleet_executor.core.events import Notice
from sandfleet_executor.core.outcomes import Cause
from sandfleet_executor.core.requests import DEFAULT_CONTEXT, BadRequest
from sandfleet_executor.core.services import parse
from sandfleet_executor.effects import disk, errands, services
from sandfleet_executor.effects.accounting import Ledger, Surroundings
from sandfleet_executor.effects.cellrequest import NOTHING, CellRequest, Keeps
from sandfleet_executor.effects.children import NamespaceError
from sandfleet_executor.effects.commands import Command, CommandRequest
from sandfleet_executor.effects.contexts import Context
from sandfleet_executor.effects.errands import Said
from sandfleet_executor.effects.execution import Execution
from sandfleet_executor.effects.executions import Executions
from sandfleet_executor.effects.inotify import WorkspaceWatcher
from sandfleet_executor.effects.launch import THREADS, this_host
from sandfleet_executor.effects.namespace import Namespace
from sandfleet_executor.effects.packages import Packages
from sandfleet_executor.effects.statestore import NoStateDirError, StateStore
from sandfleet_executor.worker.languages import PYTHON

MAX_CONTEXTS = 64
# What a copy of a context takes at the least: where forks are dear, and elsewhere.
LEAST_FORK_BYTES = FORK_BYTES if "gvisor" in os.uname().release else 4 << 20


class NotFoundError(LookupError):
    """No such context, or no such command is running."""


class ExistsError(ValueError):
    """The id is taken."""


class BusyError(RuntimeError):
    """A count is at its limit; it may go on later."""


class FullError(RuntimeError):
    """The workspace is so far beyond its limit that nothing may run."""


class MismatchError(RuntimeError):
    """The sandbox belongs to another session."""


@dataclass(frozen=True)
class Lease:
    """Ends of the sandbox that come by themselves, in seconds of the monotonic clock and of idleness."""

    until: float | None = None
    idle_timeout: float | None = None


class Session:
    def __init__(
        self, config: ExecutorConfig, cgroup: str | None, watch: WorkspaceWatcher, executions: Executions
    ) -> None:
        self.config = config
        self.executions = executions
        self.limits = fitting(config.limits)
        self.session_id = ""
        self.started = time.time()
        self.closed = asyncio.Event()
        self._cgroup = cgroup
        # Looks at the machine, which does not change: once, and not for every command.
        self._machine_envs = bwrap.environment(this_host(), THREADS, self.workdir)
        self._envs: dict[str, str] = dict(config.envs)
        self._namespace: Namespace | None = None
        self._making = asyncio.Lock()
        self._contexts: dict[str, Context] = {}
        self._commands: dict[str, Command] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._touched = time.monotonic()
        now = time.monotonic()
        self.lease = Lease(now + config.lease if config.lease else None, config.idle_timeout)
        self.packages = Packages(config.packages, config.packages_timeout, self._install)
        # Contexts whose first cell has said what is missing; "" for commands.
        self._told: set[str] = set()
        self._closing = False
        service_around = services.Surroundings(self.namespace, self.environment, lambda: self.limits.memory_bytes)
        self.services = services.Services(service_around, parse.services(list(config.services), self.workdir))
        self.ledger = Ledger(counts_writes=disk.counts_writes(config.workspace))
        # Whether the workspace is beyond all limits; whoever looks at the disk says so.
        self.is_full: Callable[[], bool] = lambda: False
        self.states = StateStore(Path(config.state_dir) if config.state_dir else None)
        # For what nobody asked for: it waits for nothing.
        self.around = Surroundings(
            self.namespace,
            watch.begin,
            watch.since,
            self.states,
            self.ledger,
            copied_bytes=lambda: config.rollback.most_bytes(self.limits),
            memory_bytes=lambda: self.limits.memory_bytes,
        )
        self._around = replace(self.around, settled=self.packages.settled, notices=self._notices)

    # What the template declares

    async def _install(self, mode: str, wanted: str, seconds: float) -> Said:
        argv = errands.program(self.config, "install", mode, f"{self.workdir}/{bwrap.PACKAGES}", wanted)
        envs = self.environment({})
        return await errands.run(argv, self.around, envs, self.limits, name="packages:install", seconds=seconds)

    def _notices(self, context_id: str) -> tuple[Notice, ...]:
        if context_id in self._told or not (found := self.packages.notices()):
            return ()
        self._told.add(context_id)
        return found

    # The namespace

    async def namespace(self) -> Namespace:
        """The living namespace; a new one where the old one has ended. Raises NamespaceError."""
        if self._namespace and not self._namespace.ended:
            return self._namespace
        if self._closing:
            raise NamespaceError("cannot run anything: the sandbox is ending")
        async with self._making:
            if self._namespace is None or self._namespace.ended:
                config = replace(self.config, limits=self.limits)
                self._namespace = await Namespace.start(config, self._cgroup, counts_writes=self.ledger.counts_writes)
            return self._namespace

    def wake(self) -> None:
        """Called often: whatever user code has stopped, commands can be ended and the memory guard looks."""
        if self._namespace and not self._namespace.ended:
            self._namespace.wake()

    def tmp_fd(self) -> int | None:
        """A descriptor of the namespace's /tmp, owned by the namespace; None while there is none."""
        return None if self._namespace is None or self._namespace.ended else self._namespace.tmp_fd

    async def unlinked(self) -> int:
        """Bytes in files of the workspace that only open descriptors hold."""
        if self._namespace is None or self._namespace.ended:
            return 0
        try:
            return await self._namespace.unlinked()
        except NamespaceError:
            # With it went its processes.
            return 0

    def separations(self, namespace: Namespace) -> list[str]:
        """What user code is separated by."""
        if self.config.isolation == "none":
            return []
        found = ["pid", "mount", "ipc", "uts"]
        found += ["network"] if self.config.network == "none" else []
        found += ["user"] if namespace.hello.separated_user else []
        found += ["uid"] if self.config.user_id else []
        found += ["cgroup-pids"] if self._cgroup else []
        return found

    # Lease and idleness

    async def open(self, session_id: str, lease: Lease, envs: dict[str, str], limits: Limits) -> Namespace:
        """Binds the sandbox to a session, or renews its lease. Raises MismatchError and NamespaceError."""
        if self.session_id and self.session_id != session_id:
            raise MismatchError(f"cannot open session {session_id}: the sandbox belongs to another one")
        self.lease = lease
        self.touch()
        if not self.session_id:
            before, self.limits = self.limits, fitting(limits)
            self.session_id = session_id
            self._envs = {**self.config.envs, **envs}
            if self.limits != before and self._namespace:
                # No user code has run yet: what was made with the template's limits is made again with lower ones.
                await self._namespace.close()
        namespace = await self.namespace()
        self.packages.begin(self.services.hold, self.services.release)
        self.services.begin()
        return namespace

    def touch(self) -> None:
        """Something was asked of the sandbox."""
        self._touched = time.monotonic()

    def over(self) -> str | None:
        """What ended the sandbox's time, "lease" or "idle"; None while there is time."""
        now = time.monotonic()
        if self.lease.until is not None and now >= self.lease.until:
            return "lease"
        if self._running or self.packages.installing:
            self._touched = now
        if self.lease.idle_timeout is not None and now - self._touched >= self.lease.idle_timeout:
            return "idle"
        return None

    def lease_remaining(self) -> float | None:
        """Seconds; None without a lease."""
        return None if self.lease.until is None else max(0.0, self.lease.until - time.monotonic())

    async def settled(self) -> None:
        """Until no copy of a context is being made."""
        for context in self.contexts():
            await context.settled()

    # Executions

    def register(self, kind: int, execution_id: str, fingerprint: bytes, output_limit: int) -> Execution:
        """A new execution, of an id that is new. Raises BusyError and FullError."""
        if len(self._running) >= self.limits.executions:
            raise BusyError(f"cannot start execution {execution_id}: {self.limits.executions} are running or waiting")
        if self.is_full():
            why = "the workspace is far beyond its limit: remove files first, over the API"
            raise FullError(f"cannot start execution {execution_id}: {why}")
        return self.executions.begin(kind, execution_id, fingerprint, output_limit)

    @property
    def running_executions(self) -> int:
        return len(self._running)

    def execute(self, context_id: str, execution: Callable[[], Execution], request: CellRequest) -> Execution:
        """Runs a cell in the background. Raises NotFoundError, BusyError and StateError."""
        context = self.context_or_default(context_id, request.keeps)
        made = execution()
        self._spawn(self._carry(made, context.run(made, request)))
        return made

    def start_command(self, execution: Execution, request: CommandRequest) -> None:
        """Runs a command in the background."""
        command = Command(execution, request, self._around)
        self._commands[execution.id] = command
        task = self._spawn(self._carry(execution, command.run()))
        task.add_done_callback(lambda _: self._commands.pop(execution.id, None))

    def command(self, execution_id: str) -> Command:
        """A running command. Raises NotFoundError."""
        if command := self._commands.get(execution_id):
            return command
        raise NotFoundError(f"cannot find command {execution_id}: it is not running")

    def commands(self) -> list[Command]:
        return list(self._commands.values())

    def environment(self, envs: dict[str, str]) -> dict[str, str]:
        """What a context or command starts with."""
        return self._machine_envs | self._envs | envs

    # Contexts

    async def create_context(
        self, context_id: str, cwd: str, envs: dict[str, str], keeps: Keeps = NOTHING, language: str = PYTHON
    ) -> Context:
        """A context whose interpreter runs. Raises ExistsError, BusyError, BadRequest, NamespaceError and StateError."""
        context = self._add_context(
            Context(context_id, cwd, self.environment(envs), self._around, keeps=keeps, language=language)
        )
        try:
            await context.begin()
        except (NamespaceError, BadRequest):
            self._contexts.pop(context_id, None)
            raise
        return context

    async def fork_context(self, context_id: str, new_ids: Sequence[str]) -> list[Context]:
        """Copies of a context, all of them or none.

        Raises NotFoundError, ExistsError, BusyError, NotCopiedError and NamespaceError.
        """
        origin = self.context(context_id)
        await self._check_room(len(new_ids))
        made: list[Context] = []
        try:
            for each in new_ids:
                made.append(self._add_context(origin.sibling(each)))  # noqa: PERF401 what was added is known when the next fails
            await origin.fork(made)
        except BaseException:  # A cancellation too: all of them, or none.
            for half_made in made:
                self._contexts.pop(half_made.id, None)
                half_made.deleted = True
                await half_made.end(Cause.RESTART)
            raise
        return made

    async def _check_room(self, count: int) -> None:
        """Raises BusyError where the copies would not fit before anything is written to them."""
        used = await (await self.namespace()).usage()
        if used["memory"] + used["tmp"] + count * LEAST_FORK_BYTES > self.limits.memory_bytes:
            raise BusyError(f"cannot fork {count} contexts: the memory that is left has no room for them")

    def contexts(self) -> list[Context]:
        return list(self._contexts.values())

    def context(self, context_id: str) -> Context:
        """Raises NotFoundError."""
        if context := self._contexts.get(context_id):
            return context
        raise NotFoundError(f"cannot find context {context_id}: there is none of that name")

    def context_or_default(self, context_id: str, keeps: Keeps = NOTHING) -> Context:
        """The default one is made at its first use. Raises NotFoundError, BusyError and StateError."""
        if context_id == DEFAULT_CONTEXT and context_id not in self._contexts:
            return self._add_context(Context(context_id, self.workdir, self.environment({}), self._around, keeps=keeps))
        return self.context(context_id)

    async def restart_context(self, context_id: str) -> Context:
        """The context with a fresh interpreter. Raises NotFoundError and NamespaceError."""
        context = self.context(context_id)
        await context.end(Cause.RESTART)
        await context.start()
        return context

    async def delete_context(self, context_id: str) -> None:
        context = self._contexts.pop(context_id, None)
        self._told.discard(context_id)
        if context:
            context.deleted = True
            await context.end(Cause.RESTART)

    async def end_interpreters(self) -> None:
        """Ends what cells have left running, and the interpreters with it: which of them it is nobody knows."""
        for context in self._contexts.values():
            await context.lose()

    async def close(self) -> None:
        """Ends everything in the sandbox. The files stay."""
        self._closing = True
        self.packages.close()
        for context in self._contexts.values():
            context.stop(Cause.CLOSE, 0)
        for command in self._commands.values():
            command.execution.stop(Cause.CLOSE, 0)
        await self._save_last()
        await self.services.close()
        if self._namespace:
            await self._namespace.close()
        await self.services.end()
        if self._running:
            await asyncio.wait(self._running, timeout=5.0)
        self.closed.set()

    async def _save_last(self) -> None:
        """What automatic saves have not reached yet."""
        saves = [asyncio.create_task(each.variables.settle()) for each in self.contexts() if each.variables.automatic]
        if saves:
            _, late = await asyncio.wait(saves, timeout=autosave.LAST_SECONDS)
            for each in late:
                each.cancel()

    def _add_context(self, context: Context) -> Context:
        if context.id in self._contexts:
            raise ExistsError(f"cannot create context {context.id}: it exists")
        if context.variables.automatic and not self.states.exists:
            raise NoStateDirError("cannot save automatically: this sandbox has no directory for states")
        if len(self._contexts) >= MAX_CONTEXTS:
            raise BusyError(f"cannot create context {context.id}: {MAX_CONTEXTS} exist")
        self._contexts[context.id] = context
        return context

    @property
    def workdir(self) -> str:
        """The workspace as user code sees it."""
        return bwrap.WORKSPACE if self.config.isolation == "namespace" else self.config.workspace

    async def _carry(self, execution: Execution, work: Coroutine[None, None, None]) -> None:
        """Takes an execution to its end, and the end to the store."""
        try:
            await work
        finally:
            await self.executions.end(execution)

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        self.touch()
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task


def fitting(limits: Limits) -> Limits:
    """What of them holds on this machine."""
    return limits.fitting_gvisor() if "gvisor" in os.uname().release else limits
