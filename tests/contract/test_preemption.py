"""Borrowed quota goes back to its owner: the client on a real fleet with queues and real executors."""

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandfleet import AsyncFleet, AsyncSandbox, Preemption, SandboxEnded
from sandfleet._fleets.embedded import Options, Process
from sandfleet.codeact import CodeActAgent, FinalAnswer, RunCode
from support.client.served import served_fleet
from support.fleet.process import FleetProcess, a_fleet

EPHEMERAL = Path(__file__).parents[1] / "support/fleet/ephemeral.py"
QUEUES = """
apiVersion: sandfleet.io/v1alpha1
kind: SandboxQueue
metadata: {name: owner}
spec: {nominalQuota: {sandboxes: 1}, cohort: all}
---
apiVersion: sandfleet.io/v1alpha1
kind: SandboxQueue
metadata: {name: guest}
spec: {nominalQuota: {sandboxes: 1}, cohort: all, preemption: Suspend}
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    path = tmp_path_factory.mktemp("queues") / "queues.yaml"
    path.write_text(QUEUES)
    with served_fleet(Options(pool_size=1, queues=path)) as process:
        yield process


@pytest.fixture(scope="module")
def ephemeral(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetProcess]:
    """A fleet whose workspaces end with their sandboxes; its queue `guest` allows that its sessions end."""
    path = tmp_path_factory.mktemp("queues") / "queues.yaml"
    path.write_text(QUEUES.replace("preemption: Suspend", "preemption: Release"))
    with tempfile.TemporaryDirectory(prefix="sf-", dir="/tmp") as base:
        arguments = ("--pool-size", "1", "--queues", str(path))
        with a_fleet(f"{base}/f", *arguments, program=(str(EPHEMERAL),)) as process:
            yield process


async def is_suspended(fleet: AsyncFleet, sandbox: AsyncSandbox) -> None:
    async with asyncio.timeout(30):
        while (await fleet.get(sandbox.sandbox_id)).state != "suspended":
            await asyncio.sleep(0.1)


async def test_the_session_idle_longest_goes_and_returns_by_itself_with_its_variables(fleet: AsyncFleet) -> None:
    noticed: list[Preemption] = []
    idle = await AsyncSandbox.create(fleet=fleet, queue="guest", on_preempted=noticed.append)
    busy = await AsyncSandbox.create(fleet=fleet, queue="guest")
    await idle.run_code("rows = [1, 2]")
    runs = asyncio.create_task(busy.run_code("import time; time.sleep(8); 'done'"))
    owner = await AsyncSandbox.create(fleet=fleet, queue="owner", max_wait=30)
    await is_suspended(fleet, idle)
    assert (await runs).text == "'done'"
    # The call waits for the return, which the owner's release lets in.
    call = asyncio.create_task(idle.run_code("sum(rows)"))
    await asyncio.sleep(1)
    assert not call.done()
    await owner.kill()
    execution = await asyncio.wait_for(call, 60)
    assert execution.text == "3"
    assert [one.sandbox_id for one in noticed] == [idle.sandbox_id] == [one.sandbox_id for one in idle.preemptions]
    await idle.kill()
    await busy.kill()


SLOW = """
import pathlib, time

class Slow:
    def __reduce__(self):
        pathlib.Path("/workspace/saving").touch()
        time.sleep(6)
        return (int, ())

slow, x = Slow(), 20
"""


async def test_a_call_that_comes_while_the_variables_are_saved_waits_for_the_return(fleet: AsyncFleet) -> None:
    sandbox = await AsyncSandbox.create(fleet=fleet, queue="guest")
    other = await AsyncSandbox.create(fleet=fleet, queue="guest")
    await other.services.start("idle", ["sleep", "1000"])
    await sandbox.run_code(SLOW)
    claim = asyncio.create_task(AsyncSandbox.create(fleet=fleet, queue="owner", max_wait=60))
    async with asyncio.timeout(30):
        while not await sandbox.files.exists("/workspace/saving"):
            await asyncio.sleep(0.05)
    cell = asyncio.create_task(sandbox.run_code("x + 1"))
    command = asyncio.create_task(sandbox.commands.run("echo here"))
    owner = await claim
    await is_suspended(fleet, sandbox)
    assert not (cell.done() or command.done())
    await owner.kill()
    assert (await asyncio.wait_for(cell, 60)).text == "21"
    assert (await asyncio.wait_for(command, 60)).stdout == "here\n"
    assert len(sandbox.preemptions) == 1
    await sandbox.kill()
    await other.kill()


async def test_a_session_that_cannot_be_suspended_ends_where_its_queue_allows_it(ephemeral: FleetProcess) -> None:
    async with await AsyncFleet.connect(f"unix:{ephemeral.state_dir}/fleet.sock") as fleet:
        idle = await AsyncSandbox.create(fleet=fleet, queue="guest")
        busy = await AsyncSandbox.create(fleet=fleet, queue="guest")
        await idle.run_code("x = 1")
        runs = asyncio.create_task(busy.run_code("import time; time.sleep(8); 'done'"))
        owner = await AsyncSandbox.create(fleet=fleet, queue="owner", max_wait=30)
        with pytest.raises(SandboxEnded, match="Preempted"):
            await idle.run_code("x")
        # What runs is not ended, and neither is what is within its quota.
        assert (await runs).text == "'done'"
        assert (await owner.run_code("1 + 1")).text == "2"
        assert idle.sandbox_id not in {one.sandbox_id for one in await fleet.list()}
        await owner.kill()
        await busy.kill()


async def test_an_agent_is_told_and_goes_on_where_it_was(fleet: AsyncFleet) -> None:
    sandbox = await AsyncSandbox.create(fleet=fleet, queue="guest")
    other = await AsyncSandbox.create(fleet=fleet, queue="guest")
    await other.services.start("idle", ["sleep", "1000"])
    steps = iter((RunCode("x = 20"), RunCode("print(x + 1)"), FinalAnswer("21")))

    async def policy(conversation: object) -> RunCode | FinalAnswer:
        action = next(steps)
        if isinstance(action, RunCode) and "print" in action.code:
            owner = await AsyncSandbox.create(fleet=fleet, queue="owner", max_wait=30)
            await is_suspended(fleet, sandbox)
            asyncio.get_running_loop().call_later(1.0, lambda: asyncio.ensure_future(owner.kill()))
        return action

    run = await CodeActAgent(policy, sandbox, judge=lambda *_: None).run("add")
    assert run.answer is not None, run
    told = run.steps[1].observation
    assert "stdout: 21" in told
    assert "note: the sandbox was preempted" in told
    # A session with a service is never preempted.
    assert (await other.services.list())[0].name == "idle"
    await sandbox.kill()
    await other.kill()
