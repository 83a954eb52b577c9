"""What each record of a journal is to a replay: something to do again, something to skip, or a gap."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sandfleet.journal.notebook import UNRECORDED, code_of, items, mapping, text_of, visible
from sandfleet.journal.records import Record


class Need(enum.Enum):
    """What a replay does with a record."""

    # It is done again, and compared.
    DO = "do"
    # It changes nothing that a replay would have to do again.
    NOTHING = "nothing"
    # It is not done again, since it did not come from the agent's code. What depended on it differs, and says so.
    BESIDE = "beside"
    # It cannot be done again: the record does not have what that needs.
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Step:
    """A record as a replay sees it. `why` says what is missing, or why there is nothing to do."""

    record: Record
    need: Need
    why: str = ""
    # The names of environment variables, with the digests of their values.
    envs: Mapping[str, str] | None = None

    @property
    def title(self) -> str:
        """What was done, in a few words."""
        body = self.record.body
        if self.record.kind == "execution":
            lines = code_of(body).strip().splitlines()
            return text_of(lines[0])[:60] if lines else text_of(body.get("type"))
        words = (self.record.kind, body.get("op"), body.get("path") or body.get("context") or body.get("tool"))
        return " ".join(text_of(word) for word in words if word)[:80]


# The kinds of records of which nothing is to be done, and why.
_QUIET = {
    "opened": "the fresh session has a record of its own",
    "packages": "the template installs them",
    "tool_call": "the cell that called has its answers",
    "review": "what was approved is done, what was denied is not",
    "closed": "the session ended",
    "look": "it changes nothing",
    "repaired": "the executor's own note",
    "suspended": "a session sleeps and wakes with its variables",
    "resumed": "a session sleeps and wakes with its variables",
}
_CALLS = {"context", "file", "state", "table"}


def _service(body: Mapping[str, Any]) -> str:
    """Names the services that a record is of."""
    declared = [mapping(each).get("name") for each in items(mapping(body.get("spec")).get("services"))]
    names = [text_of(name) for name in (body.get("name"), *items(body.get("names")), *declared) if name]
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    what = f"service {', '.join(names[:5])}{more}" if names else "services"
    return f"{what} ({text_of(body.get('op'))}): give the fresh sandbox what it needs of them"


def _terminal(body: Mapping[str, Any]) -> str:
    return f"terminal {code_of(body)[:60] or text_of(body.get('id'))}: what a person typed is not in the record"


# What ran beside the agent's code, by kind.
_BESIDE: Mapping[str, Callable[[Mapping[str, Any]], str]] = {"service": _service, "terminal": _terminal}


def step_of(record: Record) -> Step:
    """Decide what a replay does with a record."""
    kind, body = record.kind, record.body
    if "cut_record" in body:
        return Step(record, Need.MISSING, "the record was too large and has only its digest")
    if kind == "gap":
        return Step(record, Need.MISSING, f"{text_of(body.get('missed'))} records could not be written here")
    if kind == "execution":
        return _execution(record)
    if kind == "file":
        return _file(record)
    if kind in _CALLS:
        return Step(record, Need.DO, envs=digests(body.get("env")))
    if kind in _QUIET:
        return Step(record, Need.NOTHING, _QUIET[kind])
    if kind in _BESIDE:
        return Step(record, Need.BESIDE, _BESIDE[kind](body))
    what = f"the call {text_of(body.get('method'))}" if kind == "call" else f"a record of the kind {visible(kind)}"
    return Step(record, Need.MISSING, f"this release does not know how to do {what} again")


# Ends that come from outside: the record cannot say how far the code had run.
_FROM_OUTSIDE = {"interrupted": "was interrupted", "killed": "was killed", "lost": "was lost with its executor"}


def _execution(record: Record) -> Step:
    body = record.body
    end = str(body.get("outcome"))
    code, stdin = mapping(body.get("code")), mapping(body.get("stdin"))
    if body.get("unrecorded"):
        return Step(record, Need.MISSING, f"it {UNRECORDED}")
    if end == "denied":
        return Step(record, Need.NOTHING, "it was denied, and did not run")
    if end in _FROM_OUTSIDE:
        return Step(record, Need.MISSING, f"it {_FROM_OUTSIDE[end]}, and how far it had run is not known")
    if body.get("signals"):
        return Step(record, Need.MISSING, "it got signals, and when is not in the record")
    if code.get("cut") or stdin.get("cut"):
        return Step(record, Need.MISSING, f"its {'code' if code.get('cut') else 'input'} is too large for the record")
    if not isinstance(code.get("text"), str) and not items(body.get("argv")):
        return Step(record, Need.MISSING, "its code is not in the record")
    return Step(record, Need.DO, envs=digests(body.get("env")))


def digests(envs: object) -> dict[str, str]:
    """Return the names of recorded variables with the digests of their values; "" where the record has only names."""
    names = {str(name): "" for name in items(envs)}
    return names | {str(name): str(digest) for name, digest in mapping(envs).items()}


def _file(record: Record) -> Step:
    body = record.body
    if body.get("failed"):
        return Step(record, Need.MISSING, "it failed half-way, and how far it went is not known")
    if body.get("op") in ("write", "extract") and not isinstance(body.get("content"), str):
        return Step(record, Need.MISSING, f"its {text_of(body.get('size'))} bytes are too many for the record")
    return Step(record, Need.DO)
