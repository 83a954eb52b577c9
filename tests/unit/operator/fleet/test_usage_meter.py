"""When the fleet reads what sessions have used."""

import asyncio
from dataclasses import replace

import pytest
from sandfleet_operator.api.values import State
from sandfleet_operator.fleet.usage.meter import UsageMeter
from sandfleet_operator.plan.usage import Reading
from support.fleet.builders import a_sandbox

pytestmark = pytest.mark.asyncio
SANDBOX = replace(a_sandbox(), state=State.CLAIMED, bound=True, lease_expires=100.0)
READ = Reading(wall_seconds=1.0, cpu_seconds=0.5, memory_bytes=1, disk_bytes=1, processes=1)


class Executors:
    """Answers each question, and counts them."""

    def __init__(self):
        self.asked, self.noted = [], []
        self.meter = UsageMeter(self.read, lambda sandbox, said: self.noted.append((sandbox, said)), lambda: 0.0)

    async def read(self, sandbox):
        self.asked.append(sandbox.sandbox_uid)
        return READ


async def done():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_session_is_read_once_shortly_before_its_lease_ends():
    executors = Executors()
    for now in (10.0, 94.0, 96.0, 98.0, 101.0):
        executors.meter.look([SANDBOX], now)
        await done()
    assert executors.noted == [(SANDBOX, READ)]
    # A lease that was renewed has another end.
    executors.meter.look([replace(SANDBOX, lease_expires=200.0)], 197.0)
    await done()
    assert len(executors.noted) == 2


async def test_a_session_that_is_not_handed_out_or_has_no_lease_is_not_read():
    executors = Executors()
    executors.meter.look([replace(SANDBOX, bound=False), replace(SANDBOX, lease_expires=None)], 98.0)
    await done()
    assert executors.asked == []


async def test_a_meter_that_is_closed_reads_no_more():
    executors = Executors()
    executors.meter.watch(lambda: [SANDBOX], lambda: 98.0)
    await done()
    assert executors.noted == [(SANDBOX, READ)]
    executors.meter.close()
    await done()
    assert "read the usage of sessions that end" not in {task.get_name() for task in asyncio.all_tasks()}
