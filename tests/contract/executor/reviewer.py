"""A reviewer of one executor, as the fleet is one: it reads what waits, and signs answers."""

import asyncio
import contextlib
import hashlib
import time
from contextlib import asynccontextmanager

import grpc
import pytest
from contract.executor.harness import PATIENCE, until
from sandfleet_api.executor.v1 import common_pb2, review_pb2_grpc
from sandfleet_api.executor.v1 import review_pb2 as pb


class Reviewer:
    def __init__(self, executor, stub):
        self.executor = executor
        self._stub = stub

    async def _call(self, method, request, *, token=None):
        metadata = (("authorization", f"Bearer {token or self.executor.token()}"),)
        return await getattr(self._stub, method)(request, metadata=metadata, timeout=PATIENCE)

    async def pending(self):
        return list((await self._call("ListPending", pb.ListPendingRequest())).reviews)

    async def waiting(self, count=1):
        """What waits, as soon as there are so many."""

        async def enough():
            found = await self.pending()
            return found if len(found) == count else None

        return await until(enough)

    async def waiting_for_none(self):
        return not await self.pending()

    def statement(self, review, verb="approve", *, key=None, **claims):
        """As the fleet signs it; claims replace the good ones, None leaves one out."""
        now = int(time.time())
        good = {
            "scope": None,
            "contract": None,
            "iat": None,
            "use": "review",
            "sub": "alice",
            "review": review.review_id,
            "digest": review.digest.hex(),
            "state": review.state,
            "verb": verb,
            "nbf": now,
            "exp": now + 60,
        }
        return self.executor.token(key, **(good | claims))

    async def send(self, statement, content=b"", *, token=None):
        await self._call("Answer", pb.AnswerRequest(statement=statement, content=content), token=token)

    async def approve(self, review, **claims):
        await self.send(self.statement(review, **claims))

    async def deny(self, review, reason=""):
        await self.send(self.statement(review, "deny", reason=reason))

    async def edit(self, review, content):
        await self.send(self.statement(review, "edit", edit=hashlib.sha256(content).hexdigest()), content)

    async def next(self):
        """The one review that waits."""
        return (await self.waiting())[0]


@asynccontextmanager
async def reviewing(executor):
    async with executor.channel() as channel:
        yield Reviewer(executor, review_pb2_grpc.ReviewServiceStub(channel))


@asynccontextmanager
async def asked(work):
    """Something that waits for review, in the background."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def refused(call):
    """(status, reason) of a call that fails."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    detail = dict(caught.value.trailing_metadata())["sandfleet-error-bin"]
    return caught.value.code().name, common_pb2.ErrorDetail.FromString(detail).reason


async def done(reviewer, work):
    """The answer of something that a reviewer approves, with all that it asks for."""

    async def approve_all():
        for review in await reviewer.pending():
            # One more may have run since.
            with contextlib.suppress(grpc.aio.AioRpcError):
                await reviewer.approve(review)
        return task.done()

    async with asked(work) as task:
        await until(approve_all)
        return await task
