"""Facts about the sandbox that its user is told once in each context."""

from collections.abc import Callable, Sequence
from itertools import chain

from sandfleet_executor.core.executions.events import Notice


class Notices:
    def __init__(self, *sources: Callable[[], Sequence[Notice]]) -> None:
        self._sources = sources
        self._added: list[Notice] = []
        self._told: dict[str, set[Notice]] = {}

    def add(self, notice: Notice) -> None:
        """One that no source has: it stays."""
        self._added.append(notice)

    def take(self, context_id: str) -> tuple[Notice, ...]:
        """What the first cell of a context, or the first command ("" for its context), is told."""
        told = self._told.setdefault(context_id, set())
        known = chain(*(source() for source in self._sources), self._added)
        new = tuple(notice for notice in known if notice not in told)
        told.update(new)
        return new

    def forget(self, context_id: str) -> None:
        """The context is deleted: the first cell of a new one of that id is told again."""
        self._told.pop(context_id, None)
