"""All contexts of the session, by their ids."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from sandfleet_executor.core.contexts import autosave
from sandfleet_executor.core.contexts.frames import Asked
from sandfleet_executor.core.contexts.states import NOT_PERSISTENT, Persistence
from sandfleet_executor.core.errors import BadRequest, BusyError, ExistsError, NotFoundError
from sandfleet_executor.core.executions.outcomes import Cause
from sandfleet_executor.core.requests import DEFAULT_CONTEXT
from sandfleet_executor.effects.contexts.context import Context
from sandfleet_executor.effects.contexts.interpreter_slot import ContextServices, ContextSpec
from sandfleet_executor.effects.contexts.state_store import NoStateDirError
from sandfleet_executor.effects.contexts.tables import refusal
from sandfleet_executor.effects.namespace.children import NamespaceError
from sandfleet_executor.worker.languages import PYTHON

MAX_CONTEXTS = 64


class Contexts:
    def __init__(
        self,
        services: ContextServices,
        default: Callable[[], ContextSpec],
        check_room: Callable[[int], Awaitable[None]],
    ) -> None:
        """`default` is how the default context begins; `check_room` raises BusyError where so many copies would not
        fit.
        """
        self._services = services
        self._default = default
        self._check_room = check_room
        self._contexts: dict[str, Context] = {}

    def all(self) -> list[Context]:
        return list(self._contexts.values())

    def find(self, context_id: str) -> Context:
        """Raises NotFoundError."""
        if context := self._contexts.get(context_id):
            return context
        raise NotFoundError(f"cannot find context {context_id}: there is none of that name")

    def find_or_default(self, context_id: str, persistence: Persistence = NOT_PERSISTENT) -> Context:
        """The default context is made at its first use. Raises NotFoundError, BusyError and StateError."""
        if context_id == DEFAULT_CONTEXT and context_id not in self._contexts:
            spec = replace(self._default(), persistence=persistence)
            return self._add(Context(spec, self._services))
        return self.find(context_id)

    def language(self, context_id: str) -> str | None:
        """Of a context, also of the default one before its first use; None for one that does not exist."""
        found = self._contexts.get(context_id)
        if found is None:
            return self._default().language if context_id == DEFAULT_CONTEXT else None
        return found.spec.language

    async def create(self, spec: ContextSpec) -> Context:
        """A context whose interpreter runs.

        Raises ExistsError, BusyError, BadRequest, NamespaceError and StateError.
        """
        context = self._add(Context(spec, self._services))
        try:
            await context.begin()
        except (NamespaceError, BadRequest):
            self._contexts.pop(spec.id, None)
            raise
        return context

    def keep(self, spec: ContextSpec) -> Context:
        """A context of a suspended session, to begin. Raises ExistsError, BusyError and StateError."""
        return self._add(Context(spec, self._services))

    async def fork(self, context_id: str, new_ids: Sequence[str]) -> list[Context]:
        """Copies of a context, all of them or none.

        Raises NotFoundError, ExistsError, BusyError, NotCopiedError and NamespaceError.
        """
        origin = self.find(context_id)
        await self._check_room(len(new_ids))
        made: list[Context] = []
        try:
            for each in new_ids:
                made.append(self._add(origin.sibling(each)))  # noqa: PERF401 what was added is known when the next fails
            await origin.fork(made)
        except BaseException:  # A cancellation too: all of them, or none.
            for half_made in made:
                self._contexts.pop(half_made.id, None)
                half_made.deleted = True
                await half_made.end(Cause.RESTART)
            raise
        return made

    async def lend(self, asked: Asked, descriptor: int) -> dict[str, Any]:
        """Has the default context of a language send a table to the descriptor; why it does not, where it does not."""
        name = DEFAULT_CONTEXT if asked.language == PYTHON else f"{DEFAULT_CONTEXT}-{asked.language}"
        if context := self._contexts.get(name):
            return await context.tables.lend(asked.name, descriptor)
        return refusal("NoTable", f"cannot read {asked.name}: there is no context {name} yet")

    async def restart(self, context_id: str) -> Context:
        """The context with a fresh interpreter. Raises NotFoundError and NamespaceError."""
        context = self.find(context_id)
        await context.end(Cause.RESTART)
        await context.start()
        return context

    async def delete(self, context_id: str) -> None:
        context = self._contexts.pop(context_id, None)
        if context:
            context.deleted = True
            await context.end(Cause.RESTART)

    async def end_idle_interpreters(self) -> None:
        """Kills leftover processes of cells; since their owner is unknown, all idle interpreters go too."""
        for context in self._contexts.values():
            await context.lose()

    async def save_last(self) -> None:
        """Saves what automatic saves have not reached yet, for a few seconds at most."""
        saves = [asyncio.create_task(each.variables.settle()) for each in self.all() if each.variables.automatic]
        if saves:
            _, late = await asyncio.wait(saves, timeout=autosave.LAST_SECONDS)
            for each in late:
                each.cancel()

    def _add(self, context: Context) -> Context:
        if context.id in self._contexts:
            raise ExistsError(f"cannot create context {context.id}: it exists")
        if context.variables.automatic and not self._services.states.exists:
            raise NoStateDirError("cannot save automatically: this sandbox has no directory for states")
        if len(self._contexts) >= MAX_CONTEXTS:
            raise BusyError(f"cannot create context {context.id}: {MAX_CONTEXTS} exist")
        self._contexts[context.id] = context
        return context
