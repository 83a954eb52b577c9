"""Contexts: named interpreters that run one cell at a time.

A fresh interpreter takes the place of one that has ended.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace

from sandfleet_executor.core.contexts import rollback
from sandfleet_executor.core.contexts.frames import BadFrame, Done
from sandfleet_executor.core.contexts.rollback import OTHER_LANGUAGE
from sandfleet_executor.core.contexts.states import Bounds, Manifest, still_lost
from sandfleet_executor.core.errors import BadRequest, NotStartedError
from sandfleet_executor.core.executions.events import Rollback, Started
from sandfleet_executor.core.executions.outcomes import NO_FOLDER, Cause, Facts, Verdict, judge_cell
from sandfleet_executor.core.review import verdicts
from sandfleet_executor.effects.contexts import copies
from sandfleet_executor.effects.contexts.interpreter import Cell, Interpreter
from sandfleet_executor.effects.contexts.interpreter_slot import (
    ContextServices,
    ContextSpec,
    InterpreterSlot,
    kill,
)
from sandfleet_executor.effects.contexts.looks import Looks
from sandfleet_executor.effects.contexts.queue import CellQueue, CellRequest
from sandfleet_executor.effects.contexts.state_store import NAMED, NothingToSaveError, StateError
from sandfleet_executor.effects.contexts.state_transfer import Restored
from sandfleet_executor.effects.contexts.tables import Around, Tables
from sandfleet_executor.effects.contexts.variables import Held, Place, Variables
from sandfleet_executor.effects.executions import spans
from sandfleet_executor.effects.executions.execution import Execution
from sandfleet_executor.effects.executions.meter import LANGUAGE, ExecutionMeter, end_or_stop, signal_name
from sandfleet_executor.effects.namespace.children import Exit, NamespaceError
from sandfleet_executor.effects.namespace.namespace import Namespace
from sandfleet_executor.effects.review.reviews import as_decided

ALL_VARIABLES = "variables"


class Context:
    def __init__(self, spec: ContextSpec, services: ContextServices) -> None:
        self.spec = spec
        self.deleted = False
        self._services = services
        self._session = services.session
        self._queue = CellQueue()
        self._starting = asyncio.Lock()
        self._slot = InterpreterSlot(spec, services, self._queue)
        held = Held(spec.id, self._queue.lock, lambda: self._slot.living, lambda: self._slot.cells.of_state)
        place = Place(services.states, services.memory_bytes, services.session.namespace)
        self.variables = Variables(held, place, spec.persistence.autosave if spec.can_be_kept else None)
        self.looks = Looks(spec, self._queue, self.start)
        self.tables = Tables(spec, self._queue, Around.of(services, self.start, self._was_given))
        # The parts of the state that the next cell does not find any more.
        self._lost: tuple[str, ...] = ()
        # Whether to start from an earlier executor's save; what came of it, and what the next cell is told of it.
        self._resume = spec.persistence.resume or spec.persistence.kept
        self.resumed: Restored | None = None
        self._brought: tuple[int, int] | None = None

    def sibling(self, context_id: str) -> "Context":
        """A new context with the same beginning."""
        persistence = replace(self.spec.persistence, resume=False, kept=False)
        return Context(replace(self.spec, id=context_id, persistence=persistence), self._services)

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def generation(self) -> int:
        """How many interpreters the context has had."""
        return self._slot.generation

    @property
    def executions(self) -> int:
        """How many cells have begun."""
        return self._slot.cells.begun

    @property
    def copied_cell(self) -> int:
        """The cell whose state a killed cell is rolled back to; 0 without a copy."""
        return self._slot.copies.cell

    @property
    def busy(self) -> bool:
        return self._queue.running is not None

    @property
    def alive(self) -> bool:
        """Whether its interpreter can take a cell."""
        return self._slot.alive

    # Beginning and end

    async def start(self) -> Interpreter:
        """The living interpreter; a fresh one when there is none. Raises NamespaceError.

        A restart and a cell that waited for its turn may both need one: the second gets that of the first.
        """
        async with self._starting:
            interpreter = await self._started()
        interpreter.lend = self._services.lend
        if self.deleted:
            # No later call would end it.
            interpreter.kill()
        return interpreter

    async def _started(self) -> Interpreter:
        slot = self._slot
        if living := slot.living:
            return living
        namespace = await self._session.namespace()
        if slot.interpreter and not self._lost:
            # It ended between two cells.
            rolled_back = await slot.roll_back(namespace)
            self._lost = ("processes",) if rolled_back.done else (ALL_VARIABLES, "processes")
            if rolled_back.done and (living := slot.living):
                return living
        first = slot.interpreter is None
        interpreter = await slot.start_fresh(namespace)
        if self._resume or not first:
            # Saved variables may need the packages.
            await self._session.settled(None)
            self._resume = False
            await self._bring_back(interpreter, first=first)
            if not self.alive:
                # Restoring has ended the interpreter.
                interpreter = await slot.start_fresh(namespace)
        return interpreter

    async def begin(self) -> None:
        """Starts, from the newest automatic save or what is kept, if the context resumes. Raises as `start`."""
        async with self._queue.lock:
            if not self._resume:
                await self.variables.forget()
            await self.start()

    def stop(self, cause: Cause, grace: float, execution_id: str = "") -> bool:
        """Asks the execution of that id, or else the running one, to end. False when there is none."""
        found = self._queue.find(execution_id)
        if found:
            found.stop(cause, grace)
        return found is not None

    async def end(self, cause: Cause) -> None:
        """Ends the interpreter with everything below it, and so the running execution."""
        self.stop(cause, 0)
        interpreter = self._slot.leave()
        self._lost = ()
        await self.variables.forget()
        if interpreter and not interpreter.ended.done():
            await kill(interpreter)

    async def lose(self) -> None:
        """Ends an idle interpreter; the next cell is told what it does not find any more."""
        interpreter = self._slot.living
        if interpreter is None or self.busy or self._queue.lock.locked():
            return
        # A cell that comes now waits, and does not begin in an interpreter that is about to end.
        async with self._queue.lock:
            await kill(interpreter)

    # Saved variables

    async def save(self, name: str, bounds: Bounds, kind: str = NAMED) -> Manifest:
        """Saves the variables under the name. Raises StateError and NamespaceError."""
        check_kept(self.spec, "save")
        return await self.variables.save(kind, name, bounds)

    async def restore(self, name: str, seconds: float) -> Restored:
        """Brings saved variables in. Raises StateError, NamespaceError and BadRequest."""
        check_kept(self.spec, "restore")
        await self._session.settled(None)
        async with self._queue.lock:
            restored = await self.variables.restore(await self.start(), NAMED, name, seconds)
        self._was_given()
        return restored

    def _was_given(self) -> None:
        """There are variables that no cell has made."""
        self._slot.changed()
        self.variables.cell_ended()

    async def _bring_back(self, interpreter: Interpreter, *, first: bool) -> None:
        """Restores what it begins from, or the newest save. `first`: an earlier executor's, whose numbers go on."""
        try:
            self.resumed = await self.variables.bring_back(interpreter, kept=first and self.spec.persistence.kept)
        except StateError as error:
            await self.variables.give_up(str(error))
            others = tuple(word for word in self._lost if not word.startswith(ALL_VARIABLES))
            self._lost = (ALL_VARIABLES, *others)
            return
        if self.resumed:
            newest = self.resumed.manifest
            cells = self._slot.cells
            if first:
                cells.begun = cells.ended = newest.cell
            cells.of_state = newest.cell
            self._slot.changed()
            self._lost = less(self._lost, self.resumed.missing, newest, cells.ended)
            self._brought = (self.resumed.count, newest.cell)

    # Cells

    async def run(self, execution: Execution, request: CellRequest) -> None:
        """Runs one cell to its end, which it emits."""
        names = {"sandfleet.context.id": self.id, LANGUAGE: self.spec.language, "sandfleet.execution.id": execution.id}
        meter = ExecutionMeter(execution, self._session, "execute_cell", request.traceparent, names)
        waits = self._slot.cell_comes()
        async with self._queue.turn_of(execution):
            if self.deleted:
                execution.stop(Cause.RESTART, 0)
            if execution.cause is not Cause.NONE:
                close_stopped(meter, self.id)
                return
            allowed = await let_in(meter, self.id, self._located(request))
            if allowed and (ready := await self._make_ready(meter, allowed, waits=waits)):
                await self._run(meter, allowed, *ready)

    def _located(self, request: CellRequest) -> CellRequest:
        """The request with the interpreter that it would run in, for its reviewer."""
        if request.subject is None:
            return request
        at = self._slot.runs_in
        if self._resume:
            # Variables of an earlier executor come before the cell.
            at = replace(at, incarnation="")
        return replace(request, subject=replace(request.subject, runs_in=at))

    async def _make_ready(
        self, meter: ExecutionMeter, request: CellRequest, *, waits: bool
    ) -> tuple[Interpreter, Namespace] | None:
        """What the cell runs in; None where it has ended already. Waiting does not count as its time."""
        execution = meter.execution
        try:
            waits = await self._session.settled(execution) or waits
            if execution.cause is not Cause.NONE:
                close_stopped(meter, self.id)
                return None
            interpreter = await self.start()
            namespace = await self._session.namespace()
        except (NamespaceError, BadRequest) as error:
            close_unstarted(meter, self.id, error)
            return None
        if execution.cause is not Cause.NONE:
            # The interpreter is for those that come after.
            close_stopped(meter, self.id)
            return None
        if self._slot.copies.due and (request.rolls_back or self._slot.copies.may_wait()):
            meter.trace.enter(spans.COPY)
            await self._slot.copy(namespace, interpreter, waited=True)
            waits = True
        self._slot.cell_begins()
        notices = (*request.notices, *self._session.notices(self.id))
        execution.emit(Started(execution.id, self.id, self.executions, self._lost, self._brought, notices))
        self._lost, self._brought = (), None
        if waits:
            meter.restart_clock()
        return interpreter, namespace

    async def _run(
        self, meter: ExecutionMeter, request: CellRequest, interpreter: Interpreter, namespace: Namespace
    ) -> None:
        execution = meter.execution
        cell, end = await run_in(interpreter, namespace, meter, request, self.executions)
        lost: tuple[str, ...] = ()
        if cell.unread and execution.cause is Cause.NONE:
            # Another execution has killed the interpreter, and this cell has not begun: it runs in a new one.
            try:
                interpreter, namespace = await self.start(), await self._session.namespace()
            except (NamespaceError, BadRequest) as error:
                meter.close(verdict_on(error))
                return
            lost, self._lost = self._lost, ()
            cell, end = await run_in(interpreter, namespace, meter, request, self.executions)
        verdict = judge_cell(facts := cell_facts(execution, cell, end, request))
        if not isinstance(end, Done):
            lost, rolled_back = await self._after_a_kill(namespace)
            meter.close(verdict, facts, lost=lost, rollback=rolled_back)
            return
        self._slot.cells.ended = self.executions
        if request.rolls_back and verdict.outcome != "ok":
            meter.trace.enter(spans.ROLL_BACK)
            rolled_back = await self._undo(namespace, interpreter)
            meter.close(verdict, facts, lost=self._lost, rollback=rolled_back)
        else:
            meter.close(verdict, facts, lost=lost)
            self._has_changed()

    def _has_changed(self) -> None:
        """A cell has ended, and its changes are there."""
        self._slot.changed_by_cell()
        self.variables.cell_ended()

    async def _after_a_kill(self, namespace: Namespace) -> tuple[tuple[str, ...], Rollback | None]:
        """What is lost, and whether the context was rolled back."""
        if self._slot.interpreter is None:
            # The context was restarted or deleted, as its owner asked.
            return self._what_was_lost(namespace), None
        rolled_back = await self._slot.roll_back(namespace)
        if not rolled_back.done:
            return self._what_was_lost(namespace), rolled_back
        self._lost = ("processes",)
        return self._lost, rolled_back

    async def _undo(self, namespace: Namespace, interpreter: Interpreter) -> Rollback:
        """Rolls back a cell that ended by itself and left its interpreter alive."""
        if why_not := await self._slot.copies.why_not():
            self._has_changed()
            return rollback.refused(why_not)
        await kill(interpreter)
        rolled_back = await self._slot.roll_back(namespace)
        self._lost = ("processes",) if rolled_back.done else (ALL_VARIABLES, "processes")
        return rolled_back

    def _what_was_lost(self, namespace: Namespace) -> tuple[str, ...]:
        lost: tuple[str, ...] = (ALL_VARIABLES, "processes", *(["tmp"] if namespace.ended else []))
        if newest := self.variables.newest:
            lost = less(lost, [item.name for item in newest.unsaved], newest, self._slot.cells.ended)
        # A restart by request is not reported as a loss.
        self._lost = lost if self._slot.interpreter else ()
        return lost

    # Forks

    async def fork(self, others: "Sequence[Context]") -> None:
        """Makes all of them, or none, copies of this context. Raises NotCopiedError and NamespaceError."""
        if not self.spec.can_be_kept:
            raise copies.NotCopiedError(OTHER_LANGUAGE)
        async with contextlib.AsyncExitStack() as turns:
            # No cell runs in them before they are copies.
            for each in (self, *others):
                await turns.enter_async_context(each._queue.lock)  # noqa: SLF001 of its own kind
            interpreter = await self.start()
            for each in others:
                await each.variables.forget()
            namespace = await self._session.namespace()
            seeds = [each.id for each in others]
            forks = await copies.fork(namespace, interpreter, seeds, self._services.memory_bytes())
            for each, new in zip(others, forks, strict=True):
                each._take_over(new, self)  # noqa: SLF001 of its own kind

    def _take_over(self, interpreter: Interpreter, origin: "Context") -> None:
        self._slot.take_over(interpreter, origin._slot.cells)  # noqa: SLF001 of its own kind
        if self.deleted:
            interpreter.kill()
        else:
            self._slot.forked()


def less(lost: tuple[str, ...], missing: Sequence[str], newest: Manifest, ended: int) -> tuple[str, ...]:
    """What is lost although the variables of an automatic save come back. `ended` is the last cell that did."""
    others = tuple(word for word in lost if not word.startswith(ALL_VARIABLES))
    return (*still_lost(missing, newest.cell, ended), *others)


def close_stopped(meter: ExecutionMeter, context_id: str) -> None:
    """The end of an execution that was stopped before it ran."""
    meter.execution.emit(Started(meter.execution.id, context_id))
    meter.close(judge_cell(Facts(cause=meter.execution.cause)))


async def let_in(meter: ExecutionMeter, context_id: str, request: CellRequest) -> CellRequest | None:
    """The cell as it may run; None where it has ended already. Waiting for a reviewer does not count as its time."""
    if request.subject is not None:
        meter.trace.enter(spans.REVIEW)
        # What they bring is there before a reviewer looks.
        await meter.session.settled(meter.execution)
    decision = await meter.session.reviews.of_execution(meter.execution, request.subject)
    if meter.execution.cause is not Cause.NONE:
        close_stopped(meter, context_id)
        return None
    if not decision.allowed:
        meter.execution.emit(Started(meter.execution.id, context_id))
        meter.close(verdicts.denied(decision))
        return None
    if request.subject is not None:
        meter.restart_clock()
    meter.trace.enter(spans.PREPARE)
    return as_decided(request, decision)


def close_unstarted(meter: ExecutionMeter, context_id: str, error: NamespaceError | BadRequest) -> None:
    """The end of an execution that has no interpreter. A sandbox that ends has stopped it, and makes none any more."""
    if meter.execution.cause is not Cause.NONE:
        close_stopped(meter, context_id)
    else:
        meter.execution.emit(Started(meter.execution.id, context_id))
        meter.close(verdict_on(error))


def check_kept(spec: ContextSpec, verb: str) -> None:
    """Raises NothingToSaveError."""
    if not spec.can_be_kept:
        raise NothingToSaveError(f"cannot {verb} context {spec.id}: variables of {spec.language} cannot be saved")


async def run_in(
    interpreter: Interpreter, namespace: Namespace, meter: ExecutionMeter, request: CellRequest, number: int
) -> tuple[Cell, Done | Exit | BadFrame]:
    """Runs a cell; how it ended. An interpreter that has not come to an end, or that broke the protocol, is killed."""
    envs = request.envs | meter.environment()
    header = {"cell": number, "execution_id": meter.execution.id, "envs": envs, "input": request.takes_input}
    header |= {"rows": request.rows} if request.rows else {}
    meter.trace.enter(spans.RUN)
    with namespace.busy():
        cell = interpreter.begin(meter, header, request.code)
        await end_or_stop(meter, cell.end, request.timeout, interpreter.interrupt)
        if cell.end.done() and not isinstance(cell.end.result(), BadFrame):
            if not isinstance(cell.end.result(), Done):
                meter.trace.enter(spans.ROLL_BACK)
            elif meter.execution.cause is not Cause.NONE:
                await let_arrive(namespace)
            return cell, cell.end.result()
        meter.trace.enter(spans.ROLL_BACK)
        await kill(interpreter)
        if not interpreter.ended.done():
            # PID 1 did not kill it: the namespace goes as a whole.
            await namespace.close()
        return cell, cell.end.result() if cell.end.done() else await interpreter.ended


async def let_arrive(namespace: Namespace) -> None:
    """Waits until an interrupt that is on its way to a cell that has ended is there: the next one must not get it."""
    with contextlib.suppress(NamespaceError):
        # PID 1 answers in the order in which it was asked.
        await namespace.ping()


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
        disk_limit=request.disk_limit,
    )


def verdict_on(error: NamespaceError | BadRequest) -> Verdict:
    """Why there is no interpreter: the platform cannot start one, or its working directory was removed meanwhile."""
    if isinstance(error, NotStartedError):
        return Verdict("error", "code", "InterpreterNotStarted", str(error))
    if isinstance(error, BadRequest):
        return Verdict("error", "code", NO_FOLDER, str(error))
    return Verdict("lost", "platform", "InterpreterNotStarted", str(error))
