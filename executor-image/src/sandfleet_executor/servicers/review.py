"""ReviewService: what waits for approval, for the fleet."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from sandfleet_api.executor.v1 import review_pb2 as pb
from sandfleet_api.executor.v1 import review_pb2_grpc

from sandfleet_executor.core.review.desk import Pending
from sandfleet_executor.core.review.subject import Interpreter
from sandfleet_executor.effects.review.reviews import Reviews
from sandfleet_executor.servicers.convert import common as convert


class ReviewService(review_pb2_grpc.ReviewServiceServicer):
    def __init__(self, reviews: Reviews) -> None:
        self._reviews = reviews

    async def ListPending(self, request: pb.ListPendingRequest, context: Any) -> pb.ListPendingResponse:
        return pb.ListPendingResponse(reviews=self._messages(self._reviews.pending()))

    async def WatchPending(
        self, request: pb.WatchPendingRequest, context: Any
    ) -> AsyncIterator[pb.WatchPendingResponse]:
        async for pending in self._reviews.changes():
            yield pb.WatchPendingResponse(reviews=self._messages(pending))

    async def Answer(self, request: pb.AnswerRequest, context: Any) -> pb.AnswerResponse:
        self._reviews.answer(request.statement, request.content)
        return pb.AnswerResponse()

    def _messages(self, pending: Sequence[Pending]) -> list[pb.PendingReview]:
        return [message(one, self._reviews.state) for one in pending]


def message(pending: Pending, state: int) -> pb.PendingReview:
    subject, votes = pending.subject, pending.votes
    at = subject.runs_in or Interpreter()
    return pb.PendingReview(
        review_id=pending.id,
        method=subject.method,
        kind=subject.kind,
        context_id=subject.context_id,
        execution_id=subject.execution_id,
        name=subject.name,
        content=subject.content,
        settings=subject.settings,
        digest=bytes.fromhex(pending.digest),
        state=state,
        editable=subject.editable,
        since=convert.timestamp(int(pending.since * 1e9)),
        intent=subject.intent,
        language=at.language,
        incarnation=at.incarnation,
        cells=at.cells,
        submitter=subject.submitter,
        votes=pb.Votes(voters=votes.voters, state=votes.state, edit=votes.edit) if votes.voters else None,
    )
