"""The gRPC face of the fleet: who calls, messages in and out, and failures as status codes. It decides nothing."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from sandfleet_api.fleet.v1 import fleet_pb2
from sandfleet_api.fleet.v1.fleet_pb2_grpc import FleetServiceServicer

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kube import KubeError
from sandfleet_operator.api.values import Sandbox
from sandfleet_operator.cluster.reviews import Caller
from sandfleet_operator.fleet import calls, convert
from sandfleet_operator.fleet.calls import Answers, Context, unary
from sandfleet_operator.fleet.claim_watches import ClaimWatch
from sandfleet_operator.plan.scheduler.claim_queue import Queued
from sandfleet_operator.telemetry.control_plane import ClaimMetrics
from sandfleet_operator.telemetry.tracing import ClaimSpan


class FleetApi(Protocol):
    """What a fleet does for its callers. Each method raises FleetError, or KubeError where the API server fails."""

    async def authenticate(self, token: str) -> Caller:
        """Who calls. `token` is the call's bearer token, empty without one."""
        ...

    def check_serving(self, doing: str) -> None:
        """Raises FleetError where this fleet may not answer callers now."""
        ...

    async def claim(self, caller: Caller, request: fleet_pb2.ClaimRequest, traceparent: str) -> ClaimWatch:
        """A claim that waits from now on. The watch has to be left in any case."""
        ...

    async def bound(self, caller: Caller, sandbox: Sandbox) -> fleet_pb2.Bound:
        """The answer to a claim."""
        ...

    def pod_marks(self, sandbox: Sandbox) -> Sequence[tuple[str, float]]:
        """What the sandbox's pod came to and when, in seconds since the epoch."""
        ...

    async def resume(self, caller: Caller, request: fleet_pb2.ResumeRequest) -> ClaimWatch:
        """A suspended session that waits to be taken on. The watch has to be left in any case."""
        ...

    async def resumed(self, caller: Caller, sandbox: Sandbox) -> fleet_pb2.ResumeResponse:
        """The answer to a Resume, with what has come back."""
        ...

    async def suspend(self, caller: Caller, request: fleet_pb2.SuspendRequest) -> fleet_pb2.SuspendResponse: ...
    async def release(self, caller: Caller, request: fleet_pb2.ReleaseRequest) -> fleet_pb2.ReleaseResponse: ...
    async def renew(self, caller: Caller, request: fleet_pb2.RenewRequest) -> fleet_pb2.RenewResponse: ...
    async def get(self, caller: Caller, request: fleet_pb2.GetRequest) -> fleet_pb2.GetResponse: ...
    async def list(self, caller: Caller, request: fleet_pb2.ListRequest) -> fleet_pb2.ListResponse: ...
    async def list_pools(self, caller: Caller, request: fleet_pb2.ListPoolsRequest) -> fleet_pb2.ListPoolsResponse: ...
    async def list_queues(
        self, caller: Caller, request: fleet_pb2.ListQueuesRequest
    ) -> fleet_pb2.ListQueuesResponse: ...
    async def explain(self, caller: Caller, request: fleet_pb2.ExplainRequest) -> fleet_pb2.ExplainResponse: ...
    async def route(self, caller: Caller, request: fleet_pb2.RouteRequest) -> fleet_pb2.RouteResponse: ...

    async def watch(
        self, caller: Caller, request: fleet_pb2.WatchRequest
    ) -> AsyncIterator[fleet_pb2.WatchResponse]: ...

    async def list_reviews(
        self, caller: Caller, request: fleet_pb2.ListReviewsRequest, /
    ) -> fleet_pb2.ListReviewsResponse: ...
    async def watch_reviews(
        self, caller: Caller, request: fleet_pb2.WatchReviewsRequest, /
    ) -> AsyncIterator[fleet_pb2.WatchReviewsResponse]: ...
    async def answer_review(
        self, caller: Caller, request: fleet_pb2.AnswerReviewRequest, /
    ) -> fleet_pb2.AnswerReviewResponse: ...
    async def note_received(
        self, caller: Caller, request: fleet_pb2.NoteReceivedRequest
    ) -> fleet_pb2.NoteReceivedResponse: ...
    async def countersign_journal(
        self, caller: Caller, request: fleet_pb2.CountersignJournalRequest
    ) -> fleet_pb2.CountersignJournalResponse: ...
    async def review_call(
        self, caller: Caller, request: fleet_pb2.ReviewCallRequest, /
    ) -> fleet_pb2.ReviewCallResponse: ...


class FleetServicer(Answers[FleetApi], FleetServiceServicer):
    Suspend = unary(FleetApi.suspend)
    Release = unary(FleetApi.release)
    Renew = unary(FleetApi.renew)
    Get = unary(FleetApi.get)
    List = unary(FleetApi.list)
    ListPools = unary(FleetApi.list_pools)
    ListQueues = unary(FleetApi.list_queues)
    Explain = unary(FleetApi.explain)
    Route = unary(FleetApi.route)
    ListReviews = unary(FleetApi.list_reviews)
    AnswerReview = unary(FleetApi.answer_review)
    NoteReceived = unary(FleetApi.note_received)
    CountersignJournal = unary(FleetApi.countersign_journal)
    ReviewCall = unary(FleetApi.review_call)

    def __init__(self, api: FleetApi, claims: ClaimMetrics | None = None) -> None:
        super().__init__(api)
        self._claims = claims or ClaimMetrics()

    async def Claim(self, request: fleet_pb2.ClaimRequest, context: Context) -> AsyncIterator[fleet_pb2.ClaimResponse]:  # noqa: N802 - gRPC's name
        span = ClaimSpan(calls.metadata(context, "traceparent"), request.request_id, request.template or request.pool)
        try:
            caller = await self.authenticated(context)
            watch = await self.api.claim(caller, request, span.traceparent)
            # Called however the stream ends: gRPC may never ask the generator again.
            context.add_done_callback(lambda _: watch.leave())  # type: ignore[arg-type] # the stubs want generics that are none
            async for response in self._claim_responses(caller, watch, span):
                yield response
        except (FleetError, KubeError) as error:
            problem = calls.problem_of(error)
            self._claims.ended("refused")
            span.failed(problem.reason, problem.message)
            await calls.abort(context, problem)
        except (asyncio.CancelledError, GeneratorExit):
            if not span.is_bound:
                self._claims.ended("left")
                span.failed("cancelled", "the caller has left")
            raise
        finally:
            span.end()

    async def _claim_responses(
        self, caller: Caller, watch: ClaimWatch, span: ClaimSpan
    ) -> AsyncIterator[fleet_pb2.ClaimResponse]:
        sequence = 0
        while True:
            sequence += 1
            news = await watch.next()
            self.api.check_serving("claim")
            if not isinstance(news, Queued):
                bound = await self.api.bound(caller, news)
                span.bound(news, self.api.pod_marks(news))
                self._claims.bound(news, span.seconds)
                yield fleet_pb2.ClaimResponse(sequence=sequence, bound=bound)
                return
            span.queued(news.position, news.reason)
            yield fleet_pb2.ClaimResponse(
                sequence=sequence, queued=convert.queued_message(news, watch.ticket(), watch.note)
            )

    async def Resume(  # noqa: N802 - gRPC's name
        self, request: fleet_pb2.ResumeRequest, context: Context
    ) -> AsyncIterator[fleet_pb2.ResumeResponse]:
        try:
            caller = await self.authenticated(context)
            watch = await self.api.resume(caller, request)
            # As of a Claim.
            context.add_done_callback(lambda _: watch.leave())  # type: ignore[arg-type] # the stubs want generics that are none
            async for response in self._resume_responses(caller, watch):
                yield response
        except (FleetError, KubeError) as error:
            await calls.abort(context, calls.problem_of(error))

    async def _resume_responses(self, caller: Caller, watch: ClaimWatch) -> AsyncIterator[fleet_pb2.ResumeResponse]:
        sequence = 0
        while True:
            sequence += 1
            news = await watch.next()
            self.api.check_serving("resume the sandbox")
            if not isinstance(news, Queued):
                answer = await self.api.resumed(caller, news)
                answer.sequence = sequence
                yield answer
                return
            yield fleet_pb2.ResumeResponse(sequence=sequence, queued=convert.queued_message(news))

    async def Watch(self, request: fleet_pb2.WatchRequest, context: Context) -> AsyncIterator[fleet_pb2.WatchResponse]:  # noqa: N802 - gRPC's name
        try:
            caller = await self.authenticated(context)
            async for response in await self.api.watch(caller, request):
                yield response
        except (FleetError, KubeError) as error:
            await calls.abort(context, calls.problem_of(error))

    async def WatchReviews(  # noqa: N802 - gRPC's name
        self, request: fleet_pb2.WatchReviewsRequest, context: Context
    ) -> AsyncIterator[fleet_pb2.WatchReviewsResponse]:
        try:
            caller = await self.authenticated(context)
            async for response in await self.api.watch_reviews(caller, request):
                yield response
        except (FleetError, KubeError) as error:
            await calls.abort(context, calls.problem_of(error))
