"""Code that keeps the machine busy: the others have their turn, and PID 1 of its own session too."""

import asyncio

import pytest
from sandfleet import Outcome

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
