"""The bodies of records that rooms of the session write: of tool calls, reviews and packages."""

import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import Any

from sandfleet_executor.core.journal.blobs import CODE_BYTES, blob, sha256
from sandfleet_executor.core.packages.installation import State, Status
from sandfleet_executor.core.review.answers import Answer as ReviewAnswer
from sandfleet_executor.core.review.answers import Verb
from sandfleet_executor.core.review.subject import Subject
from sandfleet_executor.core.tools.values import Answer, Call, Failure, Value

# (kind, body)
Put = Callable[[str, Mapping[str, Any]], None]
DECISIONS = {Verb.APPROVE: "approved", Verb.EDIT: "edited", Verb.DENY: "denied"}


def unrecorded(_kind: str, _body: Mapping[str, Any]) -> None:
    """Of a session without a journal."""


def tool_call(call: Call, answer: Answer | None, seconds: float, key: bytes | None) -> dict[str, Any]:
    """`key`: of a secret tool, whose values have only a digest with it. No answer: its caller has gone."""
    body = {
        "id": call.id,
        "execution": call.caller.execution_id,
        "context": call.caller.context_id,
        "service": call.caller.service,
        "tool": call.tool[:256],
        "arguments": _value(call.arguments, key),
        "answer": _value(answer, key) if isinstance(answer, Value) else None,
        "error": None,
        "secret": key is not None,
        "seconds": round(seconds, 6),
    }
    if isinstance(answer, Failure):
        message = "" if key else answer.message
        body["error"] = {"kind": answer.kind.value, "reason": answer.reason, "message": message[:1024]}
    elif answer is None:
        body["error"] = {"kind": "withdrawn", "reason": "Withdrawn", "message": ""}
    return body


def _value(value: Value, key: bytes | None) -> dict[str, Any]:
    if key is not None:
        digest = hmac.new(key, value.json, hashlib.sha256)
        for each in value.blobs:
            digest.update(each)
        return {"bytes": value.size, "hmac": digest.hexdigest()}
    parts = [{"bytes": len(each), "sha256": sha256(each)} for each in value.blobs]
    return {**blob(value.json, CODE_BYTES), "blobs": parts} if parts else blob(value.json, CODE_BYTES)


def review(review_id: str, subject: Subject, answer: ReviewAnswer | None) -> dict[str, Any]:
    """No answer: what waited was stopped, or its caller has gone."""
    return {
        "id": review_id,
        "method": subject.method,
        "hash": subject.digest.hex(),
        "execution": subject.execution_id,
        "decision": DECISIONS[answer.verb] if answer else "expired",
        "by": answer.reviewer if answer else None,
        "rule": answer.rule if answer else None,
        "reason": answer.reason if answer else None,
        "edit": answer.edit_digest or None if answer else None,
    }


def packages(status: Status) -> dict[str, Any]:
    """How the installation of the template's packages ended."""
    return {
        "requested": [each.requirement for each in status.declared],
        "installed": [{"name": each.name, "version": each.version} for each in status.declared if each.name],
        "ok": status.state is State.INSTALLED,
        "reason": status.reason,
    }
