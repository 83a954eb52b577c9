"""Carries out the services of a session. core/services decides; this starts, probes, restarts and stops them."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sandfleet_executor.core.errors import BadRequest, RpcError
from sandfleet_executor.core.services import machine, plan
from sandfleet_executor.core.services.exits import judge, not_started
from sandfleet_executor.core.services.machine import ALIVE, Action, Exit, Next, State
from sandfleet_executor.core.services.plan import Change, Service, Step
from sandfleet_executor.core.services.spec import Probe, ServiceSpec
from sandfleet_executor.effects.namespace.children import NamespaceError
from sandfleet_executor.effects.namespace.namespace import Namespace
from sandfleet_executor.effects.services import probes
from sandfleet_executor.effects.services.logs import Log, LogFiles, write_behind
from sandfleet_executor.effects.services.logs import file as file_log
from sandfleet_executor.effects.services.probes import Target
from sandfleet_executor.effects.services.process import Program, Start

# Until it is ready for the first time a service is asked sooner than its interval says: the pause grows to that.
FIRST_PAUSE = 0.02
PAUSE_GROWTH = 1.5
# How long a supervisor may take to start the program.
START_SECONDS = 10.0
# At the end of the sandbox, for all of them together, before everything is killed.
CLOSE_SECONDS = 1.0
# A log shows what a Python program prints when it prints it.
UNBUFFERED = {"PYTHONUNBUFFERED": "1"}


class UnknownNameError(RpcError, LookupError, code="NOT_FOUND", reason="ServiceNotFound"):
    """There is no such service."""


@dataclass(frozen=True)
class ServiceSession:
    """What services need of their session."""

    # The living namespace; a new one where the old one has ended. Raises NamespaceError.
    namespace: Callable[[], Awaitable[Namespace]]
    # What a program starts with, its own variables last.
    environment: Callable[[dict[str, str]], dict[str, str]]
    # Bytes; only to name it in the message when a service reaches it.
    memory_limit: Callable[[], int]
    # By which a service, of this name, calls the tools of the host.
    tools: Callable[[str], Mapping[str, str]] = lambda _: {}


class Services:
    def __init__(self, session: ServiceSession, from_template: Sequence[ServiceSpec] = ()) -> None:
        self._session = session
        self._template = from_template
        self._services: dict[str, Service] = {}
        self._programs: dict[str, Program] = {}
        self._logs: dict[str, Log] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()
        # Set when a log has bytes that its file does not have yet.
        self._written = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._files: LogFiles | None = None
        # No service starts before the packages are installed.
        self._held = False
        self._closed = False

    # What is asked

    def keep_logs(self, files: LogFiles) -> None:
        """From now on logs go into files, too."""
        self._files = files
        self._spawn(write_behind(self._logs, files, self._written))

    def begin(self) -> None:
        """Starts what the template declares: at the beginning of the session, once."""
        template, self._template = self._template, ()
        self._services = plan.of_template(template) | self._services
        self._turn()

    def resume(self, specs: Iterable[ServiceSpec], stopped: Iterable[str]) -> None:
        """Before `begin`: those of a suspended session. Raises BadRequest, TakenError and TooManyError."""
        self._services = plan.resumed(self._template, specs, stopped, self._now())

    def hold(self) -> None:
        """Starts no service until `release`."""
        self._held = True

    def release(self) -> None:
        """Starts the services that `hold` kept back."""
        self._held = False
        self._turn()

    def apply(self, specs: Iterable[ServiceSpec], *, keep_others: bool, stopped: Collection[str] = ()) -> Change:
        """Raises BadRequest, TakenError, TooManyError, and NamespaceError when the sandbox is ending."""
        self._check_open()
        change = plan.declare(self._services, specs, keep_others=keep_others, now=self._now())
        self._services = change.services
        for name, action in change.actions.items():
            self._do(name, action)
        for name in self._services.keys() & set(stopped):
            self._take(name, machine.want_stopped(self._services[name].runtime))
        self._turn()
        return change

    def start(self, names: Sequence[str]) -> None:
        """Raises UnknownNameError, and NamespaceError when the sandbox is ending."""
        self._check_open()
        self._check(names)
        for name in plan.with_needed(self._services, names):
            self._take(name, machine.want_running(self._services[name].runtime))
        self._turn()

    def restart(self, name: str) -> None:
        """Raises UnknownNameError, and NamespaceError when the sandbox is ending."""
        self._check_open()
        self._check([name])
        one = self._services[name]
        for needed in plan.with_needed(self._services, one.spec.after):
            self._take(needed, machine.want_running(self._services[needed].runtime))
        self._take(name, machine.restart(one.runtime, one.spec, self._now()))
        self._turn()

    async def stop(self, names: Sequence[str]) -> None:
        """Returns when the services have ended, or are wanted again. Raises UnknownNameError."""
        self._check(names)
        names = names or list(self._services)
        for name in names:
            self._take(name, machine.want_stopped(self._services[name].runtime))
        self._turn()
        while any(name in self._services and self._is_stopping(name) for name in names):
            await self._news.wait()

    async def wait_ready(self, name: str, seconds: float) -> bool:
        """False when the time is over, or when the service cannot become ready. Raises UnknownNameError."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    self._check([name])
                    if self._services[name].runtime.state is State.READY:
                        return True
                    if name in plan.hopeless(self._services):
                        return False
                    await self._news.wait()
        return False

    async def close(self) -> None:
        """Stops all services in order, for a second at most; the rest ends with the session's processes."""
        self._closed = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.stop(())
                for name, log in self._logs.items():
                    if self._files:
                        await file_log(name, log, self._files)
        for log in self._logs.values():
            log.close()
        if self._timer:
            self._timer.cancel()

    async def end(self) -> None:
        """After the end of all processes."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS)

    def all(self) -> list[Service]:
        """In the order of their start; a waiting service says which services it waits for."""
        return [self._explained(name) for name in self._services]

    def get(self, name: str) -> Service:
        """Raises UnknownNameError."""
        self._check([name])
        return self._explained(name)

    def log(self, name: str) -> Log:
        """Raises UnknownNameError."""
        self._check([name])
        return self._log(name)

    def log_problem(self, name: str) -> str:
        """Why the log does not get into its file; also for a service that is stopping."""
        log = self._logs.get(name)
        return log.problem if log else ""

    async def ports(self) -> dict[str, tuple[list[int], bool]]:
        """By name: (TCP ports that it listens on, whether they are known)."""
        roots = {name: program.root for name, program in self._programs.items() if program.root}
        if not roots:
            return {}
        try:
            found = await (await self._session.namespace()).ports(list(roots.values()))
        except NamespaceError:
            return {}
        return {name: found.get(root, ([], False)) for name, root in roots.items()}

    def since(self, service: Service) -> float:
        """When its program was started, in seconds since the epoch."""
        return time.time() - (self._now() - service.runtime.since)

    # What happens

    def _turn(self) -> None:
        """Takes all steps that are possible now, and wakes the callers that wait for a change."""
        while todo := [(name, step) for name, step in plan.steps(self._services) if not self._holds(step)]:
            for name, step in todo:
                one = self._services[name]
                match step:
                    case Step.START:
                        self._take(name, machine.start(one.runtime))
                    case Step.STOP:
                        self._take(name, machine.stop(one.runtime, one.spec, self._now()))
                    case Step.FORGET:
                        self._forget(name)
        self._set_timer()
        self._news.set()
        self._news = asyncio.Event()

    def _holds(self, step: Step) -> bool:
        return self._held and step is Step.START

    def _take(self, name: str, following: Next) -> None:
        runtime, action = following
        self._services[name] = replace(self._services[name], runtime=runtime)
        self._do(name, action)

    def _do(self, name: str, action: Action) -> None:
        program = self._programs.get(name)
        match action:
            case Action.LAUNCH:
                self._spawn(self._run(name))
            case Action.TERMINATE if program:
                program.terminate()
            case Action.KILL if program:
                program.kill()

    def _set_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
        moment = plan.next_due(self._services)
        self._timer = None if moment is None else asyncio.get_running_loop().call_at(moment, self._on_timer)

    def _on_timer(self) -> None:
        # A timer may come a little before its moment by the clock's grain.
        now = self._now() + 0.001
        for name, one in list(self._services.items()):
            if one.runtime.due is not None and one.runtime.due <= now:
                self._take(name, machine.due(one.runtime))
        self._turn()

    async def _run(self, name: str) -> None:
        """One run of its program, from its start to its end."""
        spec = self._services[name].spec
        program = self._programs[name] = Program(self._log(name).write, spec.stop_signal)
        envs = {**UNBUFFERED, **self._session.environment(dict(spec.envs))}
        try:
            namespace = await self._session.namespace()
            start = Start(spec.payload, spec.shell, spec.cwd, {**envs, **self._session.tools(name)})
            await program.start(namespace, start, lasting=True)
            with namespace.busy():
                how = await self._attend(name, program, Target(namespace, program, spec.cwd, start.envs, self._spawn))
        except (NamespaceError, BadRequest, OSError) as error:
            how = not_started(str(error), time.time())
        del self._programs[name]
        one = self._services[name]
        self._take(name, machine.ended(one.runtime, one.spec, how, self._now()))
        self._turn()

    async def _attend(self, name: str, program: Program, target: Target) -> Exit:
        first = (program.running, program.ended)
        await asyncio.wait(first, timeout=START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not any(one.done() for one in first):
            # User code has stopped the supervisor, or the machine is overloaded.
            program.kill()
        probes: list[asyncio.Task[None]] = []
        try:
            if program.running.done():
                one = self._services[name]
                self._take(name, machine.launched(one.runtime, one.spec, program.running.result(), self._now()))
                probes = [self._spawn(each) for each in self._probes(name, target)]
                self._turn()
            facts = await program.ended
        finally:
            for probe in probes:
                probe.cancel()
            await program.close()
        return judge(facts, self._session.memory_limit(), time.time())

    def _probes(self, name: str, target: Target) -> list[Coroutine[Any, Any, None]]:
        spec = self._services[name].spec
        readiness = [self._ask_readiness(name, spec.readiness, target)] if spec.readiness else []
        return readiness + ([self._ask_liveness(name, spec.liveness, target)] if spec.liveness else [])

    async def _ask_readiness(self, name: str, probe: Probe, target: Target) -> None:
        pause = min(FIRST_PAUSE, probe.interval)
        while True:
            becomes = self._services[name].runtime.state is not State.READY
            trouble = await probes.trouble(probe, target, owned=becomes)
            one = self._services[name]
            self._take(name, machine.readiness_checked(one.runtime, one.spec, trouble))
            if self._services[name].runtime != one.runtime:
                self._turn()
            pause = probe.interval if one.runtime.was_ready else min(pause * PAUSE_GROWTH, probe.interval)
            await asyncio.sleep(pause)

    async def _ask_liveness(self, name: str, probe: Probe, target: Target) -> None:
        while not self._services[name].runtime.was_ready:
            await self._news.wait()
        while True:
            await asyncio.sleep(probe.interval)
            trouble = await probes.trouble(probe, target, owned=False)
            one = self._services[name]
            self._take(name, machine.liveness_checked(one.runtime, one.spec, trouble, self._now()))
            self._turn()

    # The rest

    def _explained(self, name: str) -> Service:
        return plan.explained(self._services, name, held=self._held)

    def _is_stopping(self, name: str) -> bool:
        runtime = self._services[name].runtime
        return not runtime.wanted and runtime.state in ALIVE

    def _check_open(self) -> None:
        if self._closed:
            raise NamespaceError("cannot start a service: the sandbox is ending")

    def _check(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._services or self._services[name].removed:
                raise UnknownNameError(f"cannot find service {name[:80]}: there is none of that name")

    def _log(self, name: str) -> Log:
        return self._logs.setdefault(name, Log(self._written.set))

    def _forget(self, name: str) -> None:
        del self._services[name]
        if log := self._logs.pop(name, None):
            log.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
