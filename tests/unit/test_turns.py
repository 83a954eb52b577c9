"""What nobody waits for lets pass what somebody waits for, and comes to its turn all the same."""

import asyncio

import pytest
from sandfleet_operator.fleet.turns import Turns


async def until(holds):
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.001)


async def test_what_nobody_waits_for_waits_until_nobody_waits():
    turns, done = Turns(60), []

    async def behind(number):
        async with turns.behind():
            done.append(number)

    async with turns.first():
        async with turns.first():
            tasks = [asyncio.create_task(behind(number)) for number in range(3)]
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.02)
        assert done == []
    await until(lambda: done == [0, 1, 2])
    await asyncio.gather(*tasks)


async def test_where_somebody_always_waits_patience_ends():
    turns, done = Turns(0.05), []

    async def behind(number):
        async with turns.behind():
            done.append(number)

    async with turns.first():
        await asyncio.gather(*(behind(number) for number in range(5)))
    # In which order timers of the same moment go off is nobody's business.
    assert sorted(done) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("each", "most", "at_once"), [(50, 16, 2), (5, 16, 5), (1, 4, 4)])
async def test_only_a_few_go_at_once_and_more_where_many_wait(each, most, at_once):
    turns, reached, running = Turns(60, each=each, most=most), 0, 0

    async def behind():
        nonlocal reached, running
        async with turns.behind():
            running += 1
            reached = max(reached, running)
            await asyncio.sleep(0.001)
            running -= 1

    async with turns.first():
        tasks = [asyncio.create_task(behind()) for _ in range(20)]
        await asyncio.sleep(0.01)
    await asyncio.gather(*tasks)
    assert reached == at_once


async def test_who_is_cancelled_holds_nobody_up():
    turns = Turns(60)

    async def behind():
        async with turns.behind():
            await asyncio.sleep(60)

    tasks = [asyncio.create_task(behind()) for _ in range(5)]
    await asyncio.sleep(0.01)
    for task in reversed(tasks):
        task.cancel()
    await asyncio.wait(tasks)
    async with asyncio.timeout(1), turns.behind():
        pass


async def test_what_somebody_waits_for_goes_in_order_and_not_all_of_it_at_once():
    turns, begun, going_on = Turns(60, at_once=2), [], asyncio.Event()

    async def first(number):
        async with turns.first():
            begun.append(number)
            await going_on.wait()

    tasks = [asyncio.create_task(first(number)) for number in range(5)]
    await until(lambda: len(begun) == 2)
    await asyncio.sleep(0.02)
    assert begun == [0, 1]
    going_on.set()
    await asyncio.gather(*tasks)
    assert begun == [0, 1, 2, 3, 4]
