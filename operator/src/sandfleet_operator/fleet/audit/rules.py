"""Which decisions of a fleet leave a record: each call of the API, and what the scheduler decides by itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jwt
from sandfleet_api.fleet.v1 import fleet_pb2

from sandfleet_operator.api.values import Sandbox
from sandfleet_operator.plan.audit import Decision, Record, Verdict
from sandfleet_operator.plan.scheduler.actions import Action, Gone, Suspend

Details = dict[str, str | int | float | bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How the records of one RPC are made.

    `about` gives the sandbox's id, `asked` what is said in any case and `given` what is said of an allowed call.
    `applies` is false of requests that ask for no decision; a stream is answered by a message of which `answers` holds.
    """

    decision: Decision
    about: Callable[[Any, Any], str] = lambda request, _: str(request.sandbox_id)
    asked: Callable[[Any], Details] = lambda _: {}
    given: Callable[[Any], Details] = lambda _: {}
    applies: Callable[[Any], bool] = lambda _: True
    answers: Callable[[Any], bool] = lambda _: True
    # Only refusals have a record.
    quiet: bool = False


def _claim_asked(request: Any) -> Details:
    named = ("request_id", "template", "pool", "queue", "contract")
    return {name: value for name in named if (value := getattr(request, name))}


def _token(access: Any) -> Details:
    """The token that the caller got, by its id: never the token itself."""
    try:
        claims = jwt.decode(access.token, options={"verify_signature": False})
    except jwt.PyJWTError:
        return {}
    return {"token_id": str(claims.get("jti", "")), "expires": _seconds(access.token_expires)}


def _bound_details(answer: Any) -> Details:
    sandbox = answer.bound.sandbox
    return {
        "sandbox_uid": sandbox.sandbox_uid,
        "lease_expires": _seconds(sandbox.lease_expires),
        **_token(answer.bound.access),
    }


def _renewed_details(answer: Any) -> Details:
    sandbox = answer.sandbox
    said: Details = {"sandbox_uid": sandbox.sandbox_uid, "lease_expires": _seconds(sandbox.lease_expires)}
    return said | _token(answer.access)


def _claim_details(answer: Any) -> Details:
    sandbox = answer.bound.sandbox
    return {"template": sandbox.template, "pool": sandbox.pool, **_bound_details(answer)}


def _get_details(answer: Any) -> Details:
    return {"sandbox_uid": answer.sandbox.sandbox_uid, **_token(answer.access)}


def _review_asked(request: Any) -> Details:
    answer = request.WhichOneof("answer") or ""
    return {"review_id": request.review_id, "digest": request.digest.hex(), "answer": answer}


def _mark(number: int) -> str:
    known: dict[int, str] = {fleet_pb2.MARK_UNTRUSTED: "untrusted", fleet_pb2.MARK_SECRET: "secret"}
    return known.get(number, "unknown")


def _seconds(time: Any) -> float:
    return float(round(time.seconds + time.nanos / 1e9, 3))


def _has_bound(message: Any) -> bool:
    return bool(message.HasField("bound"))


# Each RPC of FleetService. None: it decides nothing, or only shows what the caller may see.
RULES: Mapping[str, Rule | None] = {
    # The claim's answer gives access, too.
    "Claim": Rule(
        decision=Decision.CLAIM,
        about=lambda request, answer: str(answer.bound.sandbox.sandbox_id if answer else request.namespace + "/"),
        asked=_claim_asked,
        given=_claim_details,
        answers=_has_bound,
    ),
    "Release": Rule(decision=Decision.RELEASE),
    "Renew": Rule(decision=Decision.RENEWAL, given=_renewed_details),
    "Suspend": Rule(
        decision=Decision.SUSPENSION,
        asked=lambda request: {"force": request.force},
        given=lambda answer: {"snapshot_id": answer.snapshot_id} if answer.snapshot_id else {},
    ),
    "Resume": Rule(decision=Decision.RESUMPTION, given=_bound_details, answers=_has_bound),
    "Get": Rule(
        decision=Decision.ACCESS,
        asked=lambda _: {"by": "Get"},
        given=_get_details,
        applies=lambda request: bool(request.with_access),
    ),
    "Route": Rule(
        decision=Decision.ACCESS,
        asked=lambda _: {"by": "Route"},
        given=lambda answer: {"sandbox_uid": answer.sandbox_uid},
    ),
    "NoteReceived": Rule(
        decision=Decision.MARK,
        asked=lambda request: {"marks": " ".join(sorted(_mark(one) for one in set(request.marks)))},
        applies=lambda request: bool(request.marks),
    ),
    "AnswerReview": Rule(decision=Decision.REVIEW, asked=_review_asked),
    # The witness writes a record of each signature.
    "CountersignJournal": None,
    "List": None,
    "Watch": None,
    "ListPools": None,
    "ListQueues": None,
    "Explain": None,
    "ListReviews": None,
    "WatchReviews": None,
    # The reviewer decides, by AnswerReview.
    "ReviewCall": None,
}


def _saved(answer: Any) -> Details:
    one = answer.snapshot
    sizes = {"bytes": one.bytes, "stored_bytes": one.stored_bytes}
    return {"snapshot_id": one.snapshot_id, "name": one.name, "purpose": one.reason, **sizes}


def _names_none(*_: Any) -> str:
    return ""


# Each RPC of SnapshotService, in the same way. The bytes of an Import are a stream: nothing is known of it but its end.
SNAPSHOT_RULES: Mapping[str, Rule | None] = {
    "CreateSnapshot": Rule(
        decision=Decision.SNAPSHOT,
        asked=lambda request: {"name": request.name, "purpose": request.reason or "manual"},
        given=_saved,
        answers=lambda message: bool(message.HasField("snapshot")),
    ),
    "RestoreSnapshot": Rule(
        decision=Decision.RESTORATION,
        asked=lambda request: {"snapshot_id": request.snapshot, "purpose": "manual", "force": request.force},
        given=lambda answer: {"snapshot_id": answer.restored.snapshot.snapshot_id},
        answers=lambda message: bool(message.HasField("restored")),
    ),
    "DeleteSnapshot": Rule(
        decision=Decision.DELETION,
        about=_names_none,
        asked=lambda request: {"snapshot_id": request.snapshot, "purpose": "now" if request.now else "manual"},
    ),
    "UndeleteSnapshot": Rule(
        decision=Decision.SNAPSHOT,
        about=_names_none,
        asked=lambda request: {"snapshot_id": request.snapshot, "purpose": "undelete"},
    ),
    # Its first bytes are its answer: who has them has the files.
    "ExportSnapshot": Rule(
        decision=Decision.EXPORT, about=_names_none, asked=lambda request: {"snapshot_id": request.snapshot}
    ),
    "ImportSnapshot": Rule(
        decision=Decision.IMPORT,
        about=_names_none,
        given=lambda answer: {
            "snapshot_id": answer.snapshot.snapshot_id,
            "name": answer.snapshot.name,
            "bytes": answer.snapshot.bytes,
        },
    ),
    "GetSnapshot": None,
    "ListSnapshots": None,
}


# Each RPC of EgressService, in the same way.
EGRESS_RULES: Mapping[str, Rule | None] = {
    "SetEgress": Rule(decision=Decision.EGRESS_LIST, asked=lambda request: {"names": " ".join(request.names)[:1000]}),
    "GetEgress": None,
}


def of_action(action: Action) -> Record | None:
    """The record of what the scheduler decides without a caller; None: it concerns no session."""
    match action:
        case Gone(sandbox) if sandbox.bound:
            details: Details = {**_session(sandbox), "restarts": sandbox.restarts}
            return _of_session(Decision.END, sandbox, _word(sandbox.ended_reason), details)
        case Suspend(sandbox) if sandbox.preempted is not None:
            return _of_session(Decision.PREEMPTION, sandbox, "", _session(sandbox))
    return None


def _of_session(decision: Decision, one: Sandbox, reason: str, details: Details) -> Record:
    namespace, name = named(one.sandbox_id)
    return Record(
        decision=decision, verdict=Verdict.ALLOWED, reason=reason, namespace=namespace, sandbox=name, details=details
    )


def _session(sandbox: Sandbox) -> Details:
    claim = sandbox.claim
    said: Details = {"sandbox_uid": sandbox.sandbox_uid}
    return said | ({"holder": claim.key.holder, "queue": claim.queue} if claim is not None else {})


def _word(reason: str) -> str:
    """The reason, where it is one word; an executor or a person may have written a sentence."""
    return reason if reason.isascii() and reason.isalpha() else "Other"


def named(sandbox_id: str) -> tuple[str, str]:
    """The id is NAMESPACE/NAME on Kubernetes, and a name alone on one machine."""
    namespace, separator, name = sandbox_id.partition("/")
    return (namespace, name) if separator else ("", sandbox_id)
