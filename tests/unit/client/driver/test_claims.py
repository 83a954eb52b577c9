"""How many claims wait at once."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet.driver.claims import LEAST, ClaimGate, ClaimWindow
from sandfleet.driver.turns import RetryAllowance, Turns
from sandfleet.values.fleet import Queued


def test_the_window_grows_with_each_claim_that_is_served_at_once():
    window = ClaimWindow(most=100.0, size=4.0).began()
    assert window.ended(served_at_once=True) == ClaimWindow(most=100.0, size=5.0)
    assert window.ended(served_at_once=False) == ClaimWindow(most=100.0, size=4.0)


def test_one_wave_of_waiting_claims_halves_it_once():
    window = ClaimWindow(most=100.0, size=16.0)
    for _ in range(10):
        window = window.held_up(epoch=0)
    assert (window.size, window.epoch) == (8.0, 1)


@given(st.lists(st.sampled_from(["begin", "served", "held up", "late"]), max_size=200))
def test_at_least_two_claims_may_wait_and_no_more_than_the_window_has(events):
    window = ClaimWindow(most=32.0)
    for event in events:
        if event == "begin" and window.is_open:
            window = window.began()
            assert window.waiting <= window.size
        elif event in {"served", "late"} and window.waiting:
            window = window.ended(served_at_once=event == "served")
        elif event == "held up":
            window = window.held_up(window.epoch)
        assert LEAST <= window.size <= 32.0
        assert window.waiting >= 0


@pytest.mark.parametrize("position", [0, 1, 5])
async def test_a_fleet_that_lets_claims_wait_is_asked_by_two_at_a_time(position):
    gate, seen = ClaimGate(1000), []

    async def claim():
        async with gate.claim() as claiming:
            claiming.heard(Queued(position=position, reason="QuotaReached"))
            await asyncio.sleep(0.001)
            seen.append(gate.window.waiting)

    await asyncio.gather(*(claim() for _ in range(100)))
    # The control: the first in the queue is no sign that others have to wait.
    assert (max(seen[20:]) > LEAST) == (position == 1)
    assert gate.window.waiting == 0


async def test_a_cancelled_claim_leaves_its_place():
    gate = ClaimGate(10)

    async def claim():
        async with gate.claim():
            await asyncio.sleep(60)

    tasks = [asyncio.create_task(claim()) for _ in range(20)]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert gate.window.waiting == 0
    async with gate.claim():
        assert gate.window.waiting == 1


@pytest.mark.parametrize("lent_for", [0.0, 60.0])
async def test_an_execution_that_takes_long_goes_on_without_its_turn(lent_for):
    turns = Turns(1, lent_for=lent_for)
    stuck = asyncio.Event()

    async def slow():
        async with turns.one():
            await stuck.wait()

    blocking = asyncio.create_task(slow())
    await asyncio.sleep(0.01)
    others = asyncio.create_task(slow())
    await asyncio.sleep(0.05)
    # The control: with a long loan the second one waits for the first.
    assert turns.running == (2 if lent_for == 0.0 else 1)
    stuck.set()
    await asyncio.gather(blocking, others)
    assert turns.running == 0


def test_retries_are_a_few_and_a_part_of_what_ended_well():
    allowance = RetryAllowance(spare=2, share=0.5)
    assert [allowance.take() for _ in range(3)] == [True, True, False]
    allowance.earn()
    assert not allowance.take()
    allowance.earn()
    assert allowance.take()
    assert allowance.taken == 3
