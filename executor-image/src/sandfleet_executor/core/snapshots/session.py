"""What of a saved session is no file, and what is said about it."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from sandfleet_executor.core.errors import RpcError
from sandfleet_executor.core.executions.events import Notice
from sandfleet_executor.core.limits import Limits
from sandfleet_executor.core.snapshots.entries import Totals, Unsaved
from sandfleet_executor.core.suspension.record import ContextReport, KeptContext, Record


class SnapshotRunningError(
    RpcError, RuntimeError, code="FAILED_PRECONDITION", reason="SnapshotRunning", retryable=True
):
    """Another snapshot or restore is at work."""


class NotEmptyError(RpcError, RuntimeError, code="FAILED_PRECONDITION", reason="WorkspaceNotEmpty"):
    """The workspace has files, and they are not to be replaced."""


class NoSessionError(RpcError, RuntimeError, code="FAILED_PRECONDITION", reason="NoSession", retryable=True):
    """The sandbox is not bound to a session yet."""


class SessionOpenError(RpcError, RuntimeError, code="FAILED_PRECONDITION", reason="SessionOpen"):
    """The sandbox is not warm any more."""


class NotPreparableError(RpcError, RuntimeError, code="FAILED_PRECONDITION", reason="NotPreparable"):
    """Nothing of the sandbox outlives its executor, so that it cannot keep variables for a session."""


@dataclass(frozen=True)
class Found:
    """What the executor says of a session. `created` in nanoseconds of the epoch, times in seconds."""

    record: Record
    reports: tuple[ContextReport, ...]
    contract: str
    limits: Limits
    created: int
    journal: tuple[int, str]
    python: str
    packages: tuple[tuple[str, str, str], ...]
    running: tuple[str, ...]
    frozen_seconds: float
    walk_seconds: float
    tmp_bytes: int
    unsaved: Unsaved
    # Of a save that is the session's last: executions and connections that were ended for it.
    ended: tuple[str, ...] = ()
    ended_connections: int = 0
    # Of a save that a later one can build on; empty: none can.
    save_id: str = ""


@dataclass(frozen=True)
class Wanted:
    """What a restore brings beside files. `replace`: what is there gives way; `force`: executions too."""

    record: Record
    replace: bool
    force: bool
    # What the session did after this time is undone, in seconds of the epoch; None: it was not lost.
    undone_since: float | None = None
    # The snapshot that a warm sandbox is filled with, whose session comes later; empty: of a session.
    prepare: str = ""


WENT_BACK = "WentBack"


def went_back(since: float) -> Notice:
    moment = datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    why = "the sandbox was lost and goes on from a snapshot"
    return Notice(WENT_BACK, f"{why}: what was done after {moment} is undone, in files, variables and services")


@dataclass(frozen=True)
class Restored:
    totals: Totals
    unrestored: Unsaved
    ended_executions: tuple[str, ...]


def kept(contexts: tuple[KeptContext, ...], saved: frozenset[str]) -> tuple[KeptContext, ...]:
    """The contexts, of which those in `saved` have their variables in the snapshot."""
    return tuple(replace(one, saved=one.id in saved) for one in contexts)
