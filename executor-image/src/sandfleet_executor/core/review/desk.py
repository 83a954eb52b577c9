"""The reviews of one sandbox that wait, and what an answer does to them (pure).

An approval is for one review, for the digest of its request and for a state number. The number counts what the sandbox
has let run, or has changed without a review, so that an approval counts only while nothing has happened since the
reviewer looked.
"""

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sandfleet_executor.core.errors import BadRequest, BusyError
from sandfleet_executor.core.review.answers import Answer, AnswerError, AnswerReason, Verb
from sandfleet_executor.core.review.subject import CELL, MAX_CONTENT_BYTES, MAX_PENDING_BYTES, Subject
from sandfleet_executor.core.review.text import check_text

MAX_PENDING = 64
# As much as a command takes; it comes in one message.
MAX_EDIT_BYTES = 2 << 20


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of a request."""

    allowed: bool
    reviewer: str = ""
    rule: str = ""
    # Of a denial, and where no reviewer has seen it one word for why.
    reason: str = ""
    unseen: str = ""
    # What runs instead of what was asked for; None: as it was.
    edited: bytes | None = None


@dataclass(frozen=True, slots=True)
class Votes:
    """Who has approved a request so far, for one state, and what they let run in its place (empty: the request)."""

    voters: tuple[str, ...] = ()
    state: int = 0
    edit: bytes = b""


@dataclass(frozen=True, slots=True)
class Pending:
    """A request that waits. `since` in seconds since the epoch."""

    id: str
    subject: Subject
    digest: str
    since: float
    votes: Votes = Votes()


class Desk:
    """Ids and times are arguments."""

    def __init__(self) -> None:
        # How much the sandbox has let run.
        self.state = 0
        self._pending: dict[str, Pending] = {}

    def pending(self) -> Sequence[Pending]:
        """The oldest first."""
        return tuple(self._pending.values())

    def ask(self, review_id: str, subject: Subject, now: float) -> Pending:
        """A review that waits from now on. Raises BusyError and BadRequest."""
        if subject.size > MAX_CONTENT_BYTES:
            raise BadRequest(f"cannot review a {subject.kind} of {subject.size} bytes: the most is {MAX_CONTENT_BYTES}")
        if subject.kind == CELL:
            check_text(subject.content)
        if len(self._pending) >= MAX_PENDING:
            raise BusyError(f"cannot review the {subject.kind}: {MAX_PENDING} requests wait for an answer")
        if sum(one.subject.size for one in self._pending.values()) + subject.size > MAX_PENDING_BYTES:
            raise BusyError(
                f"cannot review the {subject.kind}: those that wait have {MAX_PENDING_BYTES} bytes together"
            )
        made = Pending(review_id, subject, subject.digest.hex(), now)
        self._pending[review_id] = made
        return made

    def withdraw(self, review_id: str) -> bool:
        """Its caller has gone, or it was stopped; whether it waited."""
        return self._pending.pop(review_id, None) is not None

    def changed(self) -> None:
        """Something that needs no review changes what the reviewers have looked at."""
        self.state += 1

    def answer(self, answer: Answer, content: bytes) -> Decision | None:
        """Decide a review, which then waits no more; None where the answer is a vote. `content` is an edit's.

        Raises AnswerError.
        """
        found = self._pending.get(answer.review_id)
        if found is None:
            raise AnswerError(AnswerReason.NOT_FOUND, "none of this id waits")
        if not hmac.compare_digest(answer.digest.encode(), found.digest.encode()):
            raise AnswerError(AnswerReason.CHANGED, "the answer is about another request")
        if answer.verb is Verb.DENY:
            del self._pending[answer.review_id]
            return Decision(allowed=False, reviewer=answer.reviewer, rule=answer.rule, reason=answer.reason)
        if answer.state != self.state:
            raise AnswerError(AnswerReason.CHANGED, "the sandbox has let something run since: look at it again")
        if answer.verb is Verb.VOTE:
            edit = _edited(found.subject, answer, content) if content else None
            self._pending[found.id] = replace(found, votes=Votes(answer.voters, answer.state, edit or b""))
            return None
        edited = _edited(found.subject, answer, content)
        del self._pending[answer.review_id]
        self.state += 1
        return Decision(allowed=True, reviewer=answer.reviewer, rule=answer.rule, edited=edited)


def _edited(subject: Subject, answer: Answer, content: bytes) -> bytes | None:
    if answer.verb is Verb.APPROVE:
        if content:
            raise AnswerError(AnswerReason.INVALID, "the statement approves what was asked for, and other content came")
        return None
    if not subject.editable:
        raise AnswerError(AnswerReason.NOT_EDITABLE, f"a {subject.kind} cannot be edited: approve it or deny it")
    if not hmac.compare_digest(hashlib.sha256(content).hexdigest().encode(), answer.edit_digest.encode()):
        raise AnswerError(AnswerReason.INVALID, "the statement approves another edit than came")
    if not _is_text(content):
        raise AnswerError(AnswerReason.INVALID, f"the edit of a {subject.kind} has to be text in UTF-8 without NUL")
    if subject.kind == CELL:
        try:
            check_text(content)
        except BadRequest as error:
            raise AnswerError(AnswerReason.INVALID, f"the edit cannot run: {error}") from None
    return content


def _is_text(content: bytes) -> bool:
    try:
        return 0 < len(content) <= MAX_EDIT_BYTES and "\0" not in content.decode()
    except UnicodeDecodeError:
        return False
