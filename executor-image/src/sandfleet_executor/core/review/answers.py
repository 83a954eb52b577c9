"""Answers to reviews: the claims of a statement whose signature is valid (pure)."""

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandfleet_executor.core.access.token_claims import ISSUER, LEEWAY_SECONDS
from sandfleet_executor.core.errors import Code, RpcError

# What sets a statement apart from a capability token, which has scopes and no use.
USE = "review"
MAX_REASON_CHARACTERS = 2000
MAX_VOTERS = 16


class AnswerReason(enum.StrEnum):
    """Why an answer was refused; the value is the reason in the API's ErrorDetail."""

    INVALID = "ApprovalInvalid"
    NOT_FOUND = "ReviewNotFound"
    CHANGED = "ReviewChanged"
    NOT_EDITABLE = "NotEditable"


_CODES: dict[AnswerReason, Code] = {AnswerReason.INVALID: "PERMISSION_DENIED", AnswerReason.NOT_FOUND: "NOT_FOUND"}


class AnswerError(RpcError):
    """An answer was refused. The message is "cannot X: why"."""

    def __init__(self, reason: AnswerReason, why: str) -> None:
        super().__init__(f"cannot answer the review: {why}")
        self.code = _CODES.get(reason, "FAILED_PRECONDITION")
        self.reason = reason


class Verb(enum.StrEnum):
    """What an answer says."""

    APPROVE = "approve"
    EDIT = "edit"
    DENY = "deny"
    # Not an answer yet: keeps who has approved it so far.
    VOTE = "vote"


@dataclass(frozen=True, slots=True)
class Answer:
    """A statement of the fleet about one review."""

    review_id: str
    # What the reviewer has looked at: hexadecimal, and how much the sandbox had let run.
    digest: str
    state: int
    verb: Verb
    reviewer: str
    # The rule that approved it; empty: a person has answered.
    rule: str = ""
    # Of a denial.
    reason: str = ""
    # Of an edit: the digest of what is to run instead, SHA-256 in hexadecimal.
    edit_digest: str = ""
    # A vote names all who have approved the request.
    voters: tuple[str, ...] = ()


def read_answer(claims: Mapping[str, Any], audience: str, now: float) -> Answer:
    """The answer that the claims make. `now` in seconds since the epoch. Raises AnswerError."""
    if claims.get("use") != USE or claims.get("iss") != ISSUER:
        raise _invalid("the statement is no answer to a review")
    if claims.get("aud") != audience:
        raise _invalid("the statement is for another sandbox")
    begins, ends = _moment(claims, "nbf"), _moment(claims, "exp")
    if not begins - LEEWAY_SECONDS <= now < ends + LEEWAY_SECONDS:
        raise _invalid("the time of the statement is over, or has not come")
    state = claims.get("state")
    if type(state) is not int or claims.get("verb") not in set(Verb):
        raise _invalid("the statement does not say what it answers")
    return Answer(
        review_id=_text(claims, "review"),
        digest=_text(claims, "digest"),
        state=state,
        verb=Verb(claims["verb"]),
        reviewer=_text(claims, "sub"),
        rule=_text(claims, "rule", optional=True),
        reason=_text(claims, "reason", optional=True)[:MAX_REASON_CHARACTERS],
        edit_digest=_text(claims, "edit", optional=True),
        voters=_voters(claims),
    )


def _voters(claims: Mapping[str, Any]) -> tuple[str, ...]:
    voters = claims.get("voters", [])
    if not isinstance(voters, list) or len(voters) > MAX_VOTERS or not all(isinstance(name, str) for name in voters):
        raise _invalid("its claim voters is no list of names")
    return tuple(voters)


def _text(claims: Mapping[str, Any], name: str, *, optional: bool = False) -> str:
    value = claims.get(name, "" if optional else None)
    if not isinstance(value, str) or not (value or optional):
        raise _invalid(f"its claim {name} is missing or no text")
    return value


def _moment(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    # JSON's NaN would compare as never expired, and true is an int.
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise _invalid(f"its claim {name} is missing or no number")
    return float(value)


def _invalid(why: str) -> AnswerError:
    return AnswerError(AnswerReason.INVALID, why)
