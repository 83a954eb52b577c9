"""One execution between its producers and its reader."""

import asyncio

from sandfleet_executor.core.events import STDOUT, Finished, Started
from sandfleet_executor.effects.execution import WINDOW_BYTES, Execution

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
