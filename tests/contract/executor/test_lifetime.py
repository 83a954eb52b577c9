"""How an executor begins and ends, and that it leaves nothing."""

import asyncio

import grpc
import pytest
from contract.executor.harness import Exit, until
from contract.executor.languages import PYTHON
from sandfleet import Outcome

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def is_gone(executor):
    await until(lambda: not executor.processes() and not executor.cgroups())
    return True


async def busy(executor):
    """Something of everything is running; the tasks of its clients."""
    sandbox = executor.sandbox
    await sandbox.run_code("import subprocess; subprocess.Popen(['setsid', 'sleep', '1000'])")
    cell = asyncio.create_task(sandbox.run_code("open('/tmp/on', 'w')\nwhile True: pass"))
    command = asyncio.create_task(sandbox.commands.run("setsid sleep 1000 & touch /tmp/up; wait"))
    await until(lambda: sandbox.files.exists("/tmp/on"))
    await until(lambda: sandbox.files.exists("/tmp/up"))
    assert len(executor.processes()) >= 6
    return cell, command


async def test_close_ends_everything_and_the_executor_with_exit_code_0(fresh):
    tasks = await busy(fresh)
    await fresh.close_session()
    assert await fresh.exit() == Exit(0, None)
    assert await is_gone(fresh)
    for task in tasks:
        ended = await task
        assert ended.outcome in (Outcome.INTERRUPTED, Outcome.LOST)


async def test_closing_twice_is_no_error(fresh):
    closing = [fresh.close_session(), fresh.close_session()]
    results = await asyncio.gather(*closing, return_exceptions=True)
    assert results[0] is None or results[1] is None
    assert await fresh.exit() == Exit(0, None)


async def test_the_owner_s_stop_ends_everything_with_exit_code_0(fresh):
    tasks = await busy(fresh)
    fresh.terminate()
    assert await fresh.exit() == Exit(0, None)
    assert await is_gone(fresh)
    await asyncio.gather(*tasks)


@pytest.mark.needs("unix socket")
async def test_the_host_buries_what_an_executor_leaves(fresh):
    """A container's PID 1 need not be an init: what an executor leaves to it would stay there as zombies."""
    tasks = await busy(fresh)
    fresh.kill()
    heirs = set()
    await until(lambda: heirs.update(fresh.parents()) or not fresh.processes())
    assert 1 not in heirs
    await asyncio.gather(*tasks)


async def test_an_executor_that_is_killed_takes_all_its_processes_with_it(fresh, neighbour):
    tasks = await busy(fresh)
    fresh.kill()
    assert await fresh.exit() == Exit(None, "SIGKILL")
    await until(lambda: not fresh.processes())
    for ended in await asyncio.gather(*tasks):
        assert (ended.outcome, ended.blame) == (Outcome.LOST, "platform")
        assert ended.lost == ("variables", "processes", "tmp")
    assert (await neighbour.run_code("here")).text == "'untouched'"


async def test_a_lease_that_is_over_ends_the_executor_with_40(starting):
    async with starting(lease=60.0) as executor:
        tasks = await busy(executor)
        await executor.open("session", lease=1.0)
        assert await executor.exit() == Exit(40, None)
        assert await is_gone(executor)
        await asyncio.gather(*tasks)


async def test_a_lease_that_is_renewed_goes_on_and_can_be_taken_away(starting):
    async with starting(lease=60) as executor:
        # Nothing is done between the two.
        await executor.open("session", lease=3.0)
        remaining = (await executor.open("session", lease=100)).lease_remaining.seconds
        assert 60 < remaining <= 100
        # Longer than the lease before it: only a renewal explains it.
        await asyncio.sleep(3.5)
        assert (await executor.sandbox.run_code("1")).text == "1"
        await executor.open("session", lease=0.3)
        assert await executor.exit() == Exit(40, None)


async def test_an_unused_sandbox_ends_with_exit_code_41(starting):
    async with starting(idle_timeout=1.0) as executor:
        assert await executor.exit() == Exit(41, None)
        assert await is_gone(executor)


@pytest.mark.smoke
async def test_a_running_execution_is_use_and_looking_at_the_sandbox_is_no_use(starting):
    async with starting(idle_timeout=4.0) as executor:
        execution = await executor.sandbox.run_code("import time; time.sleep(6); 'awake'", timeout=60)
        assert execution.text == "'awake'"

        async def look():
            await executor.sandbox.health()
            return executor.ended

        await until(look)
        assert await executor.exit() == Exit(41, None)


async def test_another_session_is_refused_and_the_first_goes_on(fresh):
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await fresh.open("another")
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert (await fresh.open("session")).session_id == "session"
    assert (await fresh.sandbox.run_code("1")).text == "1"


@pytest.mark.parametrize(
    "options",
    [
        {"lease": 1e9},
        {"idle_timeout": 1e9},
        {"envs": {"A=B": "1"}},
        {"limits": {"memory_bytes": 1 << 50}},
        {"limits": {"processes": 1 << 20}},
    ],
)
async def test_a_session_that_cannot_be_is_refused(starting, options):
    async with starting(session=None) as executor:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await executor.open("session", **options)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        # The sandbox is still free.
        assert (await executor.open("another")).session_id == "another"


@pytest.mark.smoke
async def test_a_session_s_environment_and_lower_limits_hold_for_everything_in_it(starting):
    async with starting(session=None) as executor:
        limits = {"memory_bytes": 256 << 20, "output_bytes": 1000, "processes": 32}
        description = await executor.open("session", envs={"COLOUR": "blue"}, limits=limits)
        assert (description.limits.memory_bytes, description.limits.output_bytes) == (256 << 20, 1000)
        sandbox = executor.sandbox
        assert (await sandbox.run_code("import os; os.environ['COLOUR']")).text == "'blue'"
        assert (await sandbox.commands.run("echo $COLOUR")).stdout == "blue\n"
        assert len((await sandbox.run_code("print('x' * 5000)")).logs.stdout) == 1000
        assert (await sandbox.run_code(PYTHON.hoard, timeout=60)).outcome is Outcome.MEMORY


async def test_the_workspace_outlives_the_executor_and_the_namespace(starting):
    async with starting(keeps_workspace=True) as first:
        await first.sandbox.files.write("kept", "1")
        await first.close_session()
        await first.exit()
        kept = {name: first.config[name] for name in ("workspace", "user_id")}
        async with starting(**kept) as second:
            assert (await second.sandbox.run_code("open('kept').read()")).text == "'1'"
            assert (await second.sandbox.run_code("open('kept', 'w').write('2')")).outcome is Outcome.OK


@pytest.mark.smoke
async def test_a_configuration_that_cannot_be_is_said_and_starts_nothing(host):
    assert "cannot take the configuration: unknown colour" in await host.refusal({"colour": "blue"})
