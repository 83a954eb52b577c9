"""Suspended sessions: the client on a real fleet with real executors."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandfleet import Fleet, Sandbox, SandboxEnded, SandboxSuspended
from sandfleet._fleets.embedded import Options, Process
from sandfleet._fleets.fleet import AsyncFleet
from sandfleet.cli import main
from sandfleet.errors import PreconditionFailed
from sandfleet.sandbox import AsyncSandbox
from sandfleet.values.execution import Outcome
from sandfleet.values.services import tcp
from support.client.executors import kill_executors
from support.client.served import served_fleet

Capture = pytest.CaptureFixture[str]
SERVER = "import socket, time; s = socket.create_server(('127.0.0.1', 7000)); time.sleep(1e6)"


@pytest.fixture(scope="module")
def served() -> Iterator[Process]:
    with served_fleet(Options(pool_size=1)) as process:
        yield process


async def workspace_of(served: Process, sandbox_id: str, fleet: AsyncFleet) -> Path:
    base = Path(served.address.removeprefix("unix:")).parent
    return base / "workspaces" / (await fleet.get(sandbox_id)).workspace_id


async def test_what_an_agent_has_made_is_there_after_a_suspension(fleet: AsyncFleet) -> None:
    options = {"envs": {"TEAM": "blue"}, "labels": {"run": "7"}, "idle_timeout": 600.0}
    async with AsyncSandbox.create(fleet=fleet, **options) as sandbox:
        await sandbox.files.write("orders.csv", "a,b\n1,2\n")
        await sandbox.run_code("import csv; rows = list(csv.reader(open('orders.csv'))); gen = (x for x in rows)")
        await sandbox.create_context("other")
        await sandbox.run_code("z = 5", context="other")
        await sandbox.services.start("web", ["python3", "-c", SERVER], ready=tcp(7000))
        await sandbox.services.wait_ready("web")
        before = await fleet.get(sandbox.sandbox_id)
        kept = await sandbox.suspend()
        assert kept.lost == ("default: gen (NotPicklable)",)
        assert {one.context_id: one.variables for one in kept.contexts} == {"default": 2, "other": 1}
        assert (kept.services, kept.known) == (("web",), True)
    # The end of the block has left it as it is.
    asleep = await fleet.get(sandbox.sandbox_id)
    assert (asleep.state, asleep.workspace_id) == ("suspended", before.workspace_id)
    assert kept.until == asleep.suspended_until
    async with AsyncSandbox.resume(sandbox.sandbox_id, fleet=fleet) as again:
        assert again.sandbox_id == sandbox.sandbox_id
        assert again.resumption is not None
        assert again.resumption.lost == kept.lost
        execution = await again.run_code("import os; (rows, csv.__name__, os.environ['TEAM'])")
        assert execution.text == "([['a', 'b'], ['1', '2']], 'csv', 'blue')"
        assert "variables: gen" in execution.lost
        assert (await again.run_code("z", context="other")).text == "5"
        assert (await again.services.wait_ready("web")).is_ready
        after = await again.get_info()
        assert (after.state, after.labels, after.restarts) == ("claimed", {"run": "7"}, 0)
        assert after.sandbox_uid != before.sandbox_uid
    # It owned the session, as one that it had created.
    with pytest.raises(SandboxEnded):
        await fleet.get(sandbox.sandbox_id)


async def test_a_suspended_sandbox_says_how_to_go_on(fleet: AsyncFleet) -> None:
    async with AsyncSandbox.create(fleet=fleet) as sandbox:
        other = await AsyncSandbox.connect(sandbox.sandbox_id, fleet=fleet)
        await sandbox.suspend()
        for client in (sandbox, other):
            with pytest.raises(SandboxSuspended, match=f"resume it with Sandbox.resume\\('{sandbox.sandbox_id}'\\)"):
                await client.run_code("1")
        assert repr(sandbox) == f"AsyncSandbox({sandbox.sandbox_id}, suspended)"
        # One that is opened now resumes it, and does not own it.
        async with AsyncSandbox.connect(sandbox.sandbox_id, fleet=fleet) as again:
            assert again.resumption is not None
        # A client that was connected before goes on with the new executor.
        assert (await other.run_code("1")).text == "1"
        await other.close()
        assert await AsyncSandbox.kill(sandbox.sandbox_id, fleet=fleet)


async def test_running_code_refuses_a_suspension_unless_it_is_forced(fleet: AsyncFleet) -> None:
    async with AsyncSandbox.create(fleet=fleet) as sandbox:
        await sandbox.run_code("x = 1")
        running = asyncio.create_task(sandbox.run_code("open('/tmp/on', 'w')\nwhile True: pass", execution_id="long"))
        while not await sandbox.files.exists("/tmp/on"):
            await asyncio.sleep(0.05)
        with pytest.raises(PreconditionFailed, match="long") as caught:
            await sandbox.suspend()
        assert (caught.value.reason, caught.value.retryable) == ("ExecutionRunning", True)
        assert (await fleet.get(sandbox.sandbox_id)).state == "claimed"
        kept = await sandbox.suspend(force=True)
        assert kept.ended_executions == ("long",)
        assert (await running).outcome in {Outcome.INTERRUPTED, Outcome.LOST}
        async with AsyncSandbox.resume(sandbox.sandbox_id, fleet=fleet) as again:
            assert (await again.run_code("x")).text == "1"


async def test_a_released_suspended_session_leaves_no_files(served: Process, fleet: AsyncFleet) -> None:
    sandbox = await AsyncSandbox.create(fleet=fleet)
    workspace = await workspace_of(served, sandbox.sandbox_id, fleet)
    state = workspace.parents[1] / "states" / workspace.name
    await sandbox.run_code("x = 1")
    await sandbox.suspend()
    assert (state / "suspended.json").exists()
    assert await AsyncSandbox.kill(sandbox.sandbox_id, fleet=fleet)
    async with asyncio.timeout(60):
        while workspace.exists() or state.exists():
            await asyncio.sleep(0.05)
    with pytest.raises(SandboxEnded):
        await AsyncSandbox.resume(sandbox.sandbox_id, fleet=fleet)


async def test_an_executor_that_is_killed_after_a_resume_is_replaced_as_ever(
    served: Process, fleet: AsyncFleet
) -> None:
    async with AsyncSandbox.create(fleet=fleet) as sandbox:
        await sandbox.files.write("kept", "here")
        await sandbox.suspend()
        async with AsyncSandbox.resume(sandbox.sandbox_id, fleet=fleet) as again:
            kill_executors(served)
            assert (await again.run_code("open('kept').read()")).text == "'here'"
            assert (await fleet.get(sandbox.sandbox_id)).restarts == 1


def test_the_sync_class_and_the_command_line_do_the_same(
    served: Process, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("SANDFLEET_ADDRESS", served.address)
    with Fleet.connect(served.address) as fleet, Sandbox.create(fleet=fleet, keep_alive=False) as sandbox:
        sandbox.run_code("x = [1]; gen = (y for y in x)")
        assert main(["suspend", sandbox.sandbox_id, "--timeout", "10m"]) == 0
        first, *rest = capsys.readouterr().out.splitlines()
        assert first.startswith(f"{sandbox.sandbox_id} suspended until ")
        assert first.endswith(": 1 variable, 1 context, 0 services")
        assert rest == ["  not kept: default: gen (NotPicklable)"]
        assert main(["ls", "--json"]) == 0
        listed = {one["sandbox_id"]: one["state"] for one in json.loads(capsys.readouterr().out)}
        assert listed[sandbox.sandbox_id] == "suspended"
        # A command resumes it, as `connect` does; to resume it again changes nothing.
        assert main(["exec", sandbox.sandbox_id, "--", "true"]) == 0
        capsys.readouterr()
        assert main(["resume", sandbox.sandbox_id, "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        assert said["sandbox"]["state"] == "claimed"
        assert said["resumption"]["contexts"][0]["variables"] == 1
        assert sandbox.run_code("x").text == "[1]"
        assert Sandbox.suspend(sandbox.sandbox_id).known
        with Sandbox.resume(sandbox.sandbox_id) as again:
            assert again.run_code("x").text == "[1]"
    assert main(["resume", sandbox.sandbox_id]) == 3
    assert main(["suspend", sandbox.sandbox_id, "--json"]) == 3
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["error"]["type"] == "SandboxEnded"


SUSPENDS = """
from sandfleet import Sandbox
for to in ("volume", "snapshot", "volume"):
    sandbox = Sandbox.create()
    kept = sandbox.suspend(to=to)
    print(to, kept.ends_with_process)
Sandbox.resume(sandbox.sandbox_id)
"""


def test_a_program_says_at_its_end_which_suspended_sessions_end_with_it(tmp_path: Path) -> None:
    environment = {**os.environ, "SANDFLEET_STATE": str(tmp_path), "SANDFLEET_FLEET": ""}
    ended = subprocess.run(
        [sys.executable, "-c", SUSPENDS], check=True, capture_output=True, text=True, env=environment
    )
    assert ended.stdout.splitlines() == ["volume True", "snapshot False", "volume True"]
    # The one in a snapshot stays, and the last one was resumed.
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("sandfleet: ")]
    assert "ends with this process" in line
    assert "more" not in line
