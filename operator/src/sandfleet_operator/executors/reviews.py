"""Reviews at executors of this machine: what waits there, and answers to it. Their messages are untrusted."""

import hashlib
from collections.abc import AsyncIterator, Sequence
from typing import Final

import grpc
from sandfleet_api.executor.v1 import review_pb2
from sandfleet_api.executor.v1.review_pb2_grpc import ReviewServiceStub

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.api.values import Sandbox
from sandfleet_operator.executors.client import CALL_TIMEOUT, Executors, error_detail
from sandfleet_operator.executors.tokens import Signer
from sandfleet_operator.plan.reviews.reasons import ReviewReason

# Requests that wait have 24 MiB together at most.
CHANNEL_OPTIONS: Final = (("grpc.max_receive_message_length", 32 << 20), ("grpc.enable_http_proxy", 0))
REFUSALS = {
    one.value: one
    for one in (ReviewReason.REVIEW_NOT_FOUND, ReviewReason.REVIEW_CHANGED, ReviewReason.REVIEW_NOT_EDITABLE)
}


class ReviewClient:
    def __init__(self, executors: Executors, signer: Signer) -> None:
        self._executors = executors
        self._signer = signer

    async def watch(self, sandbox: Sandbox) -> AsyncIterator[Sequence[review_pb2.PendingReview]]:
        """What waits, now and at each change, until the executor ends or does not answer. Raises FleetError."""
        address, metadata = self._executors.address(sandbox), self._executors.metadata(sandbox)
        async with grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
            call = ReviewServiceStub(channel).WatchPending(review_pb2.WatchPendingRequest(), metadata=metadata)
            try:
                async for response in call:
                    yield response.reviews
            except grpc.aio.AioRpcError as error:
                raise _refusal(error) from error

    async def answer(
        self,
        sandbox: Sandbox,
        review: review_pb2.PendingReview,
        *,
        verb: str,
        reviewer: str,
        rule: str = "",
        reason: str = "",
        edit: bytes = b"",
    ) -> None:
        """Signs the answer, and brings it to the executor. Raises FleetError."""
        claims: dict[str, str | int] = {
            "review": review.review_id,
            "digest": review.digest.hex(),
            "state": review.state,
            "verb": verb,
            "rule": rule,
            "reason": reason,
            "edit": hashlib.sha256(edit).hexdigest() if edit else "",
        }
        statement = self._signer.answer(sandbox_uid=sandbox.sandbox_uid, reviewer=reviewer, claims=claims)
        request = review_pb2.AnswerRequest(statement=statement, content=edit)
        address, metadata = self._executors.address(sandbox), self._executors.metadata(sandbox)
        async with grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
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
