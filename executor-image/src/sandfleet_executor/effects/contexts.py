"""Contexts: interpreters under a name, one cell at a time, a fresh interpreter when the old one has ended."""

import asyncio
from dataclasses import dataclass

from sandfleet_executor.core.contextframes import BadFrame, Done
from sandfleet_executor.core.events import Started
from sandfleet_executor.core.outcomes import Cause, Facts, Verdict, judge_cell
from sandfleet_executor.core.requests import BadRequest
from sandfleet_executor.core.tracing import TraceParent
from sandfleet_executor.effects.accounting import Account, Surroundings, end_or_stop, signal_name
from sandfleet_executor.effects.children import Exit, NamespaceError
from sandfleet_executor.effects.execution import Execution
from sandfleet_executor.effects.interpreter import Cell, Interpreter
from sandfleet_executor.effects.namespace import Namespace
from sandfleet_executor.worker.languages import PYTHON

# How long a killed interpreter may take to be gone before the whole namespace is ended, in seconds.
KILL_SECONDS = 10.0


@dataclass(frozen=True)
class CellRequest:
    code: str
    # Seconds.
    timeout: float
    envs: dict[str, str]
    traceparent: TraceParent | None
    # Bytes; only to say it when it was reached.
    memory_limit: int


class Context:
    def __init__(
        self, context_id: str, cwd: str, envs: dict[str, str], around: Surroundings, language: str = PYTHON
    ) -> None:
        self.id = context_id
        self.language = language
        self.generation = 0
        self.executions = 0
        self.deleted = False
        self._cwd = cwd
        self._envs = envs
        self._around = around
        self._turn = asyncio.Lock()
        self._interpreter: Interpreter | None = None
        self._running: Execution | None = None
        # What the next execution does not find any more.
        self._lost: tuple[str, ...] = ()

    @property
    def busy(self) -> bool:
        return self._running is not None

    @property
    def alive(self) -> bool:
        """Whether its interpreter can take a cell."""
        return self._interpreter is not None and not (self._interpreter.ended.done() or self._interpreter.broken)

    async def start(self) -> Interpreter:
        """The living interpreter; a fresh one when there is none. Raises NamespaceError."""
        if self._interpreter and self.alive:
            return self._interpreter
        if self._interpreter and not self._lost:
            # It ended between two cells.
            self._lost = ("variables", "processes")
        namespace = await self._around.namespace()
        self._interpreter = await Interpreter.start(
            namespace, self._cwd, self._envs, {"context_id": self.id, "language": self.language}
        )
        self.generation += 1
        return self._interpreter

    async def run(self, execution: Execution, request: CellRequest) -> None:
        """Runs one cell to its end, which it emits."""
        attributes = {"sandfleet.context.id": self.id, "sandfleet.execution.id": execution.id}
        account = Account(execution, self._around, "execute_cell", request.traceparent, attributes)
        waits = self._turn.locked() or not self.alive
        async with self._turn:
            if self.deleted:
                execution.stop(Cause.RESTART, 0)
            if execution.cause is not Cause.NONE:
                execution.emit(Started(execution.id, self.id))
                account.close(judge_cell(Facts(cause=execution.cause)))
                return
            self._running = execution
            try:
                await self._run(account, request, waits=waits)
            finally:
                self._running = None

    def stop(self, cause: Cause, grace: float, execution_id: str = "") -> bool:
        """Asks the running execution to end; False when there is none, or when it is not the one that is meant."""
        if self._running is None or execution_id not in {"", self._running.id}:
            return False
        self._running.stop(cause, grace)
        return True

    async def end(self, cause: Cause) -> None:
        """Ends the interpreter with everything below it, and so the running execution."""
        self.stop(cause, 0)
        interpreter, self._interpreter = self._interpreter, None
        self._lost = ()
        if interpreter and not interpreter.ended.done():
            interpreter.kill()
            await asyncio.wait((interpreter.ended,), timeout=KILL_SECONDS)

    async def _run(self, account: Account, request: CellRequest, *, waits: bool) -> None:
        execution = account.execution
        try:
            interpreter = await self.start()
            namespace = await self._around.namespace()
        except (NamespaceError, BadRequest) as error:
            execution.emit(Started(execution.id, self.id))
            account.close(verdict_on(error))
            return
        self.executions += 1
        execution.emit(Started(execution.id, self.id, self.executions, self._lost))
        self._lost = ()
        if waits:
            account.restart_clock()
        header = {
            "cell": self.executions,
            "execution_id": execution.id,
            "envs": request.envs | account.trace.environment(),
        }
        with namespace.busy():
            cell = interpreter.begin(account, header, request.code)
            await end_or_stop(execution, cell.end, request.timeout, interpreter.interrupt)
            end = await self._settle(interpreter, cell, namespace)
        facts = cell_facts(execution, cell, end, request)
        if isinstance(end, Done):
            account.close(judge_cell(facts), facts)
            return
        account.close(judge_cell(facts), facts, lost=self._what_was_lost(namespace))

    def _what_was_lost(self, namespace: Namespace) -> tuple[str, ...]:
        lost = ("variables", "processes", "tmp") if namespace.ended else ("variables", "processes")
        # After a restart that was asked for nobody has to be told.
        self._lost = lost if self._interpreter else ()
        return lost

    async def _settle(self, interpreter: Interpreter, cell: Cell, namespace: Namespace) -> Done | Exit | BadFrame:
        """The end of the cell; an interpreter that has not come to one, or that broke the protocol, is killed."""
        if cell.end.done() and not isinstance(cell.end.result(), BadFrame):
            return cell.end.result()
        interpreter.kill()
        await asyncio.wait((interpreter.ended,), timeout=KILL_SECONDS)
        if not interpreter.ended.done():
            # PID 1 did not do as it was told: the namespace goes as a whole.
            await namespace.close()
        return cell.end.result() if cell.end.done() else await interpreter.ended


def cell_facts(execution: Execution, cell: Cell, end: Done | Exit | BadFrame, request: CellRequest) -> Facts:
    """What is known at the end of a cell."""
    cause, status, code, number = execution.cause, None, 0, 0
    match end:
        case Done():
            status, code = end.status, end.exit_code
        case BadFrame() if cause is Cause.NONE:
            cause = Cause.PROTOCOL
        case Exit():
            code, number = end.code, end.signal
            if end.memory and cause is Cause.NONE:
                cause = Cause.MEMORY
    return Facts(
        cause=cause,
        status=status,
        error_name=cell.error_name,
        exit_code=code,
        signal=signal_name(number),
        timeout=request.timeout,
        memory_limit=request.memory_limit,
    )


def verdict_on(error: NamespaceError | BadRequest) -> Verdict:
    """Why there is no interpreter: the platform cannot start one, or its working directory was removed meanwhile."""
    if isinstance(error, BadRequest):
        return Verdict("error", "code", "WorkingDirectoryGone", str(error))
    return Verdict("lost", "platform", "InterpreterNotStarted", str(error))
