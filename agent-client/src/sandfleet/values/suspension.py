"""Suspended sessions and snapshots: what is kept of a session, and what comes back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from sandfleet.values import _show
from sandfleet.values.sandbox import Limits
from sandfleet.values.variables import StateItem

# Where a suspended session is kept.
SuspendTo = Literal["volume", "snapshot"]


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

    def __repr__(self) -> str:
        return _show.short("KeptContext", self.in_words, self.reason)

    @property
    def in_words(self) -> str:
        """The context's name, and how many variables are kept."""
        return f"{self.context_id}: {self.variables} variable{'' if self.variables == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class Suspension:
    """What a suspended session keeps beside its files, and what was ended for it.

    until              when the session ends, unless it is resumed before; None: it has no such end.
    ends_with_process  whether it also ends with this process, whose own fleet keeps it, be that before `until`.
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
    ends_with_process: bool = False

    def __repr__(self) -> str:
        until = f"until {self.until:%Y-%m-%d %H:%M:%S %Z}" if self.until else ""
        lost = f"{len(self.lost)} not kept" if self.lost else ""
        return _show.short("Suspension", self.sandbox_id, until, *came_back(self)[:1], lost)

    @property
    def lost(self) -> tuple[str, ...]:
        """Variables that are not kept, as "context: name (reason)"."""
        return missing_of(self.contexts)


@dataclass(frozen=True, slots=True)
class Resumption:
    """What has come back of a suspended session beside its files: contexts with variables, and started services."""

    contexts: tuple[KeptContext, ...] = ()
    services: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return _show.short("Resumption", *came_back(self))

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


def came_back(found: Suspension | Resumption | Restoration) -> tuple[str, str]:
    """Say in short words what there is of contexts and services."""
    contexts = ", ".join(one.in_words for one in found.contexts)
    return contexts, f"services {', '.join(found.services)}" if found.services else ""


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


@dataclass(frozen=True, slots=True)
class UnsavedFile:
    """A file that is not in a snapshot, or not as it was. `path` is relative to /workspace.

    reason  one word: Socket, Device, Pipe, PermissionDenied, TooDeep, Vanished, Changed (it changed while it was read),
            Attributes, ReadFailed, HostFolder (a folder of the machine; `path` is absolute); of a restore NotSupported
            (the file system does not take its attributes).
    """

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class SnapshotContents:
    """What the executor has said of a session when it was saved.

    contexts           how many variables of each context are saved, and which are not.
    services           how many declared services are saved.
    unsaved            files that are not saved, at most 1,000; `unsaved_count` counts all.
    running            executions that ran meanwhile: the files are of a moment in the middle of them.
    frozen             seconds for which the session's processes stood still; 0: they could not be stopped.
    tmp_bytes          what /tmp held, which is not saved.
    """

    contexts: tuple[KeptContext, ...] = ()
    services: int = 0
    unsaved: tuple[UnsavedFile, ...] = ()
    unsaved_count: int = 0
    running: tuple[str, ...] = ()
    frozen: float = 0.0
    tmp_bytes: int = 0

    @property
    def lost(self) -> tuple[str, ...]:
        """What is not saved, in words: variables, then files."""
        words = [*missing_of(self.contexts), *(f"{one.path} ({one.reason})" for one in self.unsaved)]
        if more := self.unsaved_count - len(self.unsaved):
            words.append(f"{more} more files")
        return tuple(words)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A session as it was at one moment: files, saved variables, declared services.

    name          given by the caller; "": none.
    sandbox_id    the sandbox that it was taken of.
    contract      who may run code in a sandbox that begins with it, at most.
    received      what the session had received: "untrusted", "secret".
    reason        manual, suspend, automatic, fork or import.
    entries       files and folders; `size_bytes` is what is in the files, without holes.
    new_bytes     of it, what no earlier snapshot had; `stored_bytes` is what was added to the store.
    contents      None in lists.
    """

    snapshot_id: str
    name: str = ""
    sandbox_id: str = ""
    template: str = ""
    contract: str = "autonomous"
    received: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    labels: Mapping[str, str] = field(default_factory=dict)
    reason: str = "manual"
    created: datetime | None = None
    entries: int = 0
    size_bytes: int = 0
    new_bytes: int = 0
    stored_bytes: int = 0
    contents: SnapshotContents | None = None

    @property
    def id(self) -> str:
        """The same as `snapshot_id`."""
        return self.snapshot_id

    def __repr__(self) -> str:
        named = (self.snapshot_id, self.name, f"sandbox {self.sandbox_id}" if self.sandbox_id else "")
        return _show.short("Snapshot", *named, f"{self.entries:,} entries", f"{self.size_bytes:,} bytes")


@dataclass(frozen=True, slots=True)
class Restoration:
    """What came back of a snapshot.

    contexts          how many variables of each context are back, and which are not.
    services          services that were started again.
    ended_executions  ids of the executions that were ended for it.
    unrestored        files whose attributes the file system does not take.
    """

    snapshot: Snapshot
    contexts: tuple[KeptContext, ...] = ()
    services: tuple[str, ...] = ()
    ended_executions: tuple[str, ...] = ()
    unrestored: tuple[UnsavedFile, ...] = ()

    def __repr__(self) -> str:
        return _show.short("Restoration", self.snapshot.name or self.snapshot.id, *came_back(self))

    @property
    def lost(self) -> tuple[str, ...]:
        """What did not come back, in words."""
        return (*missing_of(self.contexts), *(f"{one.path} ({one.reason})" for one in self.unrestored))

    @property
    def resumption(self) -> Resumption:
        """Contexts and services, as a resumed session says them."""
        return Resumption(self.contexts, self.services)


def reference(snapshot: str | Snapshot) -> str:
    """Return what names a snapshot in a call: its id, or a name."""
    return snapshot.snapshot_id if isinstance(snapshot, Snapshot) else snapshot
