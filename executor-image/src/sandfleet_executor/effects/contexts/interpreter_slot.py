"""The slot of a context's interpreter: it is started there, copied while idle, and rolled back to its copy."""

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from sandfleet_executor.core.contexts import rollback
from sandfleet_executor.core.contexts.rollback import OTHER_LANGUAGE, Refusal
from sandfleet_executor.core.contexts.states import NOT_PERSISTENT, Persistence
from sandfleet_executor.core.executions.events import Rollback
from sandfleet_executor.core.review import subject as reviewed
from sandfleet_executor.effects.contexts.copies import UNCOPIED, Keeper
from sandfleet_executor.effects.contexts.idle_timer import IdleTimer
from sandfleet_executor.effects.contexts.interpreter import Interpreter, Lend
from sandfleet_executor.effects.contexts.queue import CellQueue
from sandfleet_executor.effects.contexts.state_store import StateStore
from sandfleet_executor.effects.executions.meter import SessionServices
from sandfleet_executor.effects.namespace.namespace import Namespace
from sandfleet_executor.worker.languages import PYTHON, declared

# How long a killed interpreter may take to be gone before the whole namespace is ended, in seconds.
KILL_SECONDS = 10.0


@dataclass(frozen=True)
class ContextSpec:
    """How a context begins."""

    id: str
    cwd: str
    envs: dict[str, str] = field(default_factory=dict)
    language: str = PYTHON
    persistence: Persistence = NOT_PERSISTENT

    @property
    def can_be_kept(self) -> bool:
        """Whether its state can be copied and saved."""
        return declared(self.language).kept


@dataclass(frozen=True)
class ContextServices:
    """What contexts need of their session beside what every execution needs."""

    session: SessionServices
    # Where variables are saved.
    states: StateStore
    # Largest interpreter that is copied so that a cell can be rolled back, in bytes; 0: none is.
    copied_bytes: Callable[[], int]
    # The limit of the sandbox's memory.
    memory_bytes: Callable[[], int]
    # The session's contexts lend each other tables.
    lend: Lend


@dataclass
class CellNumbers:
    """Of a context: the last cell that began, the last that ended, and the last whose changes the interpreter has."""

    begun: int = 0
    ended: int = 0
    of_state: int = 0


class InterpreterSlot:
    def __init__(self, spec: ContextSpec, services: ContextServices, queue: CellQueue) -> None:
        self.interpreter: Interpreter | None = None
        self.generation = 0
        self.cells = CellNumbers()
        # The interpreter that is there or comes next: its name, as reviewers' rules know it, and how many cells have
        # begun in it. The name is empty where it has variables that are not its cells'.
        self._incarnation, self._ran = secrets.token_hex(8), 0
        kept = spec.can_be_kept
        self.copies = Keeper(services.copied_bytes() if kept else 0, None if kept else OTHER_LANGUAGE)
        self._spec = spec
        self._services = services
        self._queue = queue
        self._idle = IdleTimer(lambda: self.copies.idle_seconds, self._when_idle)
        self._copying: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        """Whether the interpreter can take a cell."""
        return self.interpreter is not None and self.interpreter.alive

    @property
    def living(self) -> Interpreter | None:
        return self.interpreter if self.alive else None

    @property
    def runs_in(self) -> reviewed.Interpreter:
        """The interpreter that the next cell gets, for a reviewer; without a name where a copy may take its place."""
        ended = self.interpreter is not None and not self.alive
        return reviewed.Interpreter(self._spec.language, "" if ended else self._incarnation, self._ran)

    def cell_begins(self) -> None:
        self.cells.begun += 1
        self._ran += 1

    def _renamed(self) -> None:
        self._incarnation, self._ran = secrets.token_hex(8), 0

    async def start_fresh(self, namespace: Namespace) -> Interpreter:
        """Raises NamespaceError."""
        if self.interpreter is not None:
            self._renamed()
        self.copies.forget()
        self.cells.of_state = 0
        options = {
            "context_id": self._spec.id,
            "language": self._spec.language,
            "memory_bytes": self._services.memory_bytes(),
            "reviewed": self._services.session.reviews.required,
            "brokered": self._services.session.tools.brokered,
        }
        announced = declared(self._spec.language).announced
        started = Interpreter.start(namespace, self._spec.cwd, self._spec.envs, options, announced=announced)
        self.interpreter = await started
        self.generation += 1
        return self.interpreter

    def take_over(self, interpreter: Interpreter, origin: CellNumbers) -> None:
        """A forked interpreter goes on here, from where its origin was."""
        self.interpreter, self._incarnation = interpreter, ""
        self.generation = 1
        self.cells = CellNumbers(origin.begun, origin.of_state, origin.of_state)

    def leave(self) -> Interpreter | None:
        """Empties the slot and drops the copy; the interpreter that was there, if any."""
        interpreter, self.interpreter = self.interpreter, None
        self._renamed()
        self.copies.forget()
        return interpreter

    # Copies

    def cell_comes(self) -> bool:
        """Whether it has to wait: for what holds the queue, or for an interpreter."""
        self.copies.cell_comes(waits=self._queue.running is not None)
        return self._queue.lock.locked() or not self.alive

    def changed_by_cell(self) -> None:
        """A cell has ended, and its changes are there."""
        self.cells.of_state = self.cells.begun
        self.copies.cell_ended()
        self.copy_when_idle()

    def changed(self) -> None:
        """The variables changed, and not by a cell."""
        self._incarnation = ""
        self.copies.undone += 1
        self.copy_when_idle()

    def forked(self) -> None:
        """A copy is due although there is nothing to undo."""
        self.copies.undone = UNCOPIED
        self.copy_when_idle()

    def copy_when_idle(self) -> None:
        if self.copies.due:
            self._idle.restart()

    def _when_idle(self) -> None:
        locked, busy = self._queue.lock.locked(), self._queue.running is not None
        if locked and not busy:
            # The variables are being saved, which takes a moment.
            self.copy_when_idle()
        # If the next cell runs already, the copy comes after its end.
        elif not locked and self.alive and not (self._copying and not self._copying.done()):
            self._copying = asyncio.create_task(self._copy_in_turn())

    async def _copy_in_turn(self) -> None:
        async with self._queue.lock:
            namespace = await self._services.session.namespace()
            if self.interpreter and self.alive and self.copies.due:
                await self.copy(namespace, self.interpreter, waited=False)

    async def copy(self, namespace: Namespace, interpreter: Interpreter, *, waited: bool) -> None:
        await self.copies.take(namespace, interpreter, self.cells.of_state, waited=waited)
        if self.interpreter is not interpreter:
            # The context was restarted or deleted meanwhile.
            self.copies.forget()

    async def roll_back(self, namespace: Namespace) -> Rollback:
        """Puts the copy in the place of an interpreter that has ended."""
        before = self.interpreter
        went_on = await self.copies.go_on(namespace)
        if isinstance(went_on, Refusal):
            return rollback.refused(went_on)
        interpreter, cell, undone = went_on
        if self.interpreter is not before:
            # The context was restarted or deleted meanwhile.
            interpreter.kill()
            return rollback.refused(rollback.COPY_ENDED)
        self.interpreter, self.cells.of_state, self._incarnation = interpreter, cell, ""
        self.generation += 1
        self.copy_when_idle()
        return rollback.done(cell, undone)


async def kill(interpreter: Interpreter) -> None:
    """Ends the interpreter and waits until it is gone, for KILL_SECONDS at most."""
    interpreter.kill()
    await asyncio.wait((interpreter.ended,), timeout=KILL_SECONDS)
