"""The control plane's decisions as records: who asked for what, what was decided, and why.

docs/reference/audit.md is made from this file by scripts/reference.py. A record has names, numbers and words of this
project alone: never code, files, environment variables, messages or tokens.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Self

VERSION = 1
# Characters of one text in a record: names are shorter, and what callers send has no bound of its own.
MAX_TEXT = 256


class Verdict(Enum):
    """What became of it."""

    meaning: str

    ALLOWED = ("allowed", "It was done, or was given.")
    REFUSED = ("refused", "It was not done; `reason` says why.")
    WITHDRAWN = ("withdrawn", "The caller left before the answer.")

    def __new__(cls, word: str, meaning: str) -> Self:
        one = object.__new__(cls)
        one._value_, one.meaning = word, meaning
        return one


class Decision(Enum):
    """A kind of decision: its word, what it means, and the details that its records may have."""

    meaning: str
    details: tuple[str, ...]

    CLAIM = (
        "claim",
        "A claim was answered with a sandbox, refused, or left by its caller.",
        ("request_id", "template", "pool", "queue", "contract", "sandbox_uid", "lease_expires", "token_id", "expires"),
    )
    ACCESS = (
        "access",
        "A caller got, or did not get, a token for a sandbox's executor or the way to it through the gateway.",
        ("sandbox_uid", "by", "token_id", "expires"),
    )
    RENEWAL = (
        "renewal",
        "The lease of a session was prolonged, with a new token for its caller, or was not.",
        ("sandbox_uid", "lease_expires", "token_id", "expires"),
    )
    RELEASE = ("release", "A caller ended a session.", ())
    SUSPENSION = (
        "suspension",
        "A caller had a session suspended. With a `snapshot_id` nothing but that snapshot is left of it.",
        ("force", "snapshot_id"),
    )
    RESUMPTION = (
        "resumption",
        "A caller took a suspended session on.",
        ("sandbox_uid", "lease_expires", "token_id", "expires"),
    )
    PREEMPTION = (
        "preemption",
        "The fleet took a session's quota back for its owner, and keeps the session.",
        ("sandbox_uid", "holder", "queue"),
    )
    REVIEW = (
        "review",
        "A reviewer, or a rule, answered what waits for approval in a reviewed sandbox.",
        ("review_id", "digest", "answer", "rule", "method"),
    )
    MARK = ("mark", "A host of tools noted what a session has received.", ("marks",))
    JOURNAL = (
        "journal",
        "The fleet read the newest record of a session's journal and signed it, or found that what it had signed is gone.",
        ("sandbox_uid", "number", "hash", "time", "key_id", "public_key", "signature", "key_signature"),
    )
    EGRESS = (
        "egress",
        "The operator made, changed or removed a NetworkPolicy: what sandboxes can reach, and what reaches them.",
        ("policy", "change"),
    )
    EGRESS_LIST = ("egress_list", "A caller changed which hosts a session may reach by name.", ("names",))
    CONNECTION = (
        "connection",
        "Programs of a session connected to a host by its name, or were refused it; `connections` of them within a moment.",
        ("host", "port", "address", "connections"),
    )
    SNAPSHOT = (
        "snapshot",
        "A session was saved into a snapshot: for a caller, for a suspension, or by itself; or a deleted one came back.",
        ("snapshot_id", "name", "purpose", "bytes", "stored_bytes"),
    )
    RESTORATION = (
        "restoration",
        "A snapshot was put into a sandbox: for a caller, or for a session that goes on.",
        ("snapshot_id", "purpose", "force"),
    )
    DELETION = (
        "deletion",
        "A snapshot was deleted: for a caller, or since its session goes on or has ended.",
        ("snapshot_id", "purpose"),
    )
    EXPORT = ("export", "A caller got a snapshot as a file, which is not encrypted.", ("snapshot_id",))
    IMPORT = ("import", "A caller made a snapshot of a file. It counts as untrusted.", ("snapshot_id", "name", "bytes"))
    END = (
        "end",
        "A session ended. `reason` is one of the reasons of an end.",
        ("sandbox_uid", "holder", "queue", "restarts"),
    )

    def __new__(cls, word: str, meaning: str, details: tuple[str, ...]) -> Self:
        one = object.__new__(cls)
        one._value_, one.meaning, one.details = word, meaning, details
        return one


@dataclass(frozen=True, slots=True)
class Actor:
    """Who asked. Empty: the control plane itself decided."""

    username: str = ""
    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One decision. Raises ValueError for a detail that its kind does not have."""

    decision: Decision
    verdict: Verdict
    # A word of docs/reference/reasons.md, empty where none is needed.
    reason: str = ""
    actor: Actor = Actor()
    namespace: str = ""
    # The CodeSandbox or the session; empty where there is none yet.
    sandbox: str = ""
    # 32 hexadecimal digits of the trace that the request belongs to.
    trace_id: str = ""
    details: Mapping[str, str | int | float | bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if foreign := sorted(self.details.keys() - set(self.decision.details)):
            raise ValueError(f"cannot record {self.decision.value}: it has no detail {', '.join(foreign)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """The process that writes records."""

    component: str
    # Of the process; a restart has another one.
    instance: str = ""


def as_json(record: Record, writer: Writer, number: int, now: float) -> dict[str, Any]:
    """`number` counts the records of the process from 1: a gap is a lost record. `now`: seconds since the epoch."""
    return {
        "version": VERSION,
        "time": round(now, 3),
        "component": writer.component,
        "instance": _short(writer.instance),
        "number": number,
        "decision": record.decision.value,
        "verdict": record.verdict.value,
        "reason": _short(record.reason),
        "actor": {"username": _short(record.actor.username), "uid": _short(record.actor.uid)},
        "namespace": _short(record.namespace),
        "sandbox": _short(record.sandbox),
        "trace_id": _short(record.trace_id),
        "details": {key: _short(value) for key, value in sorted(record.details.items())},
    }


def _short(value: Any) -> Any:
    return value[:MAX_TEXT] if isinstance(value, str) else value


# Each field of a record, for the reference.
FIELDS = {
    "version": f"{VERSION}. A new field does not change it; another meaning of a field does.",
    "time": "Seconds since the epoch, by the clock of the process.",
    "component": "`fleet` or `operator`.",
    "instance": "The process. A restarted process has another name.",
    "number": "Counts the records of the process from 1. A gap means that records were lost.",
    "decision": "What was decided; see below.",
    "verdict": "What became of it; see below.",
    "reason": "Why, as one word of [reasons.md](reasons.md). Empty where the verdict needs no reason.",
    "actor": "`username` and `uid` of the caller, as the API server knows them. Empty: the control plane itself.",
    "namespace": "Of the sandbox. Empty on one machine.",
    "sandbox": "The name of the session. Empty where there is none.",
    "trace_id": "The trace of the caller's step, where the request carried one.",
    "details": "What else the kind of decision has; see below.",
}
