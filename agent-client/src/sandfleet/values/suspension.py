"""Suspended sessions: what is kept of one, and what comes back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from sandfleet.values.variables import StateItem


@dataclass(frozen=True, slots=True)
class KeptContext:
    """A context of a suspended session.

    variables  how many of its variables are kept (of a `Resumption`: are back).
    missing    those that are not, by name, with the reason; `omitted`: how many more there are.
    reason     why none of them is, in one word (NotSupported: variables of its language cannot be saved; NothingToSave,
               NoStateDirectory, NoSpace, TooManyStates, TooSlow, BrokenOff, StateDamaged, NotStarted); "" if that is
               not so. `message` says it in a sentence.
    """

    context_id: str
    language: str = "python"
    variables: int = 0
    missing: tuple[StateItem, ...] = ()
    omitted: int = 0
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Suspension:
    """What a suspended session keeps beside its files, and what was ended for it.

    until              when the session ends, unless it is resumed before; None: it has no such end.
    services           the services that start again.
    ended_executions   ids of the executions that were running, which only `force` ends.
    ended_connections  connections to ports that were open, as well.
    tmp_bytes          what was in /tmp, which is never kept.
    snapshot_id        of `suspend(to="snapshot")`: the snapshot that keeps the session; else "".
    known              False: it was suspended before, and its fleet does not know any more what was kept. `Resumption`
                       says it.
    """

    sandbox_id: str
    until: datetime | None = None
    contexts: tuple[KeptContext, ...] = ()
    services: tuple[str, ...] = ()
    ended_executions: tuple[str, ...] = ()
    ended_connections: int = 0
    tmp_bytes: int = 0
    known: bool = True
    snapshot_id: str = ""

    @property
    def lost(self) -> tuple[str, ...]:
        """Variables that are not kept, as "context: name (reason)"."""
        return missing_of(self.contexts)


@dataclass(frozen=True, slots=True)
class Resumption:
    """What has come back of a suspended session beside its files: contexts with variables, and started services."""

    contexts: tuple[KeptContext, ...] = ()
    services: tuple[str, ...] = ()

    @property
    def lost(self) -> tuple[str, ...]:
        """Variables that are not back, as "context: name (reason)"."""
        return missing_of(self.contexts)


@dataclass(frozen=True, slots=True)
class Preemption:
    """A session on borrowed quota was suspended for the owner of the quota. It is resumed by itself, in its old place.

    noticed   when this client has heard of it.
    message   why, for people.
    """

    sandbox_id: str
    noticed: datetime
    message: str = ""


# Called with each preemption that a client hears of.
OnPreempted = Callable[[Preemption], object]


def missing_of(contexts: tuple[KeptContext, ...]) -> tuple[str, ...]:
    """Name the missing variables of contexts."""
    words: list[str] = []
    for one in contexts:
        if one.reason and one.reason != "NothingToSave":
            words.append(f"{one.context_id}: all variables ({one.reason})")
        words += [f"{one.context_id}: {item.name} ({item.reason})" for item in one.missing]
        if one.omitted:
            words.append(f"{one.context_id}: {one.omitted} more")
    return tuple(words)
