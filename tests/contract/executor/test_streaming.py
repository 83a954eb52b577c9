"""Floods of output, readers that are slow or go away: the executor's memory is bounded and nothing is miscounted."""

import asyncio

import pytest
from contract.executor.harness import until
from sandfleet import Outcome

pytestmark = pytest.mark.asyncio(loop_scope="session")

MIB = 1 << 20
GIB = 1 << 30
# What one execution may cost the executor beside its idle self: its ring, a tail of each stream, messages on their way.
ALLOWED = 96 * MIB


async def test_of_a_gibibyte_without_a_newline_head_and_tail_are_kept_and_the_rest_is_counted(executor, sandbox):
    executor.restart_peak()
    idle = executor.memory()
    line = "printf HEAD; head -c 1G /dev/zero | tr '\\0' x; printf TAIL"
    result = await sandbox.commands.run(line, timeout=110)
    [gap] = result.gaps
    assert result.outcome is Outcome.OK
    assert result.stdout.startswith("HEADxxx")
    assert result.stdout.endswith("xxxTAIL")
    assert len(result.stdout_bytes) == 16 * MIB
    assert gap.dropped_bytes == GIB + 8 - 16 * MIB
    assert set(result.stdout_bytes) == set(b"HEADxTAIL")
    assert result.usage.stdout_bytes == GIB + 8
    assert executor.peak_memory() < idle + ALLOWED


@pytest.mark.parametrize("limit", [1, 1000, 1 << 20])
async def test_the_output_limit_is_exact_for_each_stream(sandbox, context, limit):
    size = 3 * MIB + 1
    code = f"import sys; sys.stdout.write('o' * {size}); sys.stderr.write('e' * {size})"
    execution = await sandbox.run_code(code, context=context, output_limit=limit)
    assert (len(execution.logs.stdout), len(execution.logs.stderr)) == (limit, limit)
    assert sorted(gap.dropped_bytes for gap in execution.logs.gaps) == [size - limit] * 2
    assert (execution.usage.stdout_bytes, execution.usage.stderr_bytes) == (size, size)


async def test_10_mib_of_each_stream_come_whole_by_default(sandbox, context):
    code = "import sys\nfor n in range(160):\n    sys.stdout.write('o' * 65536)\n    sys.stderr.write('e' * 65536)"
    execution = await sandbox.run_code(code, context=context, timeout=60)
    assert (execution.logs.stdout, execution.logs.stderr) == ("o" * 10 * MIB, "e" * 10 * MIB)
    assert execution.logs.gaps == ()


async def test_a_million_lines_come_whole_and_in_order(sandbox, context):
    execution = await sandbox.run_code("for n in range(1_000_000): print(n)", context=context, timeout=100)
    assert execution.logs.stdout == "".join(f"{n}\n" for n in range(1_000_000))


async def test_a_reader_that_stops_reading_does_not_cost_the_executor_memory_and_the_deadline_comes(executor):
    reader = executor.client()
    executor.restart_peak()
    idle = executor.memory()
    handle = await reader.commands.run(
        "yes | head -c 3G; touch /workspace/passed", background=True, timeout=4, output_limit=4 * GIB
    )
    # Nothing is read until the deadline has passed: seen through another connection.
    await until(lambda: _idle(executor.sandbox))
    assert executor.peak_memory() < idle + ALLOWED
    result = await handle.wait()
    assert result.outcome is Outcome.TIMEOUT
    assert not await executor.sandbox.files.exists("passed")
    written = len(result.stdout_bytes) + sum(gap.dropped_bytes for gap in result.gaps)
    assert written == result.usage.stdout_bytes < 3 * GIB


async def test_a_slow_reader_gets_everything(sandbox):
    handle = await sandbox.commands.run("seq 1000000", background=True, timeout=60)
    seen = b""
    async for piece in handle:
        seen += piece.data
        if len(seen) < 2 * MIB:
            await asyncio.sleep(0.01)
    assert seen == b"".join(b"%d\n" % n for n in range(1, 1_000_001))


async def test_a_client_that_goes_away_does_not_end_the_execution(executor, sandbox):
    leaving = executor.client()
    code = "import time, os\nprint('x' * 100_000)\nopen('begun', 'w')\nwhile not os.path.exists('go'): time.sleep(0.02)\nopen('done', 'w')"
    seen = asyncio.Event()
    running = asyncio.create_task(leaving.run_code(code, timeout=60, on_stdout=lambda _: seen.set()))
    await until(lambda: sandbox.files.exists("begun"))
    # Before the first answer the client could not say whether anything runs.
    await seen.wait()
    await leaving.close()
    assert (await running).outcome is Outcome.LOST
    await sandbox.files.write("go", b"")
    await until(lambda: sandbox.files.exists("done"))
    assert (await sandbox.run_code("1")).outcome is Outcome.OK


async def test_a_client_that_goes_away_in_a_flood_does_not_stop_it_nor_fill_the_executor(executor, sandbox):
    leaving = executor.client()
    executor.restart_peak()
    idle = executor.memory()
    line = "yes | head -c 300M; touch flooded"
    handle = await leaving.commands.run(line, background=True, timeout=100, output_limit=GIB)
    await anext(handle)
    await leaving.close()
    await until(lambda: sandbox.files.exists("flooded"))
    assert executor.peak_memory() < idle + ALLOWED


async def test_many_executions_one_after_the_other_leave_nothing_behind_in_the_executor(executor, sandbox, context):
    for _ in range(3):
        await sandbox.run_code("print('x' * (4 << 20))", context=context)
    before = executor.memory()
    for _ in range(30):
        await sandbox.run_code("print('x' * (4 << 20))", context=context)
    assert executor.memory() < before + 32 * MIB


async def _idle(sandbox):
    return (await sandbox.usage()).running_executions == 0
