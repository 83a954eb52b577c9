"""Doubt about a silent executor: it is asked more and more seldom, and its call ends only by the fleet's word."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from sandfleet._wire import doubt
from sandfleet._wire.doubt import Doubt


class Silent:
    """A link whose executor is gone from the given question on, and a call that notes its cancellation."""

    def __init__(self, gone_at: int) -> None:
        self.asked: list[float] = []
        self.cancelled = False
        self._gone_at = gone_at

    async def is_gone(self, _link: Any, _connection: Any) -> bool:
        self.asked.append(asyncio.get_running_loop().time())
        return len(self.asked) >= self._gone_at

    def cancel(self) -> None:
        self.cancelled = True


@pytest.fixture
def link_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a silent link that answers the doubts."""

    def made(gone_at: int) -> Silent:
        link = Silent(gone_at)
        monkeypatch.setattr(doubt, "_is_gone", link.is_gone)
        return link

    return made


def doubted(link: Any, address: str = "10.0.0.1:50051") -> Doubt:
    return Doubt(link, SimpleNamespace(access=SimpleNamespace(address=address)), link)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doubt, "_FIRST", 0.02)
    monkeypatch.setattr(doubt, "_LONGEST", 0.04)


async def until(holds: Any) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.005)


async def test_a_call_ends_once_the_fleet_says_that_its_executor_has_ended(link_of: Any) -> None:
    link = link_of(gone_at=3)
    doubts = doubted(link)
    await until(lambda: link.cancelled)
    assert (doubts.gone, len(link.asked)) == (True, 3)
    first, second, third = link.asked
    # Each pause is at least as long as the one before.
    assert min(second - first, third - second) >= 0.04


async def test_an_executor_that_is_there_may_be_silent_as_long_as_it_likes(link_of: Any) -> None:
    link = link_of(gone_at=10**9)
    doubts = doubted(link)
    await until(lambda: len(link.asked) >= 3)
    assert not (doubts.gone or link.cancelled)
    doubts.end()
    asked = len(link.asked)
    await asyncio.sleep(0.1)
    assert len(link.asked) <= asked + 1


async def test_a_message_in_time_costs_no_question_and_a_socket_of_this_machine_needs_none(link_of: Any) -> None:
    link = link_of(gone_at=1)
    doubted(link).end()
    here = doubted(link, "unix:/run/x.sock")
    await asyncio.sleep(0.1)
    assert (link.asked, link.cancelled, here.gone) == ([], False, False)
