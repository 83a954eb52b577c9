"""Contexts: interpreters under a name, one cell at a time, a fresh interpreter when the old one has ended."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace

from sandfleet_executor.core import rollback
from sandfleet_executor.core.contextframes import BadFrame, Done
from sandfleet_executor.core.events import Rollback, Started
from sandfleet_executor.core.outcomes import Cause, Facts, judge_cell
from sandfleet_executor.core.requests import BadRequest
from sandfleet_executor.core.rollback import OTHER_LANGUAGE, Refusal
from sandfleet_executor.core.states import Bounds, Manifest, still_lost
from sandfleet_executor.effects import copies
from sandfleet_executor.effects.accounting import Account, Surroundings, end_or_stop
from sandfleet_executor.effects.cellrequest import NOTHING, CellRequest, Keeps, cell_facts, verdict_on
from sandfleet_executor.effects.children import Exit, NamespaceError
from sandfleet_executor.effects.copies import UNCOPIED, Keeper
from sandfleet_executor.effects.execution import Execution
from sandfleet_executor.effects.interpreter import Cell, Interpreter
from sandfleet_executor.effects.namespace import Namespace
from sandfleet_executor.effects.pause import Pause
from sandfleet_executor.effects.statemoves import Restored
from sandfleet_executor.effects.statestore import NAMED, NothingToSaveError, StateError
from sandfleet_executor.effects.turns import Turns
from sandfleet_executor.effects.variables import Held, Place, Variables
from sandfleet_executor.worker.languages import LANGUAGES, PYTHON

# How long a killed interpreter may take to be gone before the whole namespace is ended, in seconds.
KILL_SECONDS = 10.0
ALL_VARIABLES = "variables"


class Context:
    def __init__(
        self,
        context_id: str,
        cwd: str,
        envs: dict[str, str],
        around: Surroundings,
        *,
        keeps: Keeps = NOTHING,
        language: str = PYTHON,
    ) -> None:
        self.id = context_id
        self.language = language
        self.generation = 0
        self.executions = 0
        self.deleted = False
        self._cwd = cwd
        self._envs = envs
        self._around = around
        self._turns = Turns()
        self._turn = self._turns.lock
        self._interpreter: Interpreter | None = None
        # What the next execution does not find any more.
        self._lost: tuple[str, ...] = ()
        # Whether its state can be copied and saved.
        self._kept = LANGUAGES[language].kept
        self._copies = Keeper(around.copied_bytes() if self._kept else 0, None if self._kept else OTHER_LANGUAGE)
        # What its variables are those of: the number of the last cell that they have seen the end of.
        self._state = 0
        # The last cell that came to its end, whatever has become of its variables.
        self._ended = 0
        self._idle = Pause(lambda: self._copies.idle_seconds, self._when_idle)
        self._copying: asyncio.Task[None] | None = None
        held = Held(context_id, self._turn, lambda: self._interpreter if self.alive else None, lambda: self._state)
        self.variables = Variables(
            held, Place(around.states, around.memory_bytes, around.namespace), keeps.autosave if self._kept else None
        )
        self._keeps = keeps
        # Whether to start from what an executor before has saved; what came of it, and what to say of it.
        self._resume = keeps.resume
        self.resumed: Restored | None = None
        self._brought: tuple[int, int] | None = None

    def sibling(self, context_id: str) -> "Context":
        """One that begins as this one did."""
        keeps = replace(self._keeps, resume=False)
        return Context(context_id, self._cwd, self._envs, self._around, keeps=keeps, language=self.language)

    @property
    def copied_cell(self) -> int:
        """The cell after which the state is kept that a killed one is rolled back to; 0: none is."""
        return self._copies.cell

    @property
    def busy(self) -> bool:
        return self._turns.running is not None

    @property
    def alive(self) -> bool:
        """Whether its interpreter can take a cell."""
        return self._interpreter is not None and self._interpreter.alive

    async def start(self) -> Interpreter:
        """The living interpreter; a fresh one when there is none. Raises NamespaceError."""
        if self._interpreter and self.alive:
            return self._interpreter
        namespace = await self._around.namespace()
        if self._interpreter and not self._lost:
            # It ended between two cells.
            rolled_back = await self._roll_back(namespace)
            self._lost = ("processes",) if rolled_back.done else (ALL_VARIABLES, "processes")
            if rolled_back.done and self._interpreter.alive:
                return self._interpreter
        first = self._interpreter is None
        interpreter = await self._start(namespace)
        if self._resume or not first:
            # What was saved may need them.
            await self._around.settled(None)
            self._resume = False
            await self._bring_back(interpreter, first=first)
            if not self.alive:
                # What was brought back has ended it.
                interpreter = await self._start(namespace)
        return interpreter

    async def _start(self, namespace: Namespace) -> Interpreter:
        self._copies.forget()
        self._state = 0
        self._interpreter = await Interpreter.start(
            namespace, self._cwd, self._envs, {"context_id": self.id, "language": self.language}
        )
        self.generation += 1
        return self._interpreter

    async def begin(self) -> None:
        """Starts, from the newest automatic save where that is asked for. Raises as `start`."""
        async with self._turn:
            if not self._resume:
                await self.variables.forget()
            await self.start()

    async def save(self, name: str, bounds: Bounds) -> Manifest:
        """Saves the variables under the name. Raises StateError and NamespaceError."""
        self._check_kept("save")
        return await self.variables.save(NAMED, name, bounds)

    async def restore(self, name: str, seconds: float) -> Restored:
        """Brings saved variables in. Raises StateError, NamespaceError and BadRequest."""
        self._check_kept("restore")
        await self._around.settled(None)
        async with self._turn:
            restored = await self.variables.restore(await self.start(), NAMED, name, seconds)
        self._have_come()
        self.variables.cell_ended()
        return restored

    def _check_kept(self, verb: str) -> None:
        if not self._kept:
            raise NothingToSaveError(f"cannot {verb} context {self.id}: variables of {self.language} cannot be saved")

    def _have_come(self) -> None:
        """Variables that no cell has made."""
        self._copies.undone += 1
        self._copy_soon()

    async def _bring_back(self, interpreter: Interpreter, *, first: bool) -> None:
        """What comes back is not lost. `first`: nobody knows of cells of an executor before; their numbers go on."""
        try:
            self.resumed = await self.variables.bring_back(interpreter)
        except StateError as error:
            await self.variables.give_up(str(error))
            others = tuple(word for word in self._lost if not word.startswith(ALL_VARIABLES))
            self._lost = (ALL_VARIABLES, *others)
            return
        if self.resumed:
            newest = self.resumed.manifest
            if first:
                self.executions = self._ended = newest.cell
            self._state = newest.cell
            self._have_come()
            self._lost = self._less(self._lost, self.resumed.missing, newest)
            self._brought = (self.resumed.count, newest.cell)

    def _less(self, lost: tuple[str, ...], missing: Sequence[str], newest: Manifest) -> tuple[str, ...]:
        """What is lost although the variables of an automatic save come back."""
        others = tuple(word for word in lost if not word.startswith(ALL_VARIABLES))
        return (*still_lost(missing, newest.cell, self._ended), *others)

    async def run(self, execution: Execution, request: CellRequest) -> None:
        """Runs one cell to its end, which it emits."""
        attributes = {"sandfleet.context.id": self.id, "sandfleet.execution.id": execution.id}
        account = Account(execution, self._around, "execute_cell", request.traceparent, attributes)
        waits = self._turn.locked() or not self.alive
        async with self._turns.of(execution):
            if self.deleted:
                execution.stop(Cause.RESTART, 0)
            if execution.cause is not Cause.NONE:
                self._close_stopped(account)
                return
            await self._run(account, request, waits=waits)

    def _close_stopped(self, account: Account) -> None:
        """Of one that somebody has stopped before it ran."""
        account.execution.emit(Started(account.execution.id, self.id))
        account.close(judge_cell(Facts(cause=account.execution.cause)))

    async def fork(self, others: "Sequence[Context]") -> None:
        """Makes them copies of this one as it is between two cells: all of them, or none. Raises NotCopiedError, NamespaceError."""
        if not self._kept:
            raise copies.NotCopiedError(OTHER_LANGUAGE)
        async with contextlib.AsyncExitStack() as turns:
            # Nothing runs in them before they are what they are to be.
            for each in (self, *others):
                await turns.enter_async_context(each._turn)  # noqa: SLF001 of its own kind
            interpreter = await self.start()
            for each in others:
                await each.variables.forget()
            namespace = await self._around.namespace()
            made = await copies.make(namespace, interpreter, len(others), self._around.memory_bytes())
            begun = [Interpreter.resume(namespace, copy, each.id) for copy, each in zip(made, others, strict=True)]
            went_on = await asyncio.gather(*begun, return_exceptions=True)
            if failed := [each for each in went_on if isinstance(each, BaseException)]:
                for copy in made:
                    copies.end(namespace, copy)
                raise failed[0]
            for each, new in zip(others, went_on, strict=True):
                if isinstance(new, Interpreter):
                    each._take_over(new, self.executions, self._state)  # noqa: SLF001 of its own kind

    def _take_over(self, interpreter: Interpreter, executions: int, state: int) -> None:
        self._interpreter = interpreter
        self.generation = 1
        self.executions, self._state, self._ended = executions, state, state
        if self.deleted:
            interpreter.kill()
            return
        self._copies.undone = UNCOPIED
        self._copy_soon()

    def stop(self, cause: Cause, grace: float, execution_id: str = "") -> bool:
        """Asks the running execution to end, or the one of that id, which may be waiting; False when there is none."""
        found = self._turns.find(execution_id)
        if found:
            found.stop(cause, grace)
        return found is not None

    async def end(self, cause: Cause) -> None:
        """Ends the interpreter with everything below it, and so the running execution."""
        self.stop(cause, 0)
        interpreter, self._interpreter = self._interpreter, None
        self._lost = ()
        self._copies.forget()
        await self.variables.forget()
        if interpreter and not interpreter.ended.done():
            interpreter.kill()
            await asyncio.wait((interpreter.ended,), timeout=KILL_SECONDS)

    async def lose(self) -> None:
        """Ends the interpreter where no cell runs in it; the next cell is told what it does not find any more."""
        if self._interpreter is None or not self.alive or self.busy or self._turn.locked():
            return
        # A cell that comes now waits, and does not begin in the one that ends.
        async with self._turn:
            self._interpreter.kill()
            await asyncio.wait((self._interpreter.ended,), timeout=KILL_SECONDS)

    async def _run(self, account: Account, request: CellRequest, *, waits: bool) -> None:
        execution = account.execution
        try:
            waits = await self._around.settled(execution) or waits
            if execution.cause is not Cause.NONE:
                self._close_stopped(account)
                return
            interpreter = await self.start()
            namespace = await self._around.namespace()
        except (NamespaceError, BadRequest) as error:
            execution.emit(Started(execution.id, self.id))
            account.close(verdict_on(error))
            return
        if self._copies.due and (request.rolls_back or self._copies.may_wait()):
            await self._copy(namespace, interpreter, waited=True)
            waits = True
        self.executions += 1
        notices = self._around.notices(self.id)
        execution.emit(Started(execution.id, self.id, self.executions, self._lost, self._brought, notices))
        self._lost, self._brought = (), None
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
        verdict = judge_cell(facts)
        if not isinstance(end, Done):
            lost, rolled_back = await self._after_a_kill(namespace)
            account.close(verdict, facts, lost=lost, rollback=rolled_back)
            return
        self._ended = self.executions
        if request.rolls_back and verdict.outcome != "ok":
            rolled_back = await self._undo(namespace, interpreter)
            account.close(verdict, facts, lost=self._lost, rollback=rolled_back)
        else:
            account.close(verdict, facts)
            self._has_changed()

    # Copies

    async def settled(self) -> None:
        """Until no copy is being made."""
        if self._copying:
            await asyncio.wait((self._copying,))

    def _has_changed(self) -> None:
        """A cell has ended, and its changes are there."""
        self._state = self.executions
        self._copies.undone += 1
        self._copy_soon()
        self.variables.cell_ended()

    def _copy_soon(self) -> None:
        if self._copies.due:
            self._idle.begin()

    def _when_idle(self) -> None:
        if self._turn.locked() and not self.busy:
            # Its variables are being saved, which takes a moment.
            self._copy_soon()
        # Where the next cell has come already, its end will be the time.
        elif not self._turn.locked() and self.alive and not (self._copying and not self._copying.done()):
            self._copying = asyncio.create_task(self._copy_in_turn())

    async def _copy_in_turn(self) -> None:
        async with self._turn:
            namespace = await self._around.namespace()
            if self._interpreter and self.alive and self._copies.due:
                await self._copy(namespace, self._interpreter, waited=False)

    async def _copy(self, namespace: Namespace, interpreter: Interpreter, *, waited: bool) -> None:
        await self._copies.take(namespace, interpreter, self._state, waited=waited)
        if self._interpreter is not interpreter:
            # The context was restarted or deleted meanwhile.
            self._copies.forget()

    async def _roll_back(self, namespace: Namespace) -> Rollback:
        """In the place of an interpreter that has ended."""
        before = self._interpreter
        went_on = await self._copies.go_on(namespace)
        if isinstance(went_on, Refusal):
            return rollback.refused(went_on)
        interpreter, state, undone = went_on
        if self._interpreter is not before:
            # The context was restarted or deleted meanwhile.
            interpreter.kill()
            return rollback.refused(rollback.COPY_ENDED)
        self._interpreter, self._state = interpreter, state
        self.generation += 1
        self._copy_soon()
        return rollback.done(self._state, undone)

    async def _after_a_kill(self, namespace: Namespace) -> tuple[tuple[str, ...], Rollback | None]:
        """What is lost, and whether the context was rolled back."""
        if self._interpreter is None:
            # It was restarted or deleted: that is what was asked for.
            return self._what_was_lost(namespace), None
        rolled_back = await self._roll_back(namespace)
        if not rolled_back.done:
            return self._what_was_lost(namespace), rolled_back
        self._lost = ("processes",)
        return self._lost, rolled_back

    async def _undo(self, namespace: Namespace, interpreter: Interpreter) -> Rollback:
        """Of a cell that has ended by itself, with the interpreter still there."""
        if why_not := self._copies.why_not():
            self._has_changed()
            return rollback.refused(why_not)
        interpreter.kill()
        await asyncio.wait((interpreter.ended,), timeout=KILL_SECONDS)
        rolled_back = await self._roll_back(namespace)
        self._lost = ("processes",) if rolled_back.done else ("variables", "processes")
        return rolled_back

    def _what_was_lost(self, namespace: Namespace) -> tuple[str, ...]:
        lost: tuple[str, ...] = ("variables", "processes", *(["tmp"] if namespace.ended else []))
        if newest := self.variables.newest:
            lost = self._less(lost, [item.name for item in newest.unsaved], newest)
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
