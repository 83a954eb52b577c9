"""What ran is stored beside the workspace: an executor that comes back knows it, and runs nothing twice."""

import asyncio
import contextlib
from functools import partial

import pytest
from contract.executor.harness import until
from contract.executor.test_attach import numbers, steps
from sandfleet import Outcome
from sandfleet.errors import AlreadyExistsError
from shows.cutting import Cutter

pytestmark = pytest.mark.asyncio(loop_scope="session")

EVERYTHING = ("variables", "processes", "tmp")


async def killed_and_back(executor):
    executor.kill()
    await executor.back()


async def test_an_executor_that_is_killed_in_mid_stream_ends_it_as_lost_and_keeps_what_was_shown(restarting):
    sandbox, heard = restarting.sandbox, []
    request = {"code": steps("ran", steps=200), "execution_id": "mid", "timeout": 60}
    running = asyncio.create_task(sandbox.run_code(**request, on_stdout=heard.append))
    await until(lambda: len(heard) >= 3)
    await killed_and_back(restarting)
    execution = await running
    assert (execution.outcome, execution.blame, execution.reason) == (Outcome.LOST, "platform", "ExecutorRestarted")
    assert execution.lost == EVERYTHING
    assert execution.logs.stdout == "".join(heard)
    assert numbers(200).startswith(execution.logs.stdout)
    ran = await sandbox.files.read("ran")
    # What a client saw is stored, and the cell is not run again.
    again = await restarting.client().run_code(**request)
    assert (again.outcome, again.reason, again.logs) == (Outcome.LOST, "ExecutorRestarted", execution.logs)
    assert await sandbox.files.read("ran") == ran


async def test_a_result_that_was_stored_and_never_acknowledged_is_there_after_the_kill(restarting):
    sandbox = restarting.sandbox
    async with Cutter(restarting.address) as cutter:
        client = restarting.client(address=cutter.address)
        await client.run_code("1")
        cutter.deafen()
        running = asyncio.create_task(client.run_code(steps("once", steps=3, pause=0), execution_id="unacknowledged"))
        await until(lambda: sandbox.files.exists("once"))
        # By the same executor, so the result is stored before that is seen.
        assert (await sandbox.attach("unacknowledged")).outcome is Outcome.OK
        restarting.kill()
        await restarting.back()
        cutter.cut_and_heal()
        execution = await running
    assert (execution.outcome, execution.logs.stdout) == (Outcome.OK, numbers(3))
    assert await sandbox.files.read("once") == "xxx"


async def test_a_command_s_result_outlives_the_executor_to_the_byte(restarting):
    sandbox = restarting.sandbox
    line = "head -c 3M /dev/zero | tr '\\0' x; echo err >&2; exit 7"
    first = await sandbox.commands.run(line, execution_id="bytes")
    await killed_and_back(restarting)
    again = await restarting.client().commands.run(line, execution_id="bytes")
    assert again == first
    assert first.exit_code == 7
    with pytest.raises(AlreadyExistsError):
        await sandbox.commands.run("exit 8", execution_id="bytes")


async def test_killed_again_and_again_while_it_stores_it_never_runs_one_twice(restarting, host):
    # The kubelet waits longer each time.
    for turn in range(4 if "restarts at once" in host.traits else 2):
        sandbox, name = restarting.client(), f"turn-{turn}"
        request = {"code": f"open('{name}', 'a').write('x')\nprint('{name}' * 1000)", "execution_id": name}
        running = [asyncio.create_task(sandbox.run_code(**request)) for _ in range(3)]
        # Anywhere between its beginning and the store of its end.
        if turn % 2:
            await until(partial(sandbox.files.exists, name))
        await killed_and_back(restarting)
        ends = await asyncio.gather(*running)
        assert len({end.outcome for end in ends}) == 1
        if await sandbox.files.exists(name):
            assert await sandbox.files.read(name) == "x"
        restarting.clients.remove(sandbox)
        await sandbox.close()


async def test_an_executor_that_comes_after_another_on_its_volume_knows_what_ran(starting):
    async with starting(keeps_workspace=True) as first:
        own = await first.sandbox.run_code(steps("volume", steps=3, pause=0), execution_id="before")
        await first.close_session()
        await first.exit()
        async with starting(**first.kept) as second:
            again = await second.sandbox.run_code(steps("volume", steps=3, pause=0), execution_id="before")
            assert (again.logs, again.usage) == (own.logs, own.usage)
            assert await second.sandbox.files.read("volume") == "xxx"


@pytest.mark.needs("small disks")
@pytest.mark.parametrize("options", ["size=40k", "size=8m,nr_inodes=2"], ids=["full", "no inodes"])
async def test_a_full_disk_fails_no_execution_and_its_result_says_so(starting, host, options):
    with host.small_disk(options) as folder:
        async with starting(state_dir=f"{folder}/s") as executor:
            sandbox = executor.sandbox
            code = "print('x' * 100_000)\n42"
            execution = await sandbox.run_code(code, execution_id="unstored")
            assert (execution.outcome, execution.text) == (Outcome.OK, "42")
            assert len(execution.logs.stdout) == 100_001
            assert execution.not_stored == "DiskFull"
            # While this executor lives it knows it all the same.
            assert (await sandbox.run_code(code, execution_id="unstored")).logs == execution.logs


@pytest.mark.needs("small disks")
async def test_on_a_disk_that_became_full_nothing_runs_twice_over_a_restart(starting, host):
    with host.small_disk("size=2m") as folder:
        async with starting(state_dir=f"{folder}/s", restarts=True) as executor:
            request = {"code": "open('once', 'a').write('x')\nprint('y' * 1000)", "execution_id": "once"}
            fill(folder / "full")
            assert (await executor.sandbox.run_code(**request)).not_stored == "DiskFull"
            await killed_and_back(executor)
            again = await executor.client().run_code(**request)
            assert (again.outcome, again.reason) == (Outcome.LOST, "ExecutorRestarted")
            assert await executor.sandbox.files.read("once") == "x"


def fill(path):
    """Until nothing more fits onto its disk."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass


async def test_a_result_that_is_stored_says_nothing_of_it(sandbox):
    assert (await sandbox.run_code("1")).not_stored == ""


async def test_files_and_watches_of_the_workspace_show_nothing_of_the_store(sandbox):
    execution = await sandbox.run_code("print(1)")
    assert execution.files.created == execution.files.modified == ()
    assert all("state" not in info.path for info in await sandbox.files.list(".", depth=3))
