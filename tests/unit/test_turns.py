"""What nobody waits for lets pass what somebody waits for, and comes to its turn all the same."""

import asyncio

from sandfleet_operator.fleet.turns import Turns


async def until(holds):
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.001)


async def test_what_nobody_waits_for_waits_until_nobody_waits():
    turns, done = Turns(2, patience=60), []

    async def behind(number):
        async with turns.behind():
            done.append(number)

    with turns.first():
        with turns.first():
            tasks = [asyncio.create_task(behind(number)) for number in range(3)]
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.02)
        assert done == []
    await until(lambda: done == [0, 1, 2])
    await asyncio.gather(*tasks)


async def test_where_somebody_always_waits_patience_ends():
    turns, done = Turns(1, patience=0.05), []

    async def behind(number):
        async with turns.behind():
            done.append(number)

    with turns.first():
        await asyncio.gather(*(behind(number) for number in range(5)))
    assert done == [0, 1, 2, 3, 4]


async def test_only_a_few_go_at_once():
    turns, most, running = Turns(2, patience=60), 0, 0

    async def behind():
        nonlocal most, running
        async with turns.behind():
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.001)
            running -= 1

    await asyncio.gather(*(behind() for _ in range(10)))
    assert most == 2


async def test_who_is_cancelled_holds_nobody_up():
    turns = Turns(1, patience=60)

    async def behind():
        async with turns.behind():
            await asyncio.sleep(60)

    first, waiting = asyncio.create_task(behind()), asyncio.create_task(behind())
    await asyncio.sleep(0)
    waiting.cancel()
    first.cancel()
    await asyncio.wait([first, waiting])
    async with asyncio.timeout(1), turns.behind():
        pass
