"""The sandbox as a whole: its namespace, its contexts and commands, its lease."""

import asyncio
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace

from sandfleet_executor.core import bwrap
from sandfleet_executor.core.config import ExecutorConfig, Limits
from sandfleet_executor.core.outcomes import Cause
from sandfleet_executor.core.requests import DEFAULT_CONTEXT, BadRequest
from sandfleet_executor.effects.accounting import Surroundings
from sandfleet_executor.effects.children import NamespaceError
from sandfleet_executor.effects.commands import Command, CommandRequest
from sandfleet_executor.effects.contexts import CellRequest, Context
from sandfleet_executor.effects.execution import Execution
from sandfleet_executor.effects.inotify import WorkspaceWatcher
from sandfleet_executor.effects.namespace import THREADS, Namespace, this_host
from sandfleet_executor.worker.languages import PYTHON

MAX_CONTEXTS = 64
# Ids of executions that are remembered so that none is run twice.
MAX_REMEMBERED = 65_536


class NotFoundError(LookupError):
    """No such context, or no such command is running."""


class ExistsError(ValueError):
    """The id is taken."""


class BusyError(RuntimeError):
    """A count is at its limit; it may go on later."""


class MismatchError(RuntimeError):
    """The sandbox belongs to another session."""


@dataclass(frozen=True)
class Lease:
    """Ends of the sandbox that come by themselves, in seconds of the monotonic clock and of idleness."""

    until: float | None = None
    idle_timeout: float | None = None


class Session:
    def __init__(self, config: ExecutorConfig, cgroup: str | None, watch: WorkspaceWatcher) -> None:
        self.config = config
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
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._touched = time.monotonic()
        now = time.monotonic()
        self.lease = Lease(now + config.lease if config.lease else None, config.idle_timeout)
        self._around = Surroundings(self.namespace, watch.begin, watch.since)

    # The namespace

    async def namespace(self) -> Namespace:
        """The living namespace; a new one where the old one has ended. Raises NamespaceError."""
        if self._namespace and not self._namespace.ended:
            return self._namespace
        async with self._making:
            if self._namespace is None or self._namespace.ended:
                config = replace(self.config, limits=self.limits)
                self._namespace = await Namespace.start(config, self._cgroup)
            return self._namespace

    def wake(self) -> None:
        """Called often: whatever user code has stopped, commands can be ended and the memory guard looks."""
        if self._namespace and not self._namespace.ended:
            self._namespace.wake()

    def tmp_fd(self) -> int | None:
        """A descriptor of the namespace's /tmp, owned by the namespace; None while there is none."""
        return None if self._namespace is None or self._namespace.ended else self._namespace.tmp_fd

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
        return await self.namespace()

    def touch(self) -> None:
        """Something was asked of the sandbox."""
        self._touched = time.monotonic()

    def over(self) -> str | None:
        """What ended the sandbox's time, "lease" or "idle"; None while there is time."""
        now = time.monotonic()
        if self.lease.until is not None and now >= self.lease.until:
            return "lease"
        if self._running:
            self._touched = now
        if self.lease.idle_timeout is not None and now - self._touched >= self.lease.idle_timeout:
            return "idle"
        return None

    def lease_remaining(self) -> float | None:
        """Seconds; None without a lease."""
        return None if self.lease.until is None else max(0.0, self.lease.until - time.monotonic())

    # Executions

    def register(self, execution_id: str, output_limit: int) -> Execution:
        """A new execution. Raises ExistsError and BusyError."""
        if execution_id in self._seen:
            raise ExistsError(f"cannot start execution {execution_id}: that id was used before")
        if len(self._running) >= self.limits.executions:
            raise BusyError(f"cannot start execution {execution_id}: {self.limits.executions} are running or waiting")
        self._seen[execution_id] = None
        if len(self._seen) > MAX_REMEMBERED:
            self._seen.popitem(last=False)
        return Execution(execution_id, output_limit)

    @property
    def running_executions(self) -> int:
        return len(self._running)

    def execute(self, context_id: str, execution: Callable[[], Execution], request: CellRequest) -> Execution:
        """Runs a cell in the background. Raises NotFoundError, ExistsError and BusyError."""
        context = self._contexts.get(context_id)
        if context is None:
            if context_id != DEFAULT_CONTEXT:
                raise NotFoundError(f"cannot run code in context {context_id}: there is none of that name")
            context = self._add_context(context_id, self.workdir, {})
        made = execution()
        self._spawn(context.run(made, request))
        return made

    def start_command(self, execution: Execution, request: CommandRequest) -> None:
        """Runs a command in the background."""
        command = Command(execution, request, self._around)
        self._commands[execution.id] = command
        task = self._spawn(command.run())
        task.add_done_callback(lambda _: self._commands.pop(execution.id, None))

    def command(self, execution_id: str) -> Command:
        """A running command. Raises NotFoundError."""
        if command := self._commands.get(execution_id):
            return command
        raise NotFoundError(f"cannot find command {execution_id}: it is not running")

    def commands(self) -> list[Command]:
        return list(self._commands.values())

    @property
    def around(self) -> Surroundings:
        """For a command that nobody asked for."""
        return self._around

    def environment(self, envs: dict[str, str]) -> dict[str, str]:
        """What a context or command starts with."""
        return self._machine_envs | self._envs | envs

    # Contexts

    async def create_context(self, context_id: str, cwd: str, envs: dict[str, str], language: str = PYTHON) -> Context:
        """A context whose interpreter runs. Raises ExistsError, BusyError, BadRequest and NamespaceError."""
        if context_id in self._contexts:
            raise ExistsError(f"cannot create context {context_id}: it exists")
        context = self._add_context(context_id, cwd, envs, language)
        try:
            await context.start()
        except (NamespaceError, BadRequest):
            self._contexts.pop(context_id, None)
            raise
        return context

    def contexts(self) -> list[Context]:
        return list(self._contexts.values())

    def context(self, context_id: str) -> Context:
        """Raises NotFoundError."""
        if context := self._contexts.get(context_id):
            return context
        raise NotFoundError(f"cannot find context {context_id}: there is none of that name")

    async def restart_context(self, context_id: str) -> Context:
        """The context with a fresh interpreter. Raises NotFoundError and NamespaceError."""
        context = self.context(context_id)
        await context.end(Cause.RESTART)
        await context.start()
        return context

    async def delete_context(self, context_id: str) -> None:
        context = self._contexts.pop(context_id, None)
        if context:
            context.deleted = True
            await context.end(Cause.RESTART)

    async def close(self) -> None:
        """Ends everything in the sandbox. The files stay."""
        for context in self._contexts.values():
            context.stop(Cause.CLOSE, 0)
        for command in self._commands.values():
            command.execution.stop(Cause.CLOSE, 0)
        if self._namespace:
            await self._namespace.close()
        if self._running:
            await asyncio.wait(self._running, timeout=5.0)
        self.closed.set()

    def _add_context(self, context_id: str, cwd: str, envs: dict[str, str], language: str = PYTHON) -> Context:
        if len(self._contexts) >= MAX_CONTEXTS:
            raise BusyError(f"cannot create context {context_id}: {MAX_CONTEXTS} exist")
        context = Context(context_id, cwd, self.environment(envs), self._around, language)
        self._contexts[context_id] = context
        return context

    @property
    def workdir(self) -> str:
        """The workspace as user code sees it."""
        return bwrap.WORKSPACE if self.config.isolation == "namespace" else self.config.workspace

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        self.touch()
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task


def fitting(limits: Limits) -> Limits:
    """What of them holds on this machine."""
    return limits.fitting_gvisor() if "gvisor" in os.uname().release else limits
