"""Saves and restores the variables of one context, also automatically behind a cell's answer."""

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from sandfleet_executor.core.contexts.autosave import AGAIN_SECONDS, GIVE_WAY_SECONDS, Pace
from sandfleet_executor.core.contexts.states import DEFAULT_SECONDS, Bounds, Manifest
from sandfleet_executor.effects.contexts.interpreter import Interpreter
from sandfleet_executor.effects.contexts.reviewed_states import check_approved
from sandfleet_executor.effects.contexts.state_store import (
    AUTOMATIC,
    NAMED,
    SUSPENDED,
    BrokenOffError,
    Draft,
    NothingToSaveError,
    StateError,
    StateMissingError,
    StateStore,
)
from sandfleet_executor.effects.contexts.state_transfer import Restored, Restoring, Saving
from sandfleet_executor.effects.namespace.children import NamespaceError
from sandfleet_executor.effects.namespace.namespace import Namespace

# How long a restore may take to react to an interrupt before the interpreter is killed, in seconds.
INTERRUPT_SECONDS = 2.0


@dataclass(frozen=True)
class Place:
    """What saving needs of the session. `memory`: the sandbox's limit, in bytes."""

    store: StateStore
    memory: Callable[[], int]
    namespace: Callable[[], Awaitable[Namespace]]


@dataclass(frozen=True)
class Held:
    """What saving needs of its context. `turn` is held by the task that speaks with the interpreter."""

    context_id: str
    turn: asyncio.Lock
    interpreter: Callable[[], Interpreter | None]
    cell: Callable[[], int]


class Variables:
    def __init__(self, held: Held, place: Place, autosave: Bounds | None = None) -> None:
        self._held = held
        self._place = place
        self._autosave = autosave
        self._saving = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._pace = Pace()
        # The newest automatic save; why there is none of the last cell, empty while there is nothing wrong.
        self.newest: Manifest | None = None
        self.problem = ""

    @property
    def automatic(self) -> bool:
        return self._autosave is not None

    async def save(self, kind: str, name: str, bounds: Bounds) -> Manifest:
        """Raises StateError and NamespaceError."""
        held, place = self._held, self._place
        async with self._saving:
            draft = await self._draft(kind, name, bounds.total)
            saving: Saving | None = None
            try:
                async with held.turn:
                    interpreter = held.interpreter()
                    if interpreter is None:
                        raise NothingToSaveError(f"cannot save context {held.context_id}: it has no interpreter now")
                    saving = Saving.open(interpreter.tell, draft, bounds, place.memory())
                    cell = held.cell()
                    await saving.begun()
                with (await place.namespace()).busy():
                    way = self._way() if kind == AUTOMATIC else None
                    return await saving.finish(held.context_id, time.time_ns(), cell, way)
            finally:
                if saving:
                    saving.close()
                # Comes after a write that was given up but still runs.
                asyncio.get_running_loop().run_in_executor(None, draft.discard)

    def _way(self) -> Callable[[], Awaitable[None]]:
        """Waits until no cell runs. The writer of the state can go on only as far as the socket takes."""
        left = GIVE_WAY_SECONDS

        async def give() -> None:
            nonlocal left
            if left <= 0 or not self._held.turn.locked():
                return
            began = time.monotonic()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left), self._held.turn:
                    pass
            left -= time.monotonic() - began

        return give

    async def _draft(self, kind: str, name: str, most: int) -> Draft:
        """Leaves none behind when it is cancelled."""
        making = asyncio.create_task(asyncio.to_thread(self._place.store.begin, kind, name, most))
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            making.add_done_callback(lambda done: None if done.exception() else done.result().discard())
            raise

    async def restore(self, interpreter: Interpreter, kind: str, name: str, seconds: float) -> Restored:
        """Restores into an interpreter; the caller holds its turn. Raises StateError."""
        manifest, fd = await asyncio.to_thread(self._place.store.read, kind, name)
        try:
            # What has this descriptor stays as it is: another state of the name is another file.
            if kind == NAMED:
                await asyncio.to_thread(check_approved, fd, name)
        except BaseException:  # Also a cancellation: no other code has the descriptor.
            os.close(fd)
            raise
        restoring = Restoring.open(interpreter.tell, manifest, fd)
        run = asyncio.create_task(restoring.run())
        try:
            await asyncio.wait((run,), timeout=seconds)
            if not run.done():
                interpreter.interrupt()
                await asyncio.wait((run,), timeout=INTERRUPT_SECONDS)
                restoring.too_slow(seconds)
            if not run.done():
                interpreter.kill()
                await asyncio.wait((run,), timeout=INTERRUPT_SECONDS)
            return await self._concluded(restoring, run, interpreter)
        finally:
            if not run.done():
                interpreter.interrupt()
                run.cancel()
                await asyncio.wait((run,))
            restoring.close()

    async def _concluded(self, restoring: Restoring, run: "asyncio.Task[None]", interpreter: Interpreter) -> Restored:
        if not restoring.ended:
            # The end of a process is known a moment after that of its socket.
            await asyncio.wait((interpreter.ended,), timeout=INTERRUPT_SECONDS)
            if interpreter.ended.done():
                at = f", at {restoring.at.name}" if restoring.at else ""
                raise BrokenOffError(
                    f"cannot restore the variables: the interpreter ended{at}; the context has a fresh one, without any"
                )
            with contextlib.suppress(BrokenOffError):
                run.result()
        return restoring.report()

    # The automatic save

    def cell_ended(self) -> None:
        """There may be something new to save."""
        if self._autosave is not None:
            self._pace.changed(time.monotonic())
            self._arm()

    async def settle(self) -> None:
        """Saves unsaved changes at once: the context is about to end."""
        while self._pace.due is not None or self._saves:
            self._begin()
            if self._task:
                await asyncio.wait((self._task,))

    async def bring_back(self, interpreter: Interpreter, *, kept: bool = False) -> Restored | None:
        """What the newest automatic save has, into a fresh interpreter; None where there is none. Raises StateError.

        `kept`: what a suspension has kept, which is newer, if that is there.
        """
        if kept and (restored := await self._found(interpreter, SUSPENDED, DEFAULT_SECONDS)):
            # The automatic save may be older than that.
            self.cell_ended()
            return restored
        if self._autosave and (restored := await self._found(interpreter, AUTOMATIC, self._autosave.seconds)):
            self.newest = restored.manifest
            return restored
        return None

    async def _found(self, interpreter: Interpreter, kind: str, seconds: float) -> Restored | None:
        with contextlib.suppress(StateMissingError):
            return await self.restore(interpreter, kind, self._held.context_id, seconds)
        return None

    async def forget(self) -> None:
        """Ends a running save and removes the automatic one: the variables are not wanted any more."""
        self._pace.forget()
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._task and self._saves:
            self._task.cancel()
            await asyncio.wait((self._task,))
        self.newest = None
        if self._place.store.exists:
            await asyncio.to_thread(self._place.store.delete, AUTOMATIC, self._held.context_id)

    async def give_up(self, problem: str) -> None:
        """Deletes the newest automatic save, which cannot be restored, so that it is not tried again."""
        self.newest, self.problem = None, problem
        await asyncio.to_thread(self._place.store.delete, AUTOMATIC, self._held.context_id)

    def _arm(self) -> None:
        """One timer, which is set again only when it is over: a cell is not to pay for it."""
        if self._timer is None and (due := self._pace.due) is not None:
            delay = max(0.0, due - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay, self._when_due)

    def _when_due(self) -> None:
        self._timer = None
        now = time.monotonic()
        if self._pace.due is None or self._saves:
            return  # Its end looks whether there is something new.
        if self._pace.due > now:
            self._arm()
        elif self._held.turn.locked() and not self._pace.presses(now):
            self._timer = asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._when_due)
        else:
            # Where a cell runs this comes right after it.
            self._begin()

    @property
    def _saves(self) -> bool:
        return self._task is not None and not self._task.done()

    def _begin(self) -> None:
        if not self._saves:
            self._pace.begins()
            self._task = asyncio.create_task(self._save_automatically())

    async def _save_automatically(self) -> None:
        assert self._autosave is not None
        began = time.monotonic()
        try:
            self.newest = await self.save(AUTOMATIC, self._held.context_id, self._autosave)
            self.problem = ""
        except (StateError, NamespaceError) as error:
            self.problem = str(error)
        finally:
            self._pace.took(time.monotonic() - began)
            self._arm()
