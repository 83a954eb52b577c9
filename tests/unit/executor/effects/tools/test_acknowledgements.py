"""Acknowledgements are sent together, and each is sent."""

import asyncio

import pytest
from sandfleet_executor.core.tools.values import Caller, Tool, Value
from sandfleet_executor.effects.tools.broker import (
    MOST_ACKNOWLEDGED,
    MOST_BYTES_TOGETHER,
    MOST_TOGETHER,
    VARIABLE,
    Acknowledgements,
    ToolBroker,
)

pytestmark = pytest.mark.asyncio


class Served:
    """A broker, and a host that answers each call at once."""

    def __init__(self, *, takes_many=False):
        self.records = []
        self.broker = ToolBroker(brokered=True, put=lambda kind, body: self.records.append(body["id"]))
        tools = {"look": Tool("look", "", (), "", "{}")}
        self.stream, _ = self.broker.connect("host", tools, takes_many=takes_many)
        self.key = self.broker.environment(Caller("cell"))[VARIABLE].partition(":")[2]
        self.batches = []
        self.called = []
        # How many calls came in each message.
        self.together = []

    async def serve(self):
        while (message := await self.stream.next()) is not None:
            if isinstance(message, Acknowledgements):
                self.batches.append(list(message.call_ids))
            else:
                self.together.append(len(message.calls))
                for each in message.calls:
                    self.called.append(each.call.id)
                    await self.broker.answer(self.stream, each.call.id, Value(b"1"))

    async def call(self):
        assert await self.broker.call(self.key, "look", Value(b"{}")) == Value(b"1")

    @property
    def acknowledged(self):
        return [each for batch in self.batches for each in batch]


@pytest.mark.parametrize("at_once", [1, 8])
async def test_calls_of_one_burst_are_acknowledged_in_few_messages(at_once):
    served = Served()
    serving = asyncio.create_task(served.serve())
    for _ in range(3 * MOST_ACKNOWLEDGED // at_once):
        await asyncio.gather(*(served.call() for _ in range(at_once)))
    served.stream.stop()
    await serving
    assert served.acknowledged == served.called
    assert len(served.called) == 3 * MOST_ACKNOWLEDGED
    assert max(map(len, served.batches)) == MOST_ACKNOWLEDGED


@pytest.mark.parametrize(("takes_many", "expected"), [(False, [1] * 70), (True, [MOST_TOGETHER, 70 - MOST_TOGETHER])])
async def test_calls_that_wait_go_together_to_a_host_that_takes_many(takes_many, expected):
    served = Served(takes_many=takes_many)
    calls = asyncio.gather(*(served.call() for _ in range(70)))
    await asyncio.sleep(0)
    serving = asyncio.create_task(served.serve())
    await calls
    served.stream.stop()
    await serving
    assert served.together == expected
    assert sorted(served.acknowledged) == sorted(served.called)
    assert len(set(served.called)) == 70


async def test_large_arguments_do_not_make_a_message_without_end():
    served = Served(takes_many=True)
    half = Value(b'"' + b"x" * (MOST_BYTES_TOGETHER // 2) + b'"')
    calls = asyncio.gather(*(served.broker.call(served.key, "look", half) for _ in range(6)))
    await asyncio.sleep(0)
    serving = asyncio.create_task(served.serve())
    await calls
    served.stream.stop()
    await serving
    assert served.together == [2, 2, 2]


async def test_a_cell_that_called_nothing_ends_without_news_for_the_host():
    served = Served()
    served.stream.news.clear()
    served.broker.environment(Caller("quiet"))
    served.broker.end(Caller("quiet"))
    assert not served.stream.news.is_set()
    # Control: one that has called has something to end.
    waiting = asyncio.create_task(served.call())
    await asyncio.sleep(0)
    served.stream.news.clear()
    served.broker.end(Caller("cell"))
    assert served.stream.news.is_set()
    with pytest.raises(AssertionError):
        await waiting


async def test_a_single_acknowledgement_waits_a_moment_and_comes():
    served = Served()
    serving = asyncio.create_task(served.serve())
    await served.call()
    while not served.batches:
        await asyncio.sleep(0.001)
    assert served.batches == [served.called]
    served.stream.stop()
    await serving


async def test_a_host_that_stops_takes_no_call_any_more():
    served = Served()
    waiting = asyncio.create_task(served.call())
    await asyncio.sleep(0)
    served.stream.stop()
    await served.serve()
    assert not served.called
    served.broker.disconnect(served.stream, broken=False)
    with pytest.raises(AssertionError):
        await waiting


async def test_a_call_is_recorded_before_its_execution_ends():
    served = Served()
    serving = asyncio.create_task(served.serve())
    await served.call()
    assert served.records == []
    served.broker.end(Caller("cell"))
    assert served.records == served.called
    served.stream.stop()
    await serving
