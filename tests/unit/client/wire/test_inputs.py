"""Input for the code of a cell: the callback, and what becomes of its answers."""

import asyncio
import threading
from typing import Any

import pytest
from sandfleet._wire.events import Asked
from sandfleet._wire.inputs import Inputs
from sandfleet.errors import NotFoundError
from sandfleet.values import InputRequest


class Link:
    """Keeps the answers; the first ones may be refused."""

    def __init__(self, *failures: Exception) -> None:
        self.answers: list[tuple[str, str, str | None]] = []
        self._failures = list(failures)

    async def unary(self, _method: Any, request: Any, **_options: Any) -> None:
        text = None if request.refused else request.text
        self.answers.append((request.execution_id, request.input_id, text))
        if self._failures:
            raise self._failures.pop(0)


def asks(number: int, *, password: bool = False) -> Asked:
    return Asked(str(number), "who? ", password, settled=False)


def settled(number: int) -> Asked:
    return Asked(str(number), "", password=False, settled=True)


async def answered(on_input: Any, *asked: Asked, link: Link | None = None) -> list[tuple[str, str, str | None]]:
    """What was answered to these requests, of which each is waited for."""
    made = link or Link()
    inputs = Inputs(made, "e", on_input)  # type: ignore[arg-type]
    for number, each in enumerate(asked, 1):
        inputs.take(each)
        while len(made.answers) < number:
            await asyncio.sleep(0.001)
    await inputs.close()
    return made.answers


class Asker:
    """An object that is called as a coroutine function is."""

    async def __call__(self, request: InputRequest) -> str:
        return str(request).upper()


async def test_plain_and_async_callbacks_answer_and_none_refuses() -> None:
    heard: list[InputRequest] = []

    async def later(request: InputRequest) -> str | None:
        await asyncio.sleep(0)
        heard.append(request)
        return None if request.password else "ann\n"

    assert await answered(later, asks(1), asks(2, password=True)) == [("e", "1", "ann"), ("e", "2", None)]
    assert heard == [InputRequest("who? "), InputRequest("who? ", password=True)]
    assert await answered(str, asks(1)) == [("e", "1", "who? ")]
    assert await answered(Asker(), asks(1)) == [("e", "1", "WHO? ")]


async def test_a_plain_callback_may_block_and_does_not_hold_up_the_loop() -> None:
    goes_on = threading.Event()

    def ask(_: InputRequest) -> str:
        assert goes_on.wait(30)
        return threading.current_thread().name

    link = Link()
    inputs = Inputs(link, "e", ask)  # type: ignore[arg-type]
    inputs.take(asks(1))
    await asyncio.sleep(0.01)
    assert link.answers == []
    goes_on.set()
    while not link.answers:
        await asyncio.sleep(0.001)
    assert link.answers[0][2] != threading.current_thread().name
    await inputs.close()


@pytest.mark.parametrize(
    ("said", "error"),
    [(lambda _: 1 / 0, ZeroDivisionError), (lambda _: 7, TypeError), (lambda _: "a\nb", ValueError)],
)
async def test_what_a_callback_raises_refuses_the_input_and_is_raised_at_the_end(said: Any, error: Any) -> None:
    link = Link()
    with pytest.raises(error):
        await answered(said, asks(1), link=link)
    assert link.answers == [("e", "1", None)]


async def test_a_request_that_is_settled_is_not_asked_or_given_up() -> None:
    asked: list[InputRequest] = []
    ended: list[str] = []

    async def wait(request: InputRequest) -> str:
        asked.append(request)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("given up")
        return ""

    link = Link()
    inputs = Inputs(link, "e", wait)  # type: ignore[arg-type]
    # As a client sees it that attaches later: both came at once.
    inputs.take(asks(1))
    inputs.take(settled(1))
    await asyncio.sleep(0.01)
    assert (asked, ended) == ([], [])
    inputs.take(asks(2))
    await asyncio.sleep(0.01)
    inputs.take(settled(2))
    await asyncio.sleep(0.01)
    assert (len(asked), ended) == (1, ["given up"])
    # One that attaches has a moment for it.
    late = Inputs(link, "e", wait, delay=30.0)  # type: ignore[arg-type]
    late.take(asks(4))
    await asyncio.sleep(0.01)
    late.take(settled(4))
    await late.close()
    inputs.take(asks(3))
    await asyncio.sleep(0.01)
    await inputs.close()
    assert (len(asked), ended, link.answers) == (2, ["given up"] * 2, [])


async def test_an_answer_that_is_not_wanted_any_more_is_no_error() -> None:
    link = Link(NotFoundError("cannot answer: it does not wait", reason="InputNotAsked"))
    assert await answered(lambda _: "x", asks(1), link=link) == [("e", "1", "x")]


async def test_without_a_callback_nothing_is_asked() -> None:
    inputs = Inputs(Link(), "e", None)  # type: ignore[arg-type]
    inputs.take(asks(1))
    await inputs.close()


def test_a_request_is_its_prompt_as_a_text() -> None:
    assert str(InputRequest("who? ", password=True)) == "who? "
