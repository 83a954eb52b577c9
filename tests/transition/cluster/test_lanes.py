"""Lanes on the event loop, in virtual time."""

import asyncio

import pytest
from sandfleet_operator.cluster.lanes import NoTurnError, Turns
from sandfleet_operator.plan.lanes import Bounds, Party
from transition.fake_time import run

BOUNDS = Bounds(total=4, per_namespace=2, per_node=3, rounds=1)
A, B = Party("a", "n1"), Party("b", "n1")


async def hold(turns, party, seconds, *, within=100.0, error=None):
    async with turns.turn(party, within):
        await asyncio.sleep(seconds)
        if error:
            raise error
    return asyncio.get_running_loop().time()


def test_one_namespace_waits_for_itself_alone():
    async def go():
        turns = Turns(BOUNDS)
        silent = [asyncio.create_task(hold(turns, A, 50.0)) for _ in range(10)]
        await asyncio.sleep(0)
        other = await hold(turns, B, 1.0)
        assert [one.done() for one in silent] == [False] * 10
        for one in silent:
            one.cancel()
        await asyncio.gather(*silent, return_exceptions=True)
        # Nothing is left of those that were cancelled, whether they had begun or not.
        return other, await asyncio.gather(*(hold(turns, A, 1.0) for _ in range(2)))

    assert run(go()) == (1.0, [2.0, 2.0])


def test_a_turn_that_does_not_come_is_refused():
    async def go():
        turns = Turns(BOUNDS)
        async with turns.turn(A, 0.0), turns.turn(A, 0.0):
            for within in (0.0, 3.0):
                with pytest.raises(NoTurnError, match="namespace a had no turn within"):
                    await hold(turns, A, 0.0, within=within)
        await hold(turns, A, 0.0, within=0.0)
        return asyncio.get_running_loop().time()

    assert run(go()) == 3.0


def test_a_party_that_stalled_is_tried_again_after_its_pause():
    async def go():
        turns = Turns(BOUNDS)
        for error, told in ((TimeoutError(), TimeoutError), (ValueError(), ValueError)):
            with pytest.raises(told):
                await hold(turns, A, 1.0, error=error)
        # The first one stalled, so that the second began a second later; it had an answer.
        assert asyncio.get_running_loop().time() == 3.0
        return await asyncio.gather(*(hold(turns, A, 1.0) for _ in range(2)))

    assert run(go()) == [4.0, 4.0]


def test_a_task_that_is_cancelled_as_its_turn_begins_gives_it_back():
    async def go():
        turns = Turns(BOUNDS)
        first = [asyncio.create_task(hold(turns, A, 1.0)) for _ in range(2)]
        await asyncio.sleep(0)
        late = asyncio.create_task(hold(turns, A, 100.0))
        await asyncio.gather(*first)
        # Its turn has begun, and the task has not run since.
        late.cancel()
        await asyncio.gather(late, return_exceptions=True)
        return await asyncio.gather(*(hold(turns, A, 1.0, within=0.0) for _ in range(2)))

    assert run(go()) == [2.0, 2.0]
