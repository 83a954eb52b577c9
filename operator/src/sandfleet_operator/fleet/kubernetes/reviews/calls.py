"""The calls of reviewers: each checks what the caller may do before it looks at anything."""

from collections.abc import AsyncIterator

from sandfleet_api.fleet.v1 import fleet_pb2

from sandfleet_operator.api.kinds.template import Contract
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.api.values import Sandbox
from sandfleet_operator.cluster.reviews import Caller, Reviews
from sandfleet_operator.fleet.kubernetes import feed
from sandfleet_operator.fleet.kubernetes.fleet import KubernetesFleet
from sandfleet_operator.fleet.reviews.board import ReviewBoard

# The subresource that roles name for reviews; the API server serves nothing under it.
REVIEWS = "reviews"


class ReviewCalls:
    """The part of the fleet's API that reviewers call. `reviews` asks the API server what callers may do."""

    def __init__(self, reviews: Reviews, kubernetes: KubernetesFleet, board: ReviewBoard) -> None:
        self._reviews = reviews
        self._kubernetes = kubernetes
        self._board = board

    def check_serving(self, doing: str) -> None:
        if not self._kubernetes.serving:
            raise ClaimReason.NOT_SERVING.error(f"cannot {doing}: another fleet leads, or none yet")

    def _noted(self, sandbox: Sandbox) -> str:
        """A claim was answered; the name of its CodeSandbox. Where it is reviewed, its reviews are followed."""
        name = self._kubernetes.note_session(sandbox)
        if sandbox.contract == Contract.REVIEWED.value:
            self._board.follow(name)
        return name

    async def list_reviews(
        self, caller: Caller, request: fleet_pb2.ListReviewsRequest
    ) -> fleet_pb2.ListReviewsResponse:
        namespace = request.namespace
        if request.sandbox_id:
            namespace, _ = feed.parse_id(request.sandbox_id, doing="list reviews")
        await self._reviews.authorize(caller, "list", namespace, "", REVIEWS)
        self.check_serving("list reviews")
        return self._board.waiting(request.sandbox_id, namespace)

    async def watch_reviews(
        self, caller: Caller, request: fleet_pb2.WatchReviewsRequest
    ) -> AsyncIterator[fleet_pb2.WatchReviewsResponse]:
        namespace, name = feed.parse_id(request.sandbox_id, doing="watch reviews")
        await self._reviews.authorize(caller, "get", namespace, name, REVIEWS)
        self.check_serving("watch reviews")
        return self._board.watch(request.sandbox_id)

    async def answer_review(
        self, caller: Caller, request: fleet_pb2.AnswerReviewRequest
    ) -> fleet_pb2.AnswerReviewResponse:
        namespace, name = feed.parse_id(request.sandbox_id, doing="answer the review")
        await self._reviews.authorize(caller, "approve", namespace, name, REVIEWS)
        self.check_serving("answer the review")
        return await self._board.answer(caller, request)
