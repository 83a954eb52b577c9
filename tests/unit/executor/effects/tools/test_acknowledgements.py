"""Acknowledgements are sent together, and each is sent."""

import asyncio

import pytest
from sandfleet_executor.core.tools.values import Caller, Tool, Value
from sandfleet_executor.effects.tools.broker import MOST_ACKNOWLEDGED, VARIABLE, Acknowledgements, ToolBroker

pytestmark = pytest.mark.asyncio


class Served:
    """A broker, and a host that answers each call at once."""

    def __init__(self):
        self.records = []
        self.broker = ToolBroker(brokered=True, put=lambda kind, body: self.records.append(body["id"]))
        self.stream, _ = self.broker.connect("host", {"look": Tool("look", "", (), "", "{}")})
        self.key = self.broker.environment(Caller("cell"))[VARIABLE].partition(":")[2]
        self.batches = []
        self.called = []

    async def serve(self):
        while (message := await self.stream.next()) is not None:
            if isinstance(message, Acknowledgements):
                self.batches.append(list(message.call_ids))
            else:
                self.called.append(message.call.id)
                await self.broker.answer(self.stream, message.call.id, Value(b"1"))

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
