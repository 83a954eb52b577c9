"""Reviews of a fleet: what waits in its reviewed sandboxes, and the answers."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandfleet._arguments import checked
from sandfleet._fleets.connection import is_broken
from sandfleet._wire import api
from sandfleet._wire.convert import reviews as convert
from sandfleet._wire.retry import Backoff
from sandfleet._wire.status import to_fleet_error
from sandfleet.errors import (
    AccessDenied,
    InvalidArgument,
    NotFoundError,
    PreconditionFailed,
    SandfleetError,
    UnavailableError,
)
from sandfleet.observe import tracing
from sandfleet.values.reviews import Answer, OnReview, Review

if TYPE_CHECKING:
    from sandfleet._fleets.connection import FleetConnection
    from sandfleet._wire.link import Metadata
    from sandfleet.values.tools import Decision

_RPC_TIMEOUT = 30.0
_PATIENCE = 10.0
# Beside the socket of a fleet on this machine: its reviewers' token, which is another than any agent's.
_TOKEN_FILE = "reviewer.token"  # noqa: S105 - the file's name
# Names the reviewer of a fleet on this machine that tells several apart.
_REVIEWER = "SANDFLEET_REVIEWER"
_UNIX = "unix:"
_BACKOFF = Backoff(0.1, 2.0)
_CHANGED = "ReviewChanged"
_log = logging.getLogger("sandfleet")


class AsyncReviews:
    """What waits for approval in the reviewed sandboxes of a fleet, for a reviewer.

    On one machine a reviewer is a program that can read the token in the fleet's directory, as this user's programs
    can; code in a sandbox cannot. On Kubernetes it is an account with the role `sandfleet-reviewer`, and another one
    than has claimed the sandbox.
    """

    def __init__(self, connection: FleetConnection, namespace: str) -> None:
        """Use `fleet.reviews`."""
        self._connection = connection
        self._namespace = namespace

    @checked
    async def list(self, sandbox_id: str = "", *, namespace: str | None = None) -> tuple[Review, ...]:
        """List what waits, the oldest first. Of a long content only the beginning.

        Args:
            sandbox_id: Only in this sandbox; "": in all.
            namespace: Only in this one, on Kubernetes; by default the fleet's, "" is all.

        Raises AccessDenied (the caller is no reviewer).

        """
        where = "" if sandbox_id else self._namespace if namespace is None else namespace
        request = api.fleet.ListReviewsRequest(sandbox_id=sandbox_id, namespace=where)
        answer = await self._call("ListReviews", request)
        return tuple(map(convert.review, answer.reviews))

    @checked
    async def get(self, sandbox_id: str, review_id: str) -> Review:
        """Return a review in full. Raises NotFoundError (it does not wait), AccessDenied."""
        async for waiting in self.watch(sandbox_id):
            for one in waiting:
                if one.review_id == review_id:
                    return one
            break
        raise NotFoundError(
            f"cannot show review {review_id!r}: none of this id waits", reason="ReviewNotFound", subject=review_id
        )

    @checked
    async def watch(self, sandbox_id: str) -> AsyncIterator[tuple[Review, ...]]:
        """Yield what waits in a sandbox, in full: now and at each change, until it ends.

        Raises AccessDenied, SandboxEnded.
        """
        metadata = await self._metadata()
        request = api.fleet.WatchReviewsRequest(sandbox_id=sandbox_id)
        call = self._connection.stub.WatchReviews(request, metadata=metadata)
        try:
            async for response in call:
                yield tuple(map(convert.review, response.reviews))
        except api.aio.AioRpcError as error:
            raise to_fleet_error(error) from error
        finally:
            call.cancel()

    @checked
    async def answer(self, review: Review, answer: Answer) -> int:
        """Answer a review that was looked at: `review.approve()`, `review.edit(code)` or `review.deny(reason)`.

        Return how many more reviewers have to approve it before it runs: 0 where the answer has reached the sandbox.

        Raises PreconditionFailed (ReviewChanged: the sandbox has let something run since, so look again; NotEditable),
        NotFoundError (it does not wait any more), AccessDenied, InvalidArgument.
        """
        request = convert.answer(review, answer)
        answered = await self._call("AnswerReview", request)
        return int(answered.missing)

    def ask(self, sandbox_id: str, on_review: OnReview) -> Reviewing:
        """Ask a callback about what waits in a sandbox, until it ends."""
        return Reviewing(self, sandbox_id, on_review)

    async def _call(self, name: str, request: api.message.Message) -> Any:
        reviewers = await self._metadata()
        return await self._connection.unary(name, request, _RPC_TIMEOUT, _PATIENCE, metadata=reviewers)

    async def _metadata(self) -> Metadata:
        """Return what shows that the caller is a reviewer. Raises AccessDenied."""
        address = self._connection.address
        if not address.startswith(_UNIX):
            return await self._connection.metadata()
        path = Path(address.removeprefix(_UNIX)).parent / token_file(os.environ.get(_REVIEWER, ""))
        try:
            token = await asyncio.to_thread(path.read_text, "ascii")
        except OSError as error:
            why = f"the reviewers' token in {path.parent} cannot be read: {error.strerror}"
            raise AccessDenied(f"cannot review: {why}", reason="NotReviewer") from error
        return (("authorization", f"Bearer {token}"),)


async def decision(connection: FleetConnection, request: api.fleet.ReviewCallRequest) -> Decision:
    """What reviewers decide about a call of a tool, for its host. Raises SandfleetError."""
    from sandfleet.values.tools import Decision

    clock = asyncio.get_running_loop().time
    with tracing.call(*tracing.rpc(request.DESCRIPTOR)):
        while True:
            asked_at = clock()
            try:
                answer = await connection.call(
                    lambda stub, metadata: stub.ReviewCall(request, metadata=metadata), _PATIENCE
                )
            except api.aio.AioRpcError as error:
                # A fleet that has answered for long has gone: another leads by now, which does not know of the call.
                if not is_broken(error) or clock() - asked_at < _PATIENCE:
                    raise to_fleet_error(error) from error
            else:
                why = f"a reviewer denied it: {answer.reason}" if answer.reason else "a reviewer denied it"
                return Decision(allowed=answer.approved, why="" if answer.approved else why)


def token_file(reviewer: str) -> str:
    """The file of a reviewer's token; "": of a fleet that tells none apart. Raises InvalidArgument."""
    if reviewer and not reviewer.replace("-", "").replace("_", "").isalnum():
        raise InvalidArgument(f"cannot review as {reviewer!r}: it is no name of a reviewer ({_REVIEWER})")
    return f"reviewer-{reviewer}.token" if reviewer else _TOKEN_FILE


class Reviewing:
    """Asks `on_review` about each request that waits in a sandbox, until the sandbox ends.

    A plain function runs in a thread. What it raises leaves the request waiting for another reviewer.
    """

    def __init__(self, reviews: AsyncReviews, sandbox_id: str, on_review: OnReview) -> None:
        self._reviews = reviews
        self._sandbox_id = sandbox_id
        self.on_review = on_review
        self._latest: dict[str, Review] = {}
        self._changed = asyncio.Event()
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._task = asyncio.create_task(self._run())

    def stop(self) -> None:
        """Ask no more; what waits goes on waiting."""
        self._task.cancel()

    async def _run(self) -> None:
        failures = 0
        try:
            while True:
                try:
                    async for waiting in self._reviews.watch(self._sandbox_id):
                        failures = 0
                        self._take(waiting)
                except UnavailableError:
                    failures += 1
                    await asyncio.sleep(_BACKOFF.after(failures))
                else:
                    return
        except SandfleetError as error:
            _log.info("reviews of %s are not asked about any more: %s", self._sandbox_id, error.message)
        finally:
            for task in self._asking.values():
                task.cancel()

    def _take(self, waiting: tuple[Review, ...]) -> None:
        self._latest = {one.review_id: one for one in waiting}
        self._changed.set()
        self._changed = asyncio.Event()
        for name in [name for name, task in self._asking.items() if task.done() and name not in self._latest]:
            del self._asking[name]
        for name in self._latest.keys() - self._asking.keys():
            self._asking[name] = asyncio.create_task(self._ask(name))

    async def _ask(self, name: str) -> None:
        """Ask until the request is answered; again where the sandbox has let something run since it was looked at."""
        while (review := self._latest.get(name)) is not None:
            changed = self._changed
            try:
                answer = await self._asked(review)
                if answer is not None:
                    await self._reviews.answer(review, answer)
            except PreconditionFailed as error:
                if error.reason != _CHANGED:
                    _log.warning("an answer to a review was refused: %s", error.message)
                    return
            except SandfleetError as error:
                _log.info("an answer to a review came to nothing: %s", error.message)
                return
            except Exception:  # noqa: BLE001 - whatever a reviewer's program does
                # A reviewer's fault must not let anything run, nor end the session.
                _log.exception("on_review has failed; the request waits for another reviewer")
                return
            else:
                return
            if self._latest.get(name) is review:
                await changed.wait()

    async def _asked(self, review: Review) -> Answer | None:
        """Ask once. Raises TypeError for what is no answer, and what `on_review` raises."""
        if inspect.iscoroutinefunction(self.on_review):
            answer: object = await self.on_review(review)
        else:
            said = await asyncio.to_thread(self.on_review, review)
            answer = await said if inspect.isawaitable(said) else said
        if answer is None or isinstance(answer, Answer):
            return answer
        ways = "review.approve(), review.edit(…) or review.deny(…), or None to leave it to others"
        raise TypeError(f"on_review has to return {ways}, and returned {answer!r:.80}")
