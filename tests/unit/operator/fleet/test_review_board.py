"""The board of reviews: what it shows while its executor's word and an answer cross."""

import asyncio
from types import SimpleNamespace

from sandfleet_api.executor.v1 import review_pb2
from sandfleet_api.fleet.v1 import fleet_pb2
from sandfleet_operator.cluster.reviews import Caller
from sandfleet_operator.executors.reviews import Way
from sandfleet_operator.fleet.reviews.board import ReviewBoard, Reviewed

REVIEWED = Reviewed(sandbox_id="s", holder="agent", lease_expires=None, way=Way("u", lambda: None))


def pending(name):
    """A cell that no rule approves."""
    return review_pb2.PendingReview(review_id=name, kind="cell", content=b"import os")


class LateExecutor:
    """It takes each answer, and says what waits when the test lets it."""

    def __init__(self):
        self.said = asyncio.Queue()

    async def watch(self, _way):
        while True:
            yield [pending(name) for name in await self.said.get()]

    async def answer(self, _way, _review, **_answer):
        """It is taken."""


async def test_what_was_answered_is_not_shown_again_by_an_executor_whose_word_comes_late():
    executor, told = LateExecutor(), []
    board = ReviewBoard(SimpleNamespace(find=lambda _: REVIEWED), executor, tell=told.append)
    board.follow("s")
    watching = board.watch("s")

    async def shown():
        return [one.request.review_id for one in (await anext(watching)).reviews]

    assert await shown() == []
    executor.said.put_nowait(["first", "second"])
    assert await shown() == ["first", "second"]
    request = fleet_pb2.AnswerReviewRequest(sandbox_id="s", review_id="first", deny=fleet_pb2.Denial())
    await board.answer(Caller("reviewer"), request)
    assert [one.request.review_id for one in board.waiting("s").reviews] == ["second"]
    # It has said so before it took the answer.
    executor.said.put_nowait(["first", "second"])
    executor.said.put_nowait(["first", "second", "third"])
    while (names := await shown()) != ["second", "third"]:
        assert names == ["second"]
    assert len(told) == 3
    board.close()
