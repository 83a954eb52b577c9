"""Calls of tools that wait for reviewers. The host that is to run them asks; the sandbox has no part in it."""

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from google.protobuf.timestamp_pb2 import Timestamp
from sandfleet_api.executor.v1 import review_pb2
from sandfleet_api.fleet.v1 import fleet_pb2

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.values import Mark
from sandfleet_operator.fleet.reviews.call_votes import Ballot
from sandfleet_operator.plan.reviews.reasons import ReviewReason

KIND, METHOD = "tool", "FleetService/ReviewCall"
# Of one session, at a time; and bytes of one call's arguments, and of all together.
MAX_CALLS = 64
MAX_ARGUMENTS, MAX_TOGETHER = 512 << 10, 8 << 20
# Characters of a name or an id, and of why the policy asks.
MAX_NAME, MAX_WHY = 1024, 2000


@dataclass(slots=True)
class _Call:
    request: fleet_pb2.ReviewCallRequest
    review: review_pb2.PendingReview
    answered: "asyncio.Future[fleet_pb2.ReviewCallResponse]"


class ToolCalls:
    """Of one session. What it has received is part of what a reviewer looks at."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Call] = {}
        self._marks: frozenset[Mark] = frozenset()

    @property
    def pending(self) -> Mapping[str, review_pb2.PendingReview]:
        """By id, the oldest first."""
        return {name: one.review for name, one in self._waiting.items()}

    def ask(
        self, review_id: str, request: fleet_pb2.ReviewCallRequest, now: float
    ) -> "asyncio.Future[fleet_pb2.ReviewCallResponse]":
        """A call that waits from now on (seconds since the epoch), until `withdraw`. Raises FleetError."""
        _check(request)
        together = sum(len(one.request.arguments) for one in self._waiting.values()) + len(request.arguments)
        if len(self._waiting) >= MAX_CALLS or together > MAX_TOGETHER:
            why = f"{len(self._waiting)} calls of the session wait, with {together} bytes"
            raise ReviewReason.TOO_MANY_REVIEWS.error(f"cannot ask about a call of {request.tool}: {why}")
        review = review_pb2.PendingReview(review_id=review_id, method=METHOD, kind=KIND, intent=request.why)
        review.since.CopyFrom(Timestamp(seconds=int(now), nanos=int(now % 1 * 1e9)))
        review.name, review.content = request.tool, request.arguments
        review.context_id, review.execution_id = request.context_id, request.execution_id
        answered = asyncio.get_running_loop().create_future()
        self._waiting[review_id] = _Call(request, review, answered)
        self._show(self._waiting[review_id])
        return answered

    def ballot(self, review_id: str) -> Ballot:
        """By which votes for a call that waits are kept."""
        found = self._waiting[review_id]
        name = hashlib.sha256(found.request.call_id.encode()).hexdigest()[:32] if found.request.call_id else ""
        return Ballot(name, found.review.digest.hex())

    def received(self, marks: frozenset[Mark]) -> None:
        """The session has received so much by now: earlier looks count no more where it is more than before."""
        if marks - self._marks:
            self._marks |= marks
            for one in self._waiting.values():
                self._show(one)

    def answer(self, review_id: str, state: int, *, approved: bool, reviewer: str, reason: str) -> None:
        """Lets the call run or not; it waits no more. `state` as its reviewer saw it. Raises FleetError."""
        found = self._waiting[review_id]
        if state != found.review.state:
            raise ReviewReason.REVIEW_CHANGED.error("cannot answer the review: the session has received more since")
        del self._waiting[review_id]
        if not found.answered.done():
            said = fleet_pb2.ReviewCallResponse(approved=approved, reviewer=reviewer, reason=reason)
            found.answered.set_result(said)

    def withdraw(self, review_id: str) -> None:
        """Its host does not wait any more; nothing where it was answered."""
        self._waiting.pop(review_id, None)

    def end(self, error: FleetError) -> None:
        """No reviewer can answer any more."""
        for one in self._waiting.values():
            if not one.answered.done():
                one.answered.set_exception(error)
        self._waiting.clear()

    def _show(self, one: _Call) -> None:
        """Puts what the session has received into what a reviewer sees, and into the digest."""
        settings: dict[str, str | Sequence[str]] = {"received": sorted(mark.value for mark in self._marks)}
        if one.request.service:
            settings["service"] = one.request.service
        # A new message: earlier ones are on their way to reviewers.
        review = review_pb2.PendingReview()
        review.CopyFrom(one.review)
        review.settings, review.state = json.dumps(settings, sort_keys=True), len(self._marks)
        review.digest = _digest(review)
        one.review = review


def _digest(review: review_pb2.PendingReview) -> bytes:
    """SHA-256. Each part has its length before it, as in an executor's digests."""
    found = hashlib.sha256()
    for part in (review.method, review.context_id, review.name, review.settings):
        data = part.encode()
        found.update(len(data).to_bytes(8, "big") + data)
    found.update(review.content)
    return found.digest()


def _check(request: fleet_pb2.ReviewCallRequest) -> None:
    """Raises FleetError."""
    names = (request.tool, request.execution_id, request.context_id, request.service, request.call_id)
    why = ""
    if not request.tool or max(map(len, names)) > MAX_NAME or len(request.why) > MAX_WHY:
        why = "a name or the reason is missing or too long"
    elif len(request.arguments) > MAX_ARGUMENTS:
        why = f"its arguments have {len(request.arguments)} bytes, and a reviewer is shown {MAX_ARGUMENTS} at most"
    elif not _is_text(request.arguments):
        why = "its arguments are no text in UTF-8"
    if why:
        raise ReviewReason.INVALID_CALL.error(f"cannot ask about a call of {request.tool[:80]!r}: {why}")


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
