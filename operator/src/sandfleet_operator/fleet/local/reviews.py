"""What waits for review in the sandboxes of this machine, and who may answer it."""

import asyncio
import contextlib
import hmac
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandfleet_api.executor.v1 import review_pb2
from sandfleet_api.fleet.v1 import fleet_pb2

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.template import Contract
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.api.values import Sandbox, State
from sandfleet_operator.cluster.reviews import Caller
from sandfleet_operator.executors.reviews import ReviewClient
from sandfleet_operator.fleet import convert
from sandfleet_operator.fleet.driver import FleetDriver
from sandfleet_operator.plan.reviews.reasons import ReviewReason
from sandfleet_operator.plan.reviews.record import Request, SessionRecord
from sandfleet_operator.plan.reviews.rules import ALL_RULES, Rule, approving

# The name that reviewers of this machine have, and the file with their token.
REVIEWER = "reviewer"
TOKEN_FILE = "reviewer.token"  # noqa: S105 - the file's name
MAX_REASON_CHARACTERS = 2000
MAX_EDIT_BYTES = 2 << 20
# Of a content in a list.
SHOWN_BYTES = 4 << 10
# Seconds between two attempts to watch an executor that does not answer.
PAUSE = 0.2


class ReviewerToken:
    """The token of this machine's reviewers. It is another than any agent's, and is in a file of the fleet's owner."""

    def __init__(self, directory: Path) -> None:
        """Raises OSError."""
        self._token = secrets.token_urlsafe(32)
        path = directory / TOKEN_FILE
        path.touch(mode=0o600)
        path.write_text(self._token, encoding="ascii")

    def is_held(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self._token.encode())


@dataclass
class _Session:
    """A reviewed sandbox, as long as it lives."""

    record: SessionRecord = field(default_factory=SessionRecord)
    pending: dict[str, review_pb2.PendingReview] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    over: bool = False

    def tell(self, pending: Sequence[review_pb2.PendingReview]) -> None:
        self.pending = {one.review_id: one for one in pending}
        self.wake()

    def wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class ReviewBoard:
    """Watches the reviewed sandboxes, lets rules answer, and signs what reviewers answer."""

    def __init__(self, fleet: FleetDriver, client: ReviewClient, rules: Sequence[Rule] = ALL_RULES) -> None:
        self._fleet = fleet
        self._client = client
        self._rules = rules
        self._sessions: dict[str, _Session] = {}

    def follow(self, sandbox: Sandbox) -> None:
        """From its first claim on; nothing where no review is required, or it is followed."""
        if sandbox.contract == Contract.REVIEWED.value and sandbox.sandbox_id not in self._sessions:
            session = self._sessions[sandbox.sandbox_id] = _Session()
            session.task = asyncio.create_task(self._run(sandbox.sandbox_id, session))

    def close(self) -> None:
        for session in self._sessions.values():
            if session.task:
                session.task.cancel()

    # What reviewers ask.

    def waiting(self, caller: Caller, request: fleet_pb2.ListReviewsRequest) -> fleet_pb2.ListReviewsResponse:
        _check_reviewer(caller)
        wanted = [request.sandbox_id] if request.sandbox_id else list(self._sessions)
        found = [one for name in wanted if name in self._sessions for one in self._messages(name, SHOWN_BYTES)]
        found.sort(key=lambda one: (one.request.since.seconds, one.request.since.nanos))
        return fleet_pb2.ListReviewsResponse(reviews=found)

    async def watch(
        self, caller: Caller, request: fleet_pb2.WatchReviewsRequest
    ) -> AsyncIterator[fleet_pb2.WatchReviewsResponse]:
        _check_reviewer(caller)
        session = self._session(request.sandbox_id)
        while not session.over:
            changed = session.changed
            yield fleet_pb2.WatchReviewsResponse(reviews=self._messages(request.sandbox_id))
            await changed.wait()

    async def answer(self, caller: Caller, request: fleet_pb2.AnswerReviewRequest) -> fleet_pb2.AnswerReviewResponse:
        _check_reviewer(caller)
        session = self._session(request.sandbox_id)
        sandbox = await self._fleet.get(request.sandbox_id, reachable=False)
        if sandbox.claim is not None and sandbox.claim.key.holder == caller.username:
            raise ReviewReason.NOT_REVIEWER.error("cannot answer the review: the caller has claimed the sandbox")
        review = session.pending.get(request.review_id)
        if review is None:
            raise ReviewReason.REVIEW_NOT_FOUND.error("cannot answer the review: none of this id waits")
        if review.digest != request.digest:
            raise ReviewReason.REVIEW_CHANGED.error("cannot answer the review: the answer is about another request")
        seen = review_pb2.PendingReview()
        seen.CopyFrom(review)
        # What the reviewer has looked at: the executor compares it with what is so now.
        seen.state = request.state
        verb, edit, reason = _answer_of(request)
        await self._client.answer(sandbox, seen, verb=verb, reviewer=caller.username, reason=reason, edit=edit)
        if verb != "deny":
            session.record.approved(_request(review), edit or None)
        return fleet_pb2.AnswerReviewResponse()

    # What executors say.

    async def _run(self, sandbox_id: str, session: _Session) -> None:
        try:
            while (sandbox := self._fleet.scheduler.inventory.get(sandbox_id)) and sandbox.state is not State.ENDED:
                with contextlib.suppress(FleetError):
                    async for pending in self._client.watch(sandbox):
                        session.tell(await self._ruled(sandbox, session, pending))
                session.tell(())
                await asyncio.sleep(PAUSE)
        finally:
            session.over = True
            session.tell(())
            self._sessions.pop(sandbox_id, None)

    async def _ruled(
        self, sandbox: Sandbox, session: _Session, pending: Sequence[review_pb2.PendingReview]
    ) -> list[review_pb2.PendingReview]:
        """Those that no rule has approved."""
        for_people = []
        for review in pending:
            request = _request(review)
            rule = approving(request, session.record, self._rules)
            if rule is None or not await self._approved(sandbox, review, rule):
                for_people.append(review)
            else:
                session.record.approved(request)
        return for_people

    async def _approved(self, sandbox: Sandbox, review: review_pb2.PendingReview, rule: Rule) -> bool:
        try:
            await self._client.answer(sandbox, review, verb="approve", reviewer=f"rule:{rule}", rule=rule.value)
        except FleetError:
            # It was withdrawn, or something else was let run: the executor says again what waits.
            return False
        return True

    def _session(self, sandbox_id: str) -> _Session:
        found = self._sessions.get(sandbox_id)
        if found is None:
            why = f"there is no reviewed sandbox {sandbox_id[:80]!r}"
            raise ClaimReason.SANDBOX_NOT_FOUND.error(f"cannot review: {why}", sandbox_id[:80])
        return found

    def _messages(self, sandbox_id: str, shown: int | None = None) -> list[fleet_pb2.Review]:
        session = self._sessions.get(sandbox_id)
        sandbox = self._fleet.scheduler.inventory.get(sandbox_id)
        if session is None or sandbox is None:
            return []
        described = convert.sandbox_message(sandbox)
        found = []
        for review in session.pending.values():
            made = fleet_pb2.Review(
                sandbox_id=sandbox_id,
                request=review,
                holder=sandbox.claim.key.holder if sandbox.claim else "",
                content_bytes=len(review.content),
                lease_expires=described.lease_expires,
            )
            if shown is not None:
                made.request.content = review.content[:shown]
            elif (before := session.record.before(_request(review))) is not None:
                made.approved_before = before
            found.append(made)
        return found


def _request(review: review_pb2.PendingReview) -> Request:
    return Request(
        kind=review.kind,
        content=review.content,
        digest=review.digest,
        context_id=review.context_id,
        name=review.name,
        settings=review.settings,
    )


def _check_reviewer(caller: Caller) -> None:
    if caller.username != REVIEWER:
        why = "the caller has not shown the token of this machine's reviewers"
        raise ReviewReason.NOT_REVIEWER.error(f"cannot review: {why}")


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
