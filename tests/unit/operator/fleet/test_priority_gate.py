"""Background work gives way to interactive work, and still gets its turn."""

import asyncio

import pytest
from sandfleet_operator.fleet.priority_gate import PriorityGate


async def until(holds):
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.001)


async def test_background_work_waits_while_interactive_work_runs():
    gate, done = PriorityGate(60), []

    async def behind(number):
        async with gate.background():
            done.append(number)

    async with gate.interactive():
        async with gate.interactive():
            tasks = [asyncio.create_task(behind(number)) for number in range(3)]
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.02)
        assert done == []
    await until(lambda: done == [0, 1, 2])
    await asyncio.gather(*tasks)


async def test_background_work_runs_after_its_patience():
    gate, done = PriorityGate(0.05), []

    async def behind(number):
        async with gate.background():
            done.append(number)

    async with gate.interactive():
        await asyncio.gather(*(behind(number) for number in range(5)))
    # Timers of the same moment go off in any order.
    assert sorted(done) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("each", "most", "at_once"), [(50, 16, 2), (5, 16, 5), (1, 4, 4)])
async def test_little_background_work_runs_at_once_and_more_when_much_waits(each, most, at_once):
    gate, reached, running = PriorityGate(60, each=each, most=most), 0, 0

    async def behind():
        nonlocal reached, running
        async with gate.background():
            running += 1
            reached = max(reached, running)
            await asyncio.sleep(0.001)
            running -= 1

    async with gate.interactive():
        tasks = [asyncio.create_task(behind()) for _ in range(20)]
        await asyncio.sleep(0.01)
    await asyncio.gather(*tasks)
    assert reached == at_once


async def test_cancelled_work_blocks_no_other_work():
    gate = PriorityGate(60)

    async def behind():
        async with gate.background():
            await asyncio.sleep(60)

    tasks = [asyncio.create_task(behind()) for _ in range(5)]
    await asyncio.sleep(0.01)
    for task in reversed(tasks):
        task.cancel()
    await asyncio.wait(tasks)
    async with asyncio.timeout(60), gate.background():
        pass


async def test_interactive_work_runs_in_order_and_bounded():
    gate, begun, going_on = PriorityGate(60, at_once=2), [], asyncio.Event()

    async def first(number):
        async with gate.interactive():
            begun.append(number)
            await going_on.wait()

    tasks = [asyncio.create_task(first(number)) for number in range(5)]
    await until(lambda: len(begun) == 2)
    await asyncio.sleep(0.02)
    assert begun == [0, 1]
    going_on.set()
    await asyncio.gather(*tasks)
    assert begun == [0, 1, 2, 3, 4]
