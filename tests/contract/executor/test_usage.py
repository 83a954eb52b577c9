"""What executions and sandboxes use: written bytes, totals, and the usage that can be watched."""

import asyncio
import contextlib
import os

import grpc
import pytest
from contract.executor.harness import until
from google.protobuf.duration_pb2 import Duration
from sandfleet import Outcome
from sandfleet.errors import InvalidArgument, LimitReached
from sandfleet_api.executor.v1 import session_pb2, session_pb2_grpc

pytestmark = pytest.mark.asyncio(loop_scope="session")

MIB = 1 << 20
WATCHERS = 64


def write(name, size):
    """Python that writes so many bytes."""
    return f"with open({name!r}, 'wb') as file:\n    for _ in range({size // MIB}): file.write(bytes({MIB}))\n"


def is_written(host, usage, size):
    """Whether it says that so much was written, and little else; where nothing is known that has to be said."""
    if not host.counts_writes:
        return usage.written_bytes is None
    return size <= usage.written_bytes < size + 2 * MIB


@pytest.mark.smoke
async def test_a_cell_that_writes_50_mib_shows_it(host, sandbox, context):
    execution = await sandbox.run_code(write("cell", 50 * MIB), context=context)
    assert is_written(host, execution.usage, 50 * MIB)
    # Control: a cell that writes nothing, in the same interpreter.
    assert is_written(host, (await sandbox.run_code("1", context=context)).usage, 0)


@pytest.mark.smoke
async def test_a_command_that_writes_50_mib_shows_it_also_where_the_file_is_gone(host, sandbox):
    result = await sandbox.commands.run("head -c 50M /dev/zero > big && rm big")
    assert is_written(host, result.usage, 50 * MIB)
    assert is_written(host, (await sandbox.commands.run("true")).usage, 0)


@pytest.mark.smoke
async def test_what_goes_to_streams_pipes_and_tmp_is_not_written_to_storage(host, sandbox):
    line = "head -c 8M /dev/zero | tr '\\0' x | cat; head -c 20M /dev/zero > /tmp/memory; rm /tmp/memory"
    result = await sandbox.commands.run(line)
    assert result.usage.stdout_bytes == 8 * MIB
    assert is_written(host, result.usage, 0)


@pytest.mark.smoke
async def test_children_that_have_ended_count(host, sandbox, context):
    code = (
        f"import subprocess, sys\n_ = subprocess.run([sys.executable, '-c', {write('child', 20 * MIB)!r}], check=True)"
    )
    assert is_written(host, (await sandbox.run_code(code, context=context)).usage, 20 * MIB)


@pytest.mark.smoke
async def test_children_whose_parent_has_ended_count(host, sandbox):
    # The program ends once the orphan, which only the supervisor waits for, has done its work.
    orphan = "(setsid sh -c 'head -c 20M /dev/zero > orphan; touch done' &)"
    result = await sandbox.commands.run(f"{orphan}; until [ -e done ]; do sleep 0.05; done; rm done; sleep 0.2")
    assert is_written(host, result.usage, 20 * MIB)


@pytest.mark.smoke
async def test_two_at_once_are_told_apart(host, sandbox):
    first, second = await asyncio.gather(sandbox.create_context(), sandbox.create_context())
    both = await asyncio.gather(
        sandbox.run_code(write("first", 40 * MIB), context=first),
        sandbox.run_code(write("second", 8 * MIB), context=second),
        sandbox.commands.run("head -c 16M /dev/zero > third"),
    )
    assert [is_written(host, one.usage, size * MIB) for one, size in zip(both, (40, 8, 16), strict=True)] == [True] * 3


@pytest.mark.parametrize("as_command", [False, True])
async def test_what_was_killed_counts_as_well(host, sandbox, context, as_command):
    stubborn = f"import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n{write('killed', 20 * MIB)}time.sleep(1000)"
    if as_command:
        ended = await sandbox.commands.run(["sh", "-c", f"trap '' TERM; python3 -c \"{stubborn}\""], timeout=3)
    else:
        ended = await sandbox.run_code(stubborn, context=context, timeout=3)
    assert ended.outcome is Outcome.TIMEOUT
    assert is_written(host, ended.usage, 20 * MIB)


async def test_the_sandbox_sums_up_what_its_executions_used_beside_its_limits(host, starting):
    async with starting(limits={"processes": 100, "open_files": 512}) as executor:
        sandbox = executor.sandbox
        before = await sandbox.usage()
        assert (before.executions, before.total_cpu_seconds) == (0, 0.0)
        cell = await sandbox.run_code(write("a", 20 * MIB) + "for n in range(10**6): pass")
        command = await sandbox.commands.run("head -c 10M /dev/zero > b")
        after = await sandbox.usage()
        assert (after.executions, after.running_executions) == (2, 0)
        assert after.total_cpu_seconds == pytest.approx(cell.usage.cpu_seconds + command.usage.cpu_seconds)
        assert is_written(host, after, 30 * MIB)
        assert after.peak_memory_bytes >= max(after.memory_bytes, cell.usage.peak_memory_bytes)
        assert after.peak_processes >= 1
        assert after.wall_seconds > before.wall_seconds > 0
        assert (after.limits.processes, after.limits.open_files) == (100, 512)
        await until(lambda: _takes(sandbox, 30 * MIB, 40 * MIB))
        await sandbox.commands.run("rm a b")
        await until(lambda: _takes(sandbox, 0, MIB))


async def test_the_cells_of_each_language_are_counted_apart(starting):
    async with starting() as executor:
        sandbox = executor.sandbox
        assert (await sandbox.usage()).languages == {}
        cells = [await sandbox.run_code("for n in range(10**6): pass"), await sandbox.run_code("1 / 0")]
        other = await sandbox.run_code("true", language="bash")
        await sandbox.commands.run("true")
        found = (await sandbox.usage()).languages
        assert {name: each.executions for name, each in found.items()} == {"python": 2, "bash": 1}
        assert found["python"].cpu_seconds == pytest.approx(sum(each.usage.cpu_seconds for each in cells))
        assert found["python"].wall_seconds == pytest.approx(sum(each.usage.wall_seconds for each in cells))
        assert found["python"].peak_memory_bytes == max(each.usage.peak_memory_bytes for each in cells)
        assert found["bash"].wall_seconds == pytest.approx(other.usage.wall_seconds)


async def _takes(sandbox, least, most):
    usage = await sandbox.usage()
    return usage.disk_bytes is not None and least <= usage.disk_bytes < most


async def test_a_watch_shows_what_runs_and_what_it_uses(host, sandbox, context):
    code = f"import os, time\n{write('shown', 10 * MIB)}hoard = b'x' * ({50 * MIB})\nwhile not os.path.exists('go'): time.sleep(0.02)"
    cell = asyncio.create_task(sandbox.run_code(code, context=context, execution_id="shown"))
    command = asyncio.create_task(sandbox.commands.run("sleep 1000", timeout=60))
    seen = None
    async for usage in sandbox.watch_usage(0.1):
        named = {one.execution_id: one for one in usage.running}
        written = "shown" in named and (not host.counts_writes or (named["shown"].usage.written_bytes or 0) >= 10 * MIB)
        if written and named["shown"].memory_bytes > 50 * MIB and len(named) == 2:
            seen = usage
            break
    assert {one.context for one in seen.running} == {context, ""}
    assert seen.running_executions == 2
    assert seen.memory_bytes > 50 * MIB
    await sandbox.files.write("go", b"")
    assert (await cell).ok
    command.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await command
    async for usage in sandbox.watch_usage(0.1):
        if not usage.running:
            break
    await sandbox.files.remove("go")


async def test_a_watch_shows_what_was_uploaded_and_removed_while_nothing_runs(starting, tmp_path):
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "more").write_bytes(os.urandom(10 * MIB))
    async with starting() as executor, asyncio.timeout(30):
        sandbox = executor.sandbox
        watch = sandbox.watch_usage(0.1)

        async def shown(least: int, most: int) -> bool:
            async for usage in watch:
                if least <= usage.disk_bytes < most:
                    return True
            return False

        assert await shown(0, MIB)
        await sandbox.files.write("big", os.urandom(20 * MIB))
        assert await shown(20 * MIB, 21 * MIB)
        await sandbox.files.upload(tmp_path / "tree", "tree")
        assert await shown(30 * MIB, 31 * MIB)
        await sandbox.files.remove("big")
        assert await shown(10 * MIB, 11 * MIB)
        await watch.aclose()


async def test_a_watch_ends_when_the_sandbox_does(starting):
    async with starting() as executor:
        watches = [asyncio.create_task(_all_of(executor.client().watch_usage(0.1))) for _ in range(3)]
        await until(lambda: _is_watched(watches))
        await executor.close_session()
        for seen in await asyncio.wait_for(asyncio.gather(*watches), 60):
            assert len(seen) >= 1


async def _all_of(watch, seen=None):
    seen = [] if seen is None else seen
    async for usage in watch:
        seen.append(usage)
        _STARTED.add(asyncio.current_task())
    return seen


_STARTED = set()


def _is_watched(tasks):
    return all(task in _STARTED for task in tasks)


async def test_50_watchers_see_the_same_and_the_one_beyond_the_limit_is_refused(starting):
    async with starting() as executor:
        clients = [executor.client() for _ in range(4)]
        watches = [asyncio.create_task(_all_of(clients[number % 4].watch_usage(0.1))) for number in range(WATCHERS)]
        await until(lambda: _is_watched(watches))
        with pytest.raises(LimitReached) as refused:
            await anext(executor.sandbox.watch_usage(0.1))
        assert refused.value.reason == "TooMany"
        # What is watched goes on as ever, and who stops makes room.
        assert (await executor.sandbox.run_code("1 + 1")).text == "2"
        watches[0].cancel()
        await until(lambda: _can_watch(executor.sandbox))
        await executor.close_session()
        await asyncio.gather(*watches, return_exceptions=True)


async def _can_watch(sandbox):
    try:
        return await anext(sandbox.watch_usage(0.1))
    except LimitReached:
        return None


async def test_a_watcher_that_does_not_read_costs_nothing_and_then_gets_what_is_true(executor, sandbox):
    executor.restart_peak()
    idle = executor.memory()
    async with executor.channel() as channel:
        request = session_pb2.WatchUsageRequest(interval=Duration(nanos=10**8))
        metadata = (("authorization", f"Bearer {executor.token()}"),)
        call = session_pb2_grpc.SessionServiceStub(channel).WatchUsage(request, metadata=metadata)
        first = await call.read()
        for number in range(20):
            await sandbox.run_code(f"x = {number}")
        while (last := await call.read()).usage.executions < first.usage.executions + 20:
            assert last.usage.executions >= first.usage.executions
        call.cancel()
    assert executor.peak_memory() < idle + 32 * MIB


@pytest.mark.smoke
async def test_an_interval_below_zero_is_refused(sandbox):
    with pytest.raises(InvalidArgument):
        await anext(sandbox.watch_usage(-1.0))


@pytest.mark.smoke
async def test_a_watch_needs_the_scope_of_a_session(executor):
    async with executor.channel() as channel:
        metadata = (("authorization", f"Bearer {executor.token(scope='filesystem')}"),)
        stub = session_pb2_grpc.SessionServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.WatchUsage(session_pb2.WatchUsageRequest(), metadata=metadata).read()
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_watching_does_not_keep_an_idle_sandbox_alive(starting):
    async def use(sandbox):
        while True:
            await sandbox.list_contexts()
            await asyncio.sleep(0.2)

    async with starting(idle_timeout=3.0) as used:
        # Control: this one is asked for something all the time.
        using = asyncio.create_task(use(used.sandbox))
        async with starting(idle_timeout=3.0) as watched:
            assert len(await _all_of(watched.sandbox.watch_usage(0.1))) >= 1
            assert (await watched.exit()).code == 41
        assert not using.done()
        assert not used.ended
        using.cancel()
