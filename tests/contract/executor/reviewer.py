"""A reviewer of one executor, as the fleet is one: it reads what waits, and signs answers."""

import hashlib
import time
from contextlib import asynccontextmanager

from contract.executor.harness import PATIENCE, until
from sandfleet_api.executor.v1 import review_pb2 as pb
from sandfleet_api.executor.v1 import review_pb2_grpc


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
