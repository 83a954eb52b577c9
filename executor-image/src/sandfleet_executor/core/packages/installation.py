"""Packages that a template declares: which declarations are valid, and what became of their installation."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from sandfleet_executor.core.errors import BadRequest
from sandfleet_executor.core.executions.events import Finished

MAX_PACKAGES = 64
MAX_REQUIREMENT = 200
# Seconds.
MAX_SECONDS = 3600.0
MAX_LOG_CHARACTERS = 4000
MAX_TEXT = 200


class State(StrEnum):
    """Of one package, and of all of them."""

    # The session has not begun.
    WAITING = "waiting"
    INSTALLING = "installing"
    INSTALLED = "installed"
    FAILED = "failed"
    # Its marker says that it is for another Python or machine.
    NOT_NEEDED = "not-needed"


# What a program in the session may say of one.
SAID = {"installed": State.INSTALLED, "missing": State.FAILED, "not-needed": State.NOT_NEEDED}
ORIGINS = ("", "image", "workspace")


class BadReport(ValueError):
    """The session's report on its packages cannot be read."""


@dataclass(frozen=True)
class Declared:
    """One of them. `version` and `origin` are empty where it is not there."""

    requirement: str
    state: State = State.WAITING
    name: str = ""
    version: str = ""
    origin: str = ""


@dataclass(frozen=True)
class Status:
    """All of them. `reason` is one word in CamelCase, `log` the end of what pip said; both empty unless it failed."""

    state: State = State.WAITING
    declared: tuple[Declared, ...] = ()
    reason: str = ""
    message: str = ""
    log: str = ""

    @property
    def missing(self) -> list[str]:
        return [each.requirement for each in self.declared if each.state is State.FAILED]


def check(values: Any) -> tuple[str, ...]:
    """Raises BadRequest."""
    if not isinstance(values, list | tuple) or len(values) > MAX_PACKAGES:
        raise BadRequest(f"cannot declare packages: they have to be a list of at most {MAX_PACKAGES}")
    return tuple(_check_one(value) for value in values)


def _check_one(value: Any) -> str:
    if not isinstance(value, str) or not value.isascii() or not value.isprintable() or len(value) > MAX_REQUIREMENT:
        raise BadRequest(f"cannot declare package {value!r:.80}: it is no printable text of at most {MAX_REQUIREMENT}")
    try:
        found = Requirement(value)
    except InvalidRequirement as error:
        why = str(error).partition("\n")[0]
        raise BadRequest(f"cannot declare package {value[:80]!r}: {why}") from None
    if found.url:
        raise BadRequest(f"cannot declare package {value[:80]!r}: packages come from the index, not from an address")
    return value


def check_seconds(value: Any) -> float:
    """Raises BadRequest."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_SECONDS:
        raise BadRequest(f"cannot install packages within {value!r:.40} s: it is above 0 and at most {MAX_SECONDS:g}")
    return float(value)


def parse(data: bytes, requirements: Sequence[str]) -> tuple[Declared, ...]:
    """A helper program's report on each requirement, in their order. Raises BadReport."""
    try:
        said = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadReport(f"cannot read what is installed: {error!r:.200}") from error
    return declared(said, requirements)


def declared(said: Any, requirements: Sequence[str]) -> tuple[Declared, ...]:
    """The same, from parsed JSON. Raises BadReport."""
    try:
        if len(said) != len(requirements):
            raise BadReport(f"cannot read what is installed: {len(said)} packages for {len(requirements)}")
        return tuple(_declared(each, wanted) for each, wanted in zip(said, requirements, strict=True))
    except (TypeError, LookupError) as error:
        raise BadReport(f"cannot read what is installed: {error!r:.200}") from error


def _declared(said: Any, requirement: str) -> Declared:
    origin = _text(said["origin"])
    if origin not in ORIGINS:
        raise BadReport(f"cannot read what is installed: {origin!r:.80} is no origin")
    return Declared(requirement, SAID[_text(said["state"])], _text(said["name"]), _text(said["version"]), origin)


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise BadReport(f"cannot read what is installed: {value!r:.80} is no short text")
    # Lone surrogates do not fit into a message of the API.
    return value.encode("utf-8", "replace").decode()


def installed(declared: tuple[Declared, ...]) -> Status:
    """After pip has done its work, or there was none."""
    status = Status(State.INSTALLED, declared)
    if not status.missing:
        return status
    return failed(declared, "NotMet", "pip ended well, but they are not there as they were declared", b"")


def failed(declared: tuple[Declared, ...], reason: str, why: str, log: bytes) -> Status:
    missing = Status(declared=declared).missing
    message = f"cannot install {_listed(missing)}: {why}" if missing else ""
    if not missing:
        # Everything is installed despite the failure: an earlier session did it.
        return Status(State.INSTALLED, declared)
    return Status(State.FAILED, declared, reason, message, tail(log))


def nothing_known(requirements: Sequence[str], state: State) -> tuple[Declared, ...]:
    return tuple(Declared(each, state) for each in requirements)


def tail(log: bytes) -> str:
    """Its last lines, as text."""
    text = log.decode("utf-8", "replace").strip()
    return text if len(text) <= MAX_LOG_CHARACTERS else "…" + text[1 - MAX_LOG_CHARACTERS :].partition("\n")[2]


# Words of pip's log → (reason, why). The first match counts: a cause comes before its consequence, a missing package.
_IN_LOG: tuple[tuple[bytes, str, str], ...] = (
    (b"No space left on device", "DiskLimit", "there was no space left"),
    (b"Disk quota exceeded", "DiskLimit", "there was no space left"),
    (b"ResolutionImpossible", "Conflict", "no versions fit each other and what the image has"),
    (b"Failed to establish a new connection", "IndexUnreachable", "the package index could not be reached"),
    (b"connection broken by", "IndexUnreachable", "the package index could not be reached"),
    (b"No matching distribution found", "NotFound", "the package index has none that fits"),
    (b"subprocess-exited-with-error", "BuildFailed", "a source distribution could not be built"),
    (b"Failed building wheel", "BuildFailed", "a source distribution could not be built"),
    (b"has no pip and no ensurepip", "NoPip", "the image has no pip"),
)
# Of what ends an execution before its own end.
_ENDS = {
    "DeadlineExceeded": "InstallTimeout",
    "MemoryLimit": "MemoryLimit",
    "DiskLimit": "DiskLimit",
    "SessionKilled": "SessionKilled",
    "CommandNotStarted": "NotStarted",
}


def judge(end: Finished, log: bytes) -> tuple[str, str]:
    """(reason, why) of an installation that did not end well."""
    if end.reason in _ENDS:
        return _ENDS[end.reason], end.message[:1].lower() + end.message[1:].rstrip(".")
    for words, reason, why in _IN_LOG:
        if words in log:
            return reason, why
    return "PipFailed", f"pip ended with exit code {end.exit_code}" if end.exit_code else end.message


def renewed(status: Status, found: tuple[Declared, ...]) -> tuple[Declared, ...]:
    """The state of the packages now: code may have installed missing ones, or removed others."""
    return status.declared if status.state in {State.WAITING, State.INSTALLING} else found


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown
