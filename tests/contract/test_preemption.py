"""Borrowed quota goes back to its owner: the client on a real fleet with queues and real executors."""

import asyncio
from collections.abc import Iterator

import pytest
from sandfleet import AsyncFleet, AsyncSandbox, Preemption
from sandfleet._fleets.embedded import Options, Process
from sandfleet.codeact import CodeActAgent, FinalAnswer, RunCode
from support.client.served import served_fleet

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
