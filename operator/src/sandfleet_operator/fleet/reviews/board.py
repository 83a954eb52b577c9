"""What waits for review in the sandboxes of a fleet: rules answer some of it, reviewers the rest."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from google.protobuf.timestamp_pb2 import Timestamp
from sandfleet_api.executor.v1 import review_pb2
from sandfleet_api.fleet.v1 import fleet_pb2

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.template import ReviewRule
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.api.values import Mark
from sandfleet_operator.cluster.reviews import Caller
from sandfleet_operator.executors.reviews import ReviewClient, Way
from sandfleet_operator.fleet.reviews import tool_calls
from sandfleet_operator.fleet.reviews.call_votes import Ballot, CallVotes, VotesInMemory
from sandfleet_operator.fleet.reviews.tool_calls import ToolCalls
from sandfleet_operator.fleet.reviews.webhook import Message, pending_message
from sandfleet_operator.plan.audit import Actor, Decision, Record, Verdict
from sandfleet_operator.plan.reviews.reasons import ReviewReason
from sandfleet_operator.plan.reviews.record import Request, SessionRecord
from sandfleet_operator.plan.reviews.rules import approving
from sandfleet_operator.plan.reviews.votes import Vote, Votes

# Of a caller's name, as claims keep it.
MAX_HOLDER = 256
MAX_REASON_CHARACTERS = 2000
MAX_EDIT_BYTES = 2 << 20
# Of a content in a list.
SHOWN_BYTES = 4 << 10
# Seconds between two attempts to watch an executor that does not answer.
PAUSE = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewed:
    """A sandbox with an executor, reviewed or with tools. `holder` has claimed it; empty: it was made as an object."""

    sandbox_id: str
    holder: str
    lease_expires: Timestamp | None
    way: Way
    # How many reviewers have to approve each request, and the rules that approve without them.
    approvals: int = 1
    rules: Sequence[ReviewRule] = ()


class ReviewedSandboxes(Protocol):
    """The sandboxes of a fleet, by the ids that callers have."""

    def find(self, sandbox_id: str) -> Reviewed | None:
        """None: it has ended, or there is none. Raises FleetError while it has no executor."""
        ...


@dataclass
class _Session:
    """A sandbox of which something may wait, as long as it lives."""

    record: SessionRecord = field(default_factory=SessionRecord)
    at_executor: dict[str, review_pb2.PendingReview] = field(default_factory=dict)
    # Requests that the executor has an answer to. It may name them once more: what it says and answers cross.
    answered: set[str] = field(default_factory=set)
    calls: ToolCalls = field(default_factory=ToolCalls)
    # Of what waits and needs several approvals.
    votes: dict[str, Votes] = field(default_factory=dict)
    # What people were told of.
    told: set[str] = field(default_factory=set)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    over: bool = False

    @property
    def pending(self) -> Mapping[str, review_pb2.PendingReview]:
        """What waits at the executor, and calls of tools, which no executor can put in their place."""
        return {**self.at_executor, **self.calls.pending}

    def tell(self, pending: Iterable[review_pb2.PendingReview]) -> None:
        named = {one.review_id: one for one in pending}
        self.answered &= named.keys()
        self.at_executor = {name: one for name, one in named.items() if name not in self.answered}
        self.wake()

    def has_answered(self, review_id: str) -> None:
        """The executor has taken an answer to it: nothing waits for one any more."""
        self.answered.add(review_id)
        self.tell(self.at_executor.values())

    def wake(self) -> None:
        self.votes = {name: votes for name, votes in self.votes.items() if name in self.pending}
        self.changed.set()
        self.changed = asyncio.Event()

    def votes_for(self, review: review_pb2.PendingReview) -> Votes:
        """The approvals so far: those that this fleet has counted, or that its predecessor has left at the executor."""
        counted = self.votes.get(review.review_id)
        if counted is not None:
            return counted
        left = review.votes
        return Votes(left.state, left.edit, frozenset(left.voters)) if left.voters else Votes(review.state)


class ReviewBoard:
    """Watches the reviewed sandboxes, lets rules answer, and signs what reviewers answer. Its callers check rights.

    `audit` writes the records of what rules answer; `tell` sends a message about each request that waits for a person;
    `call_votes` keeps approvals of calls of tools.
    """

    def __init__(
        self,
        sandboxes: ReviewedSandboxes,
        client: ReviewClient,
        audit: Callable[[Record], None] = lambda _: None,
        tell: Callable[[Message], None] = lambda _: None,
        call_votes: CallVotes | None = None,
    ) -> None:
        self._sandboxes = sandboxes
        self._client = client
        self._audit, self._tell, self._call_votes = audit, tell, call_votes or VotesInMemory()
        self._sessions: dict[str, _Session] = {}
        # Called with the sandbox, the answer and the seconds that its request has waited.
        self.answered: Callable[[str, str, float], None] = lambda _, __, ___: None

    def follow(self, sandbox_id: str) -> None:
        """Until it ends; nothing where it is followed already."""
        if sandbox_id not in self._sessions:
            session = self._sessions[sandbox_id] = _Session()
            session.task = asyncio.create_task(self._run(sandbox_id, session))

    def close(self) -> None:
        for session in self._sessions.values():
            if session.task:
                session.task.cancel()

    @property
    def waiting_for_people(self) -> Mapping[str, Sequence[review_pb2.PendingReview]]:
        """By sandbox, also where nothing waits."""
        return {name: tuple(session.pending.values()) for name, session in self._sessions.items()}

    # What reviewers ask.

    def waiting(self, sandbox_id: str = "", namespace: str = "") -> fleet_pb2.ListReviewsResponse:
        """In one sandbox, in a namespace or ("" and "") in all; the oldest first."""
        prefix = f"{namespace}/" if namespace else ""
        wanted = [sandbox_id] if sandbox_id else [name for name in self._sessions if name.startswith(prefix)]
        found = [one for name in wanted for one in self._messages(name, SHOWN_BYTES)]
        found.sort(key=lambda one: (one.request.since.seconds, one.request.since.nanos))
        return fleet_pb2.ListReviewsResponse(reviews=found)

    async def watch(self, sandbox_id: str) -> AsyncIterator[fleet_pb2.WatchReviewsResponse]:
        """Raises FleetError where there is no such sandbox."""
        session = self._followed(sandbox_id)
        while not session.over:
            changed = session.changed
            yield fleet_pb2.WatchReviewsResponse(reviews=self._messages(sandbox_id))
            await changed.wait()

    async def answer(self, caller: Caller, request: fleet_pb2.AnswerReviewRequest) -> fleet_pb2.AnswerReviewResponse:
        """Raises FleetError."""
        session = self._session(request.sandbox_id)
        reviewed = self._sandboxes.find(request.sandbox_id)
        if reviewed is None:
            raise _no_sandbox(request.sandbox_id)
        review = session.pending.get(request.review_id)
        _check_not_own(reviewed, review, caller)
        if review is None:
            raise ReviewReason.REVIEW_NOT_FOUND.error("cannot answer the review: none of this id waits")
        if review.digest != request.digest:
            raise ReviewReason.REVIEW_CHANGED.error("cannot answer the review: the answer is about another request")
        verb, edit, reason = _answer_of(request)
        reviewer = caller.username
        if verb == "edit" and review.kind == tool_calls.KIND:
            raise ReviewReason.REVIEW_NOT_EDITABLE.error("cannot answer the review: a call cannot be edited")
        if verb != "deny" and reviewed.approvals > 1:
            vote = Vote(reviewer, request.state, edit, request.seen_edit)
            votes = session.votes_for(review).cast(vote, review.state)
            if missing := reviewed.approvals - len(votes.voters):
                await self._keep(reviewed, session, review, votes, reviewer)
                session.votes[review.review_id] = votes
                session.wake()
                return fleet_pb2.AnswerReviewResponse(missing=missing)
            verb, edit, reviewer = "edit" if votes.edit else "approve", votes.edit, _named(votes.voters)
        if review.review_id in session.calls.pending:
            approved, ballot = verb == "approve", session.calls.ballot(review.review_id)
            session.calls.answer(review.review_id, request.state, approved=approved, reviewer=reviewer, reason=reason)
            session.wake()
            await self._forget(request.sandbox_id, ballot)
        else:
            seen = _seen(review, request.state)
            await self._client.answer(reviewed.way, seen, verb=verb, reviewer=reviewer, reason=reason, edit=edit)
            session.has_answered(review.review_id)
        self.answered(request.sandbox_id, verb, time.time() - review.since.ToMicroseconds() / 1e6)
        if verb != "deny":
            session.record.approved(_request(review), edit or None)
        return fleet_pb2.AnswerReviewResponse()

    async def _keep(
        self, reviewed: Reviewed, session: _Session, review: review_pb2.PendingReview, votes: Votes, reviewer: str
    ) -> None:
        """Leaves the approvals so far where the next leader finds them. Raises FleetError."""
        if review.review_id not in session.calls.pending:
            await self._client.vote(reviewed.way, review, votes, reviewer)
        elif (ballot := session.calls.ballot(review.review_id)).name:
            await self._call_votes.keep(reviewed.sandbox_id, ballot, votes.voters)

    async def _forget(self, sandbox_id: str, ballot: Ballot) -> None:
        if ballot.name:
            # What stays is about this call alone, and makes room for others.
            with contextlib.suppress(FleetError):
                await self._call_votes.keep(sandbox_id, ballot, frozenset())

    # What hosts of tools ask.

    def received(self, sandbox_id: str, marks: frozenset[Mark]) -> None:
        """A session has received so much: what waits of its calls is shown with it."""
        if (session := self._sessions.get(sandbox_id)) is not None:
            session.calls.received(marks)
            session.wake()

    async def review_call(
        self, request: fleet_pb2.ReviewCallRequest, received: Callable[[], Awaitable[frozenset[Mark]]]
    ) -> fleet_pb2.ReviewCallResponse:
        """Waits for a reviewer of a call of a tool. `received` tells what the session has. Raises FleetError."""
        # From here on it hears of marks, also of those that come while it asks for them.
        session = self._followed(request.sandbox_id)
        session.calls.received(await received())
        reviewed = self._sandboxes.find(request.sandbox_id)
        if session.over or reviewed is None:
            raise _no_sandbox(request.sandbox_id)
        review_id = secrets.token_hex(8)
        answered = session.calls.ask(review_id, request, time.time())
        try:
            message, ballot = session.calls.pending[review_id], session.calls.ballot(review_id)
            if ballot.name and (voters := self._call_votes.of(request.sandbox_id, ballot)):
                session.votes[review_id] = Votes(message.state, voters=voters)
            session.wake()
            self._tell(pending_message(reviewed.sandbox_id, reviewed.holder, reviewed.approvals, message))
            return await answered
        finally:
            session.calls.withdraw(review_id)
            session.wake()

    # What executors say.

    async def _run(self, sandbox_id: str, session: _Session) -> None:
        try:
            while True:
                with contextlib.suppress(FleetError):
                    reviewed = self._sandboxes.find(sandbox_id)
                    if reviewed is None:
                        return
                    async for pending in self._client.watch(reviewed.way):
                        self._wait_for_people(reviewed, session, await self._ruled(reviewed, session, pending))
                session.tell(())
                await asyncio.sleep(PAUSE)
        except asyncio.CancelledError:
            session.calls.end(ClaimReason.NOT_SERVING.error("cannot review the call: this fleet serves no more"))
            raise
        finally:
            session.over = True
            session.calls.end(_no_sandbox(sandbox_id))
            session.tell(())
            self._sessions.pop(sandbox_id, None)

    async def _ruled(
        self, reviewed: Reviewed, session: _Session, pending: Sequence[review_pb2.PendingReview]
    ) -> list[review_pb2.PendingReview]:
        """Those that no rule has approved."""
        for_people = []
        for review in pending:
            request, record = _request(review), session.record
            rule = approving(request, record, reviewed.rules)
            if rule is None or not await self._approved(reviewed, review, rule):
                for_people.append(review)
            else:
                record.approved(request)
        return for_people

    def _wait_for_people(
        self, reviewed: Reviewed, session: _Session, pending: Sequence[review_pb2.PendingReview]
    ) -> None:
        # Calls of tools are told of when they are asked about, and come from no executor.
        pending = [one for one in pending if one.kind != tool_calls.KIND]
        # Each once, also where the connection to its executor breaks in between.
        fresh = [one for one in pending if one.review_id not in session.told | session.answered]
        session.tell(pending)
        session.told = (session.told & session.at_executor.keys()) | {one.review_id for one in fresh}
        for one in fresh:
            self._tell(pending_message(reviewed.sandbox_id, reviewed.holder, reviewed.approvals, one))

    async def _approved(self, reviewed: Reviewed, review: review_pb2.PendingReview, rule: ReviewRule) -> bool:
        try:
            await self._client.answer(reviewed.way, review, verb="approve", reviewer=f"rule:{rule}", rule=rule.value)
        except FleetError:
            # It was withdrawn, or something else was let run: the executor says again what waits.
            return False
        self._audit(_by_rule(reviewed.sandbox_id, review, rule))
        return True

    def _followed(self, sandbox_id: str) -> _Session:
        """Raises FleetError where there is no such sandbox."""
        if sandbox_id not in self._sessions and self._sandboxes.find(sandbox_id) is not None:
            self.follow(sandbox_id)
        return self._session(sandbox_id)

    def _session(self, sandbox_id: str) -> _Session:
        found = self._sessions.get(sandbox_id)
        if found is None:
            raise _no_sandbox(sandbox_id)
        return found

    def _messages(self, sandbox_id: str, shown: int | None = None) -> list[fleet_pb2.Review]:
        session = self._sessions.get(sandbox_id)
        if session is None or not session.pending:
            return []
        try:
            reviewed = self._sandboxes.find(sandbox_id)
        except FleetError:
            reviewed = None
        return [] if reviewed is None else [_message(reviewed, session, one, shown) for one in session.pending.values()]


def _check_not_own(reviewed: Reviewed, review: review_pb2.PendingReview | None, caller: Caller) -> None:
    """Raises FleetError where the caller would approve its own code.

    A sandbox that was made as an object has no holder: there, and where several accounts may use a sandbox, the token
    of the call says who has submitted the code.
    """
    name = caller.username[:MAX_HOLDER]
    if name == reviewed.holder:
        raise ReviewReason.NOT_REVIEWER.error("cannot answer the review: the caller has claimed the sandbox")
    if review is not None and name == review.submitter[:MAX_HOLDER]:
        raise ReviewReason.NOT_REVIEWER.error("cannot answer the review: the caller has submitted what waits")


def _seen(review: review_pb2.PendingReview, state: int) -> review_pb2.PendingReview:
    """The request as a reviewer has looked at it: the executor compares its state with what is so now."""
    seen = review_pb2.PendingReview()
    seen.CopyFrom(review)
    seen.state = state
    return seen


def _message(
    reviewed: Reviewed, session: _Session, review: review_pb2.PendingReview, shown: int | None
) -> fleet_pb2.Review:
    made = fleet_pb2.Review(
        sandbox_id=reviewed.sandbox_id,
        request=review,
        holder=reviewed.holder,
        content_bytes=len(review.content),
        lease_expires=reviewed.lease_expires,
        approvals=reviewed.approvals,
    )
    votes = session.votes_for(review)
    if votes.state == review.state:
        made.approved_by.extend(sorted(votes.voters))
        if votes.edit:
            made.edit = votes.edit if shown is None else votes.edit[:shown]
    if shown is not None:
        made.request.content = review.content[:shown]
    elif (before := session.record.before(_request(review))) is not None:
        made.approved_before = before
    return made


def _named(voters: Iterable[str]) -> str:
    """Who has approved it, for the executor and the agent."""
    return ", ".join(sorted(voters))[:MAX_HOLDER]


def _request(review: review_pb2.PendingReview) -> Request:
    return Request(
        kind=review.kind,
        content=review.content,
        digest=review.digest,
        context_id=review.context_id,
        name=review.name,
        settings=review.settings,
        language=review.language,
        incarnation=review.incarnation,
        cells=review.cells,
    )


def _by_rule(sandbox_id: str, review: review_pb2.PendingReview, rule: ReviewRule) -> Record:
    namespace, _, name = sandbox_id.rpartition("/")
    said = {"review_id": review.review_id, "digest": review.digest.hex(), "answer": "approve", "rule": rule.value}
    return Record(
        decision=Decision.REVIEW,
        verdict=Verdict.ALLOWED,
        actor=Actor(),
        namespace=namespace,
        sandbox=name,
        details=said,
    )


def _no_sandbox(sandbox_id: str) -> FleetError:
    why = f"there is no sandbox {sandbox_id[:80]!r}"
    return ClaimReason.SANDBOX_NOT_FOUND.error(f"cannot review: {why}", sandbox_id[:80])


def _answer_of(request: fleet_pb2.AnswerReviewRequest) -> tuple[str, bytes, str]:
    """(verb, edit, reason). Raises FleetError."""
    match request.WhichOneof("answer"):
        case "approve":
            return "approve", b"", ""
        case "edit" if 0 < len(request.edit.content) <= MAX_EDIT_BYTES:
            return "edit", request.edit.content, ""
        case "deny" if len(request.deny.reason) <= MAX_REASON_CHARACTERS:
            return "deny", b"", request.deny.reason
    why = "it approves, edits (at most 2 MiB of text) or denies (with a reason of at most 2,000 characters)"
    raise ReviewReason.INVALID_ANSWER.error(f"cannot answer the review: {why}")
