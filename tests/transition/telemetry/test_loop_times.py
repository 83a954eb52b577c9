"""How long an event loop works at a stretch, by a clock that only work moves."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_operator.telemetry.loop_times import WINDOW, LoopTimes


@pytest.fixture
def clock():
    class Clock:
        now = 0.0

        def __call__(self):
            return self.now

        def work(self, seconds):
            self.now += seconds

    return Clock()


def run(clock, work):
    times = LoopTimes(clock, now=clock)
    with asyncio.Runner(loop_factory=times.new_loop) as runner:
        return runner.run(work(times))


def test_the_longest_stretch_is_work_without_a_pause(clock):
    async def work(times):
        times.take()
        for seconds in (0.1, 0.5, 0.2):
            clock.work(seconds)
            await asyncio.sleep(0)
        return times.take()

    assert run(clock, work) == (0.5, pytest.approx(0.8))


def test_callbacks_that_are_ready_together_are_one_stretch(clock):
    async def work(times):
        await asyncio.sleep(0)
        times.take()
        await asyncio.gather(*(one(0.1) for _ in range(3)))
        return times.take()

    async def one(seconds):
        clock.work(seconds)

    assert run(clock, work) == (pytest.approx(0.3), pytest.approx(0.3))


def test_waiting_is_no_work(clock):
    async def work(times):
        times.take()
        asyncio.get_running_loop().call_later(0.01, clock.work, 0.1)
        await asyncio.sleep(0.05)
        return times.take()

    assert run(clock, work) == (pytest.approx(0.1), pytest.approx(0.1))


def test_what_runs_when_it_is_asked_counts_up_to_now_and_not_twice(clock):
    async def work(times):
        times.take()
        clock.work(0.3)
        first = times.take()
        clock.work(0.1)
        return first, times.take()

    assert run(clock, work) == ((0.3, 0.3), (pytest.approx(0.1), pytest.approx(0.1)))


def test_the_metric_is_the_longest_stretch_of_the_last_minute(clock):
    async def work(times):
        found = []
        for seconds in (0.5, 0.1, 0.3, 0.2):
            clock.work(seconds)
            await asyncio.sleep(0)
            found.append(times.recent())
            times.begins()
            # Waits.
            clock.now += 20
            times.begins()
        return [*found, times.recent(), times.gauge().samples[0].value]

    longest, later = [0.5, 0.5, 0.5, pytest.approx(0.3)], [pytest.approx(0.3)] * 2
    assert run(clock, work) == [*longest, *later]


def test_a_loop_that_only_waits_has_no_stretch(clock):
    async def work(times):
        clock.work(0.2)
        await asyncio.sleep(0)
        clock.now += 61
        times.begins()
        return times.recent()

    assert run(clock, work) == 0.0


@given(st.lists(st.tuples(st.floats(0.0, 30.0), st.floats(0.002, 5.0)), max_size=20))
def test_no_stretch_within_the_window_is_longer(stretches):
    """Pauses and stretches, one after the other."""
    now, ended = 0.0, []
    times = LoopTimes(lambda: now, now=lambda: now)
    for pause, spent in stretches:
        now += pause
        times.begins()
        now += spent
        times.ends()
        ended.append((now, spent))
        longest = max(spent for at, spent in ended if at >= now - WINDOW)
        assert times.recent() == pytest.approx(longest)
