"""Code that keeps the machine busy: the others have their turn, and PID 1 of its own session too."""

import asyncio
import os

import pytest
from sandfleet import Outcome
from sandfleet_executor.effects.namespace import cgroup

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.needs("cpu cgroup")]

MIB = 1 << 20
LOOPS = 40
# Each in a session of its own: the kernel gives each session the same (autogroups).
BUSY = f"""
import os, signal, time
print('begun', flush=True)
for number in range({LOOPS}):
    if os.fork() == 0:
        os.setsid()
        while True: pass
signal.pause()
"""
# Seconds of a processor that one loop got in three seconds.
TURNS = """
import time
before, end = time.process_time(), time.monotonic() + 3
while time.monotonic() < end: pass
time.process_time() - before
"""


async def shares(starting, **options):
    """Seconds of a processor that one busy cell got, and all the loops of another sandbox meanwhile."""
    async with starting(**options) as busy, starting(**options) as other:
        running = await busy.sandbox.commands.run(["python3", "-c", BUSY], background=True, timeout=100)
        async for _ in running:
            break
        await asyncio.sleep(0)
        await other.sandbox.run_code("1")
        before = (await busy.sandbox.usage()).total_cpu_seconds
        got = float((await other.sandbox.run_code(TURNS, timeout=100)).text)
        taken = (await busy.sandbox.usage()).total_cpu_seconds - before
        await running.kill()
        return got, taken


@pytest.mark.attack("takes the processors from other sandboxes", "an equal share")
async def test_a_busy_sandbox_has_no_more_of_the_machine_than_another(starting):
    got, taken = await shares(starting)
    # The other has one loop, which has one processor at most.
    assert got > taken / 5, (got, taken)


@pytest.mark.control("takes the processors from other sandboxes")
async def test_control_without_a_cgroup_the_sessions_of_one_take_nearly_all(starting):
    got, taken = await shares(starting, cgroup=False)
    assert got < taken / 8, (got, taken)


@pytest.mark.attack("keeps PID 1 from ending what uses too much", "outcome memory")
async def test_pid_1_has_its_turn_however_busy_its_session_is(starting):
    async with starting(limits={"memory_bytes": 256 * MIB}) as executor:
        sandbox = executor.sandbox
        await sandbox.run_code("import time")
        running = await sandbox.commands.run(["python3", "-c", BUSY], background=True, timeout=100)
        async for _ in running:
            break
        hoard = "held = []\nfor _ in range(80): held.append(b'x' * (16 << 20)); time.sleep(0.02)"
        result = await sandbox.run_code(hoard, timeout=60)
        assert (result.outcome, result.reason) == (Outcome.MEMORY, "MemoryLimit"), result
        await running.kill()


CPUS = 0.25
# Two loops, which end when each has had half a second of a processor.
LOOPS_OF_TWO = """
import os, time
for number in range(2):
    if os.fork() == 0:
        os.setsid()
        while time.process_time() < 0.5: pass
        os._exit(0)
for number in range(2): os.wait()
"""


def periods(executor):
    """Periods of 100 ms, each with its quota, in which code had a processor; 0 without a quota."""
    (place,) = [
        folder
        for base in cgroup.candidates("cpu")
        for folder in base.glob(f"sandfleet/{executor.config['sandbox_uid']}")
    ]
    said = dict(line.split() for line in (place / "cpu.stat").read_text().splitlines())
    return int(said["nr_periods"])


async def looped(executor):
    """Seconds of a processor that two busy loops had, and the cgroup's count of periods meanwhile."""
    await executor.sandbox.commands.run("true")
    before = periods(executor)
    had = (await executor.sandbox.usage()).total_cpu_seconds
    result = await executor.sandbox.commands.run(["python3", "-c", LOOPS_OF_TWO], timeout=100)
    assert result.outcome is Outcome.OK
    had = (await executor.sandbox.usage()).total_cpu_seconds - had
    return had, periods(executor) - before


@pytest.mark.attack("takes more of the processors than its limit", "no more than cpus of each period")
async def test_two_busy_loops_have_together_what_the_limit_gives(starting):
    async with starting(session=None, limits={"cpus": 4.0}) as executor:
        described = await executor.open("session", limits={"cpus": CPUS})
        had, count = await looped(executor)
        # A piece of the quota that a processor has taken from one period may be used in the next.
        assert 1.0 <= had <= (count + 2) * CPUS * 0.1 + 0.1, (had, count)
        assert "cgroup-cpu-quota" in described.separations
        assert (await executor.sandbox.usage()).limits.cpus == CPUS


@pytest.mark.control("takes more of the processors than its limit")
async def test_control_without_a_limit_there_is_no_quota(starting):
    async with starting() as executor:
        _, count = await looped(executor)
        assert count == 0
        assert "cgroup-cpu-quota" not in (await executor.open("session")).separations


async def test_code_is_told_as_many_processors_as_the_limit_gives(starting):
    told = "nproc"
    async with starting(limits={"cpus": 1.0}) as one, starting() as all_of_them:
        assert (await one.sandbox.commands.run(told)).stdout == "1\n"
        assert (await one.sandbox.run_code("import os; len(os.sched_getaffinity(0))")).text == "1"
        mine = len(os.sched_getaffinity(0))
        assert (await all_of_them.sandbox.commands.run(told)).stdout == f"{mine}\n"
