"""What a reviewer's program may answer."""

import asyncio
from typing import Any

import pytest
from sandfleet._fleets.reviews import Reviewing
from sandfleet.values.reviews import Review


class Reviews:
    """One request waits; `given` has the answers that came to it."""

    def __init__(self) -> None:
        self.given: list[object] = []

    async def watch(self, sandbox_id: str) -> Any:
        yield (Review(sandbox_id, "r1", "cell", b"1 + 1"),)
        await asyncio.Event().wait()

    async def answer(self, review: Review, answer: object) -> None:
        self.given.append(answer)


async def asked(on_review: Any) -> list[object]:
    reviews: Any = Reviews()
    reviewing = Reviewing(reviews, "sb-1", on_review)
    while not reviewing._asking:
        await reviewing._changed.wait()
    (task,) = reviewing._asking.values()
    await task
    reviewing.stop()
    return list(reviews.given)


async def also_yes(_review: Review) -> Any:
    return "yes"


@pytest.mark.parametrize("on_review", [lambda _: True, also_yes], ids=["plain", "asynchronous"])
async def test_what_is_no_answer_lets_nothing_run_and_a_line_says_what_is_one(
    on_review: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert await asked(on_review) == []
    assert "on_review has to return review.approve()" in caplog.text


async def test_an_answer_is_given_and_none_leaves_the_request_to_others(caplog: pytest.LogCaptureFixture) -> None:
    (answer,) = await asked(lambda review: review.approve())
    assert getattr(answer, "verb", "") == "approve"
    assert await asked(lambda _: None) == []
    assert caplog.text == ""
