"""What a suspended session keeps beside its files: a record for the next executor, and what callers are told."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sandfleet_executor.core.contexts.states import Bounds, Item
from sandfleet_executor.core.errors import RpcError

# Variables of one session that are listed as missing; the others are counted.
MAX_LISTED = 500
# Executors that may try to bring back what is kept: each of those before has ended at it.
MAX_TRIES = 3


class BadRecord(ValueError):
    """Not what a record looks like."""


class InUseError(RpcError, RuntimeError):
    """Something runs or is open that a suspension would end. `reason` is a word for programs."""

    def __init__(self, reason: str, why: str) -> None:
        super().__init__(f"cannot suspend the sandbox: {why}")
        self.reason = reason
        self.retryable = True


class NotSavedError(RpcError, RuntimeError, code="FAILED_PRECONDITION", reason="StateNotSaved"):
    """The variables of a whole context cannot be kept."""


@dataclass(frozen=True)
class ContextReport:
    """Of one context: how many variables are kept (or came back), and which are not. `reason`: why none is."""

    id: str
    language: str
    variables: int = 0
    missing: tuple[Item, ...] = ()
    omitted: int = 0
    reason: str = ""
    message: str = ""


@dataclass(frozen=True)
class Suspension:
    """What is kept, and what was ended for it."""

    contexts: tuple[ContextReport, ...] = ()
    services: tuple[str, ...] = ()
    ended_executions: tuple[str, ...] = ()
    ended_connections: int = 0
    tmp_bytes: int = 0


@dataclass(frozen=True)
class Resumption:
    """What has come back."""

    contexts: tuple[ContextReport, ...] = ()
    services: tuple[str, ...] = ()


@dataclass(frozen=True)
class KeptContext:
    """How a context begins again. `saved`: the store has its variables; else `reason` and `message` say why not."""

    id: str
    language: str
    cwd: str
    envs: Mapping[str, str]
    autosave: Bounds | None
    saved: bool
    reason: str = ""
    message: str = ""


@dataclass(frozen=True)
class Record:
    """What the next executor of the session reads."""

    session_id: str
    contexts: tuple[KeptContext, ...] = ()
    # Declared by callers, encoded; those of the template come with it.
    services: tuple[bytes, ...] = ()
    # Those of all that were not to run.
    stopped: tuple[str, ...] = ()
    # Executors that have begun to bring it back.
    tries: int = 0
    # The snapshot that a warm sandbox was filled with: of the first session that opens. Empty: of `session_id`.
    snapshot: str = ""

    def is_of(self, session_id: str) -> bool:
        return bool(self.snapshot) or self.session_id == session_id

    def encode(self) -> bytes:
        said = asdict(self) | {"services": [base64.b64encode(one).decode("ascii") for one in self.services]}
        return json.dumps(said, separators=(",", ":")).encode("ascii")


def decode(text: bytes) -> Record:
    """Raises BadRecord."""
    try:
        said = json.loads(text)
        return Record(
            session_id=str(said["session_id"]),
            contexts=tuple(map(_context, said["contexts"])),
            services=tuple(base64.b64decode(one, validate=True) for one in said["services"]),
            stopped=tuple(map(str, said["stopped"])),
            tries=int(said["tries"]),
            snapshot=str(said.get("snapshot", "")),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadRecord(f"cannot read what the suspended session has kept: {error}") from error


def _context(said: Mapping[str, Any]) -> KeptContext:
    bounds = said["autosave"]
    envs = {str(name): str(value) for name, value in said["envs"].items()}
    return KeptContext(**{**said, "envs": envs, "autosave": Bounds(**bounds) if bounds else None})


def bounded(reports: Sequence[ContextReport]) -> tuple[ContextReport, ...]:
    """The reports with at most MAX_LISTED missing variables in all of them."""
    left, found = MAX_LISTED, []
    for one in reports:
        listed = one.missing[:left]
        left -= len(listed)
        cut = len(one.missing) - len(listed)
        found.append(
            ContextReport(one.id, one.language, one.variables, listed, one.omitted + cut, one.reason, one.message)
        )
    return tuple(found)


def own_envs(envs: Mapping[str, str], of_session: Mapping[str, str]) -> dict[str, str]:
    """The variables of a context that its session does not give it."""
    return {name: value for name, value in envs.items() if of_session.get(name) != value}
