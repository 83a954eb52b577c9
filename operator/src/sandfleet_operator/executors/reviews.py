"""Reviews at executors: what waits there, and answers to it. Their messages are untrusted."""

import hashlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import grpc
from sandfleet_api.executor.v1 import review_pb2
from sandfleet_api.executor.v1.review_pb2_grpc import ReviewServiceStub

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.api.values import Sandbox
from sandfleet_operator.executors.calls import Metadata, error_detail
from sandfleet_operator.executors.client import CALL_TIMEOUT, Executors
from sandfleet_operator.executors.contact import Credentials, Executor, own_token, verified_channel
from sandfleet_operator.executors.tokens import Signer
from sandfleet_operator.plan.reviews.reasons import ReviewReason
from sandfleet_operator.plan.reviews.votes import Votes, digest_of

# Requests that wait have 24 MiB together at most.
MAX_MESSAGE = 32 << 20
CHANNEL_OPTIONS: Final = (("grpc.max_receive_message_length", MAX_MESSAGE), ("grpc.enable_http_proxy", 0))
REFUSALS = {
    one.value: one
    for one in (ReviewReason.REVIEW_NOT_FOUND, ReviewReason.REVIEW_CHANGED, ReviewReason.REVIEW_NOT_EDITABLE)
}


@dataclass(frozen=True, slots=True)
class Way:
    """The way to one executor. `uid` is the audience of what is signed for it; `dial` opens a channel for one call."""

    uid: str
    dial: Callable[[], tuple[grpc.aio.Channel, Metadata]]


def local_way(executors: Executors, sandbox: Sandbox) -> Way:
    """To an executor of this machine. Dialling raises FleetError where it is gone."""

    def dial() -> tuple[grpc.aio.Channel, Metadata]:
        channel = grpc.aio.insecure_channel(executors.address(sandbox), options=CHANNEL_OPTIONS)
        return channel, executors.metadata(sandbox)

    return Way(sandbox.sandbox_uid, dial)


def pod_way(credentials: Credentials, executor: Executor) -> Way:
    """To the executor of a pod, whose certificate is checked."""

    def dial() -> tuple[grpc.aio.Channel, Metadata]:
        channel = verified_channel(executor, credentials.authority.pem, MAX_MESSAGE)
        return channel, own_token(credentials.signer, executor)

    return Way(executor.pod_uid, dial)


class ReviewClient:
    """`signer` gives the one of the moment."""

    def __init__(self, signer: Callable[[], Signer]) -> None:
        self._signer = signer

    async def watch(self, way: Way) -> AsyncIterator[Sequence[review_pb2.PendingReview]]:
        """What waits, now and at each change, until the executor ends or does not answer. Raises FleetError."""
        channel, metadata = way.dial()
        async with channel:
            call = ReviewServiceStub(channel).WatchPending(review_pb2.WatchPendingRequest(), metadata=metadata)
            try:
                async for response in call:
                    yield response.reviews
            except grpc.aio.AioRpcError as error:
                raise _refusal(error) from error

    async def answer(
        self,
        way: Way,
        review: review_pb2.PendingReview,
        *,
        verb: str,
        reviewer: str,
        rule: str = "",
        reason: str = "",
        edit: bytes = b"",
    ) -> None:
        """Signs the answer, and brings it to the executor. Raises FleetError."""
        claims = {
            "review": review.review_id,
            "digest": review.digest.hex(),
            "state": review.state,
            "verb": verb,
            "rule": rule,
            "reason": reason,
            "edit": hashlib.sha256(edit).hexdigest() if edit else "",
        }
        await self._send(way, claims, reviewer, edit)

    async def vote(self, way: Way, review: review_pb2.PendingReview, votes: Votes, reviewer: str) -> None:
        """Leave the approvals that a review has so far at its executor, for the next leader. Raises FleetError."""
        claims = {
            "review": review.review_id,
            "digest": review.digest.hex(),
            "state": votes.state,
            "verb": "vote",
            "voters": sorted(votes.voters),
            "edit": digest_of(votes.edit).hex(),
        }
        await self._send(way, claims, reviewer, votes.edit)

    async def _send(self, way: Way, claims: Mapping[str, Any], reviewer: str, edit: bytes) -> None:
        statement = self._signer().answer(sandbox_uid=way.uid, reviewer=reviewer, claims=claims)
        request = review_pb2.AnswerRequest(statement=statement, content=edit)
        channel, metadata = way.dial()
        async with channel:
            try:
                await ReviewServiceStub(channel).Answer(request, timeout=CALL_TIMEOUT, metadata=metadata)
            except grpc.aio.AioRpcError as error:
                raise _refusal(error) from error


def _refusal(error: grpc.aio.AioRpcError) -> FleetError:
    said = error_detail(error)
    if (reason := REFUSALS.get(said.reason)) is not None:
        return reason.error(said.message[:500])
    details = (said.message or error.details() or error.code().name)[:500]
    return ClaimReason.EXECUTOR_UNREACHABLE.error(f"cannot reach the reviews of the sandbox: {details}")
