"""Work on thousands of things at once lets others have their turn."""

import asyncio
from collections import Counter

import pytest
from sandfleet_operator.cluster.tasks import Paced, Sweeps, Turns, in_turns


async def turns(count):
    while True:
        count[0] += 1
        await asyncio.sleep(0)


async def rounds(count, tasks=20):
    """How many pieces of long work the most busy round of the loop has had, and what each task has done."""
    loop, number, seen, done = asyncio.get_running_loop(), [0], Counter(), []

    def a_round():
        number[0] += 1
        if len(done) < tasks:
            loop.call_soon(a_round)

    async def work():
        found = []
        async for one in in_turns(range(count), 2):
            seen[number[0]] += one % 2
            found.append(one)
        done.append(found)

    a_round()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for _ in range(tasks):
            group.create_task(work())
    return max(seen.values()), done


async def no_wait(_self):
    await asyncio.sleep(0)


@pytest.mark.parametrize(("turns", "most"), [(Turns.next, 1), (no_wait, 20)])
async def test_of_many_tasks_with_long_work_one_goes_on_in_each_round(monkeypatch, turns, most):
    monkeypatch.setattr(Turns, "next", turns)
    busiest, done = await rounds(10)
    assert (busiest, done) == (most, [list(range(10))] * 20)


async def test_a_task_that_is_cancelled_while_it_waits_for_its_turn_holds_up_no_other_one():
    turns, got = Turns(), []

    async def work(name):
        await turns.next()
        got.append(name)

    tasks = [asyncio.create_task(work(name)) for name in "abcd"]
    await asyncio.sleep(0)
    for one in tasks[1:3]:
        one.cancel()
    await asyncio.wait(tasks)
    async with asyncio.timeout(60):
        await turns.next()
    assert got == ["a", "d"]


async def test_what_comes_at_once_begins_a_few_at_a_time_in_order():
    count, begun = [0], []
    paced = Paced(lambda one: begun.append((one, count[0])), 3)
    other = asyncio.create_task(turns(count))
    for number in range(20):
        paced.add(number)
    assert not begun
    await asyncio.sleep(0)
    paced.add(20)
    while len(begun) < 21:
        await asyncio.sleep(0)
    paced.add(21)
    await asyncio.sleep(0)
    other.cancel()
    assert [one for one, _ in begun] == list(range(22))
    assert all(later[1] > earlier[1] for earlier, later in zip(begun, begun[3:], strict=False))


async def test_nothing_begins_after_the_end():
    begun = []
    paced = Paced(begun.append, 2)
    for number in range(5):
        paced.add(number)
    await asyncio.sleep(0)
    paced.close()
    await asyncio.sleep(0.01)
    assert begun == [0, 1]


async def test_looks_come_one_after_the_other_and_one_that_waits_is_made_once():
    begun, ended, going = [], [], asyncio.Event()

    async def look(what):
        begun.append(what)
        await going.wait()
        ended.append(what)

    sweeps = Sweeps(look, "look")
    for what in "aab":
        sweeps.add(what)
    await asyncio.sleep(0.01)
    # The one that has begun may have passed what is new.
    sweeps.add("a")
    sweeps.add("b")
    assert begun == ["a"]
    going.set()
    while len(ended) < 3:
        await asyncio.sleep(0)
    sweeps.add("c")
    while len(ended) < 4:
        await asyncio.sleep(0)
    assert ended == ["a", "b", "a", "c"]
    sweeps.close()


async def test_a_look_that_fails_stops_no_later_one(caplog):
    looked = []

    async def look(what):
        looked.append(what)
        if what == "bad":
            raise ValueError("cannot look")

    sweeps = Sweeps(look, "look")
    sweeps.add("bad")
    sweeps.add("good")
    while len(looked) < 2:
        await asyncio.sleep(0)
    assert (looked, "cannot look" in caplog.text) == (["bad", "good"], True)
