"""The watchdog of the executor's event loop."""

import asyncio
import threading

from sandfleet_executor.effects.session import watchdog


async def test_a_loop_that_does_not_turn_any_more_is_ended():
    ended = threading.Event()
    watchdog.start(asyncio.get_running_loop(), ended.set, check_seconds=0.01, stuck_seconds=0.05)
    # Blocks the loop, as a stuck call would, until the watchdog has seen it.
    assert ended.wait(timeout=30)


async def test_a_loop_that_turns_is_left_alone():
    ended, turns = threading.Event(), 0
    watchdog.start(asyncio.get_running_loop(), ended.set, check_seconds=0.001, stuck_seconds=60)
    while turns < 200:
        await asyncio.sleep(0.001)
        turns += 1
    assert not ended.is_set()
