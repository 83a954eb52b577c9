"""One execution between its producers and its reader."""

import asyncio

from sandfleet_executor.core.executions.events import STDOUT, Finished, Gap, Output, Started
from sandfleet_executor.effects.executions import execution as execution_module
from sandfleet_executor.effects.executions.execution import RING_BYTES, WINDOW_BYTES, Execution

MIB = 1 << 20


class Source:
    """Notes whether it may produce."""

    def __init__(self):
        self.paused = False

    def pause(self):
        self.paused = True

    def resume(self):
        self.paused = False


async def reading(execution):
    """A reader that has begun and takes nothing yet."""
    batches = execution.batches()
    first = asyncio.create_task(anext(batches))
    await asyncio.sleep(0)
    execution.emit(Started(execution.id))
    await first
    return batches


async def test_a_source_waits_while_the_reader_is_behind_and_goes_on_when_it_has_caught_up():
    execution, source = Execution("e", 64 * MIB), Source()
    execution.add_source(source)
    batches = await reading(execution)
    execution.output(STDOUT, b"x" * (WINDOW_BYTES + 1))
    assert source.paused
    await anext(batches)
    waiting = asyncio.create_task(anext(batches))
    await asyncio.sleep(0)
    assert not source.paused
    waiting.cancel()


async def test_a_source_that_waits_when_the_execution_ends_is_let_go():
    execution, source = Execution("e", 64 * MIB), Source()
    execution.add_source(source)
    await reading(execution)
    execution.output(STDOUT, b"x" * (WINDOW_BYTES + 1))
    assert source.paused
    execution.emit(Finished("ok"))
    assert not source.paused


async def test_what_comes_just_before_the_end_goes_with_it():
    execution = Execution("e", MIB)
    batches = await reading(execution)
    waiting = asyncio.create_task(anext(batches))
    execution.output(STDOUT, b"x")
    execution.ending = True
    await asyncio.sleep(0.01)
    assert not waiting.done()
    execution.emit(Finished("ok"))
    assert [number for number, _ in await waiting] == [2, 3]


async def test_of_two_readers_the_stalled_one_is_not_waited_for_for_ever(monkeypatch):
    monkeypatch.setattr(execution_module, "STALL_SECONDS", 0.0)
    execution, source = Execution("e", 64 * MIB), Source()
    execution.add_source(source)
    stopped, going = await reading(execution), execution.batches()
    await anext(going)
    execution.output(STDOUT, b"x" * (WINDOW_BYTES + 1))
    assert source.paused
    await anext(going)
    waiting = asyncio.create_task(anext(going))
    # Only this reader is behind: producers go on as soon as it is stalled.
    async with asyncio.timeout(60):
        while source.paused:
            await asyncio.sleep(0)
    waiting.cancel()
    # The one that stopped still gets what is kept.
    assert [number for number, _ in await anext(stopped)] == [2]


async def test_a_single_reader_is_always_waited_for(monkeypatch):
    monkeypatch.setattr(execution_module, "STALL_SECONDS", 0.0)
    execution, source = Execution("e", 64 * MIB), Source()
    execution.add_source(source)
    alone = await reading(execution)
    execution.output(STDOUT, b"x" * (WINDOW_BYTES + 1))
    for _ in range(50):
        await asyncio.sleep(0)
    assert source.paused
    await alone.aclose()
    await execution.settle()
    assert not source.paused


async def test_ten_thousand_small_events_and_a_reader_that_stops_are_a_bounded_weight():
    """What it holds is bounded whatever comes: the ring, of which the reader hears the rest as an exact gap."""
    execution = Execution("e", 640 * MIB)
    stopped = await reading(execution)
    for _ in range(10_000):
        execution.output(STDOUT, b"x" * 2048)
        assert execution.size <= RING_BYTES
    execution.emit(Finished("ok"))
    events = [pair for batch in [batch async for batch in stopped] for pair in batch]
    gaps = [event for _, event in events if isinstance(event, Gap)]
    kept = [event for _, event in events if isinstance(event, Output)]
    assert sum(gap.dropped_events for gap in gaps) + len(kept) == 10_000
    assert sum(gap.dropped_bytes for gap in gaps) + sum(len(event.data) for event in kept) == 10_000 * 2048
