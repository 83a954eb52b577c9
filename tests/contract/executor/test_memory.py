"""Memory bombs: the execution ends with outcome `memory`, the sandbox and everything else in it goes on."""

import asyncio

import pytest
import pytest_asyncio
from contract.executor.harness import until
from contract.executor.languages import PYTHON
from contract.executor.service_tools import back_to
from sandfleet import Outcome

pytestmark = pytest.mark.asyncio(loop_scope="session")

MIB = 1 << 20
LIMITS = {"memory_bytes": 512 * MIB, "tmp_bytes": 128 * MIB}
BOMB = PYTHON.hoard


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def executor(starting):
    # Without copies: what a killed cell loses then is the subject here.
    async with starting(limits=LIMITS, rollback={"enabled": False}) as made:
        yield made


def is_memory(execution, limit=512):
    assert (execution.outcome, execution.blame, execution.reason) == ("memory", "limit", "MemoryLimit")
    assert execution.message == f"The memory limit of {limit} MiB was reached."
    return True


@pytest.mark.attack("hoards memory in a cell", "outcome memory, the others live on")
async def test_a_cell_that_hoards_memory_ends_and_others_live_on(sandbox, context):
    await sandbox.run_code("kept = 1")
    await sandbox.run_code("x = 1", context=context)
    execution = await sandbox.run_code(f"print('before')\n{BOMB}", context=context, timeout=60)
    assert is_memory(execution)
    assert execution.lost == ("variables", "processes")
    assert execution.logs.stdout == "before\n"
    assert execution.usage.peak_memory_bytes > 400 * MIB
    assert (await sandbox.run_code("kept")).text == "1"
    assert (await sandbox.run_code("2", context=context)).text == "2"


@pytest.mark.attack("hoards memory in a command", "outcome memory")
async def test_a_command_that_hoards_memory_ends(sandbox):
    result = await sandbox.commands.run(["python3", "-c", BOMB], timeout=60)
    assert is_memory(result)
    assert (result.exit_code, result.signal) == (137, "SIGKILL")
    assert (await sandbox.commands.run("echo on")).stdout == "on\n"


@pytest.mark.attack("hoards memory in a child", "outcome memory")
async def test_memory_of_a_child_of_a_cell_counts_as_its_own(sandbox, context):
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BOMB!r}])"
    assert is_memory(await sandbox.run_code(code, context=context, timeout=60))


@pytest.mark.attack("hoards memory in many processes", "outcome memory")
async def test_many_processes_that_hoard_together_are_ended_together(sandbox):
    one = "python3 -c 'x = b\"1\" * (100 << 20); import time; time.sleep(1000)'"
    before = (await sandbox.usage()).processes
    assert is_memory(await sandbox.commands.run(" & ".join([one] * 8) + " & wait", timeout=60))
    await until(lambda: back_to(sandbox, before))


async def test_the_largest_is_ended_and_not_the_one_that_asked_last(sandbox, context):
    large = await sandbox.create_context("large")
    await sandbox.run_code("x = b'1' * (300 << 20)", context=large)
    running = asyncio.create_task(sandbox.run_code("import time; time.sleep(1000)", context=large, timeout=100))
    small = await sandbox.run_code("y = b'1' * (250 << 20); len(y)", context=context, timeout=60)
    # Which of the two was larger at the moment of the decision is certain: the small one never gets to 300 MiB.
    assert is_memory(await running)
    assert small.text == str(250 << 20)
    await sandbox.delete_context(large)


async def test_one_huge_allocation_is_a_memoryerror_and_keeps_the_variables(sandbox, context):
    await sandbox.run_code("kept = 1", context=context)
    execution = await sandbox.run_code("bytearray(64 << 30)", context=context)
    assert is_memory(execution)
    assert (execution.error.name, execution.lost) == ("MemoryError", ())
    assert (await sandbox.run_code("kept", context=context)).text == "1"


async def test_code_may_catch_the_memoryerror(sandbox, context):
    code = "try: bytearray(64 << 30)\nexcept MemoryError: caught = True\ncaught"
    assert (await sandbox.run_code(code, context=context)).text == "True"


@pytest.mark.parametrize("folder", ["/tmp", "/dev/shm"])
@pytest.mark.attack("fills files in memory", "no space")
async def test_files_in_memory_have_an_end_of_their_own(sandbox, context, folder):
    code = f"open('{folder}/bomb', 'wb').write(b'x' * (200 << 20))"
    execution = await sandbox.run_code(code, context=context, timeout=60)
    assert (execution.error.name, execution.outcome) == ("OSError", Outcome.ERROR)
    assert "No space left" in execution.error.value
    assert (await sandbox.commands.run(f"stat -c %s {folder}/bomb; rm {folder}/bomb")).stdout.strip() <= str(128 * MIB)


@pytest.mark.control("fills files in memory")
async def test_control_where_there_is_room_for_them_they_are_written(starting):
    async with starting(limits={"memory_bytes": 1024 * MIB, "tmp_bytes": 512 * MIB}) as executor:
        code = "open('/tmp/bomb', 'wb').write(b'x' * (200 << 20))"
        assert (await executor.sandbox.run_code(code, timeout=60)).text == str(200 << 20)


@pytest.mark.attack("keeps memory in files", "it counts as memory", control="in it")
async def test_files_in_memory_count_as_memory(starting):
    async with starting(limits={"memory_bytes": 256 * MIB, "tmp_bytes": 128 * MIB}) as executor:
        sandbox = executor.sandbox
        code = "x = b'x' * (150 << 20); len(x)"
        # Control: without the files the same allocation fits.
        assert (await sandbox.run_code(code, timeout=60)).text == str(150 << 20)
        await sandbox.restart_context()
        await sandbox.commands.run("head -c 60M /dev/zero > /tmp/a; head -c 60M /dev/zero > /dev/shm/b", check=True)
        assert is_memory(await sandbox.run_code(f"{code}\nimport time; time.sleep(1000)", timeout=60), 256)


@pytest.mark.parametrize("tmp_bytes", [128 * MIB, 1024 * MIB])
async def test_a_sandbox_whose_files_in_memory_are_full_still_works_and_can_be_cleaned_up(starting, tmp_bytes):
    # Also where the limits would let the files be larger than the memory, and everything that is started be killed.
    async with starting(limits={"memory_bytes": 256 * MIB, "tmp_bytes": tmp_bytes}) as executor:
        sandbox = executor.sandbox
        full = await sandbox.commands.run("cat /dev/zero > /tmp/a; cat /dev/zero > /dev/shm/b", timeout=60)
        assert full.stderr.count("No space left") == 2
        assert (await sandbox.usage()).tmp_bytes == 128 * MIB
        assert (await sandbox.run_code("1 + 1", timeout=60)).text == "2"
        await sandbox.commands.run("rm /tmp/a /dev/shm/b", check=True)
        assert (await sandbox.usage()).tmp_bytes < MIB


async def test_what_forks_share_is_not_counted_once_for_each(starting):
    async with starting(limits={"memory_bytes": 1024 * MIB}) as executor:
        code = (
            "import os, time\nheap = b'x' * (150 << 20)\n"
            "pids = []\nfor _ in range(10):\n    pid = os.fork()\n    if not pid:\n        time.sleep(2)\n        os._exit(heap[-1] != 120)\n    pids.append(pid)\n"
            "[os.waitpid(pid, 0)[1] for pid in pids]"
        )
        execution = await executor.sandbox.run_code(code, timeout=60)
        assert (execution.outcome, execution.text) == (Outcome.OK, str([0] * 10))
        # Control: the same ten without sharing are too much.
        copied = code.replace("time.sleep(2)", "heap = bytearray(heap); time.sleep(2)")
        assert is_memory(await executor.sandbox.run_code(copied, timeout=60), 1024)


async def test_a_neighbour_does_not_notice(sandbox, neighbour, context):
    assert is_memory(await sandbox.run_code(BOMB, context=context, timeout=60))
    assert (await neighbour.run_code("here")).text == "'untouched'"


@pytest.mark.control(
    "hoards memory in a cell",
    "hoards memory in a command",
    "hoards memory in a child",
    "hoards memory in many processes",
)
async def test_without_the_guard_s_limit_the_same_hoard_fits(neighbour):
    # Control: the bomb's first 600 MiB do no harm in a sandbox that may have them.
    code = "hoard = []\nwhile len(hoard) < 75: hoard.append(b'x' * (8 << 20))\nlen(hoard)"
    context = await neighbour.create_context()
    assert (await neighbour.run_code(code, context=context, timeout=60)).text == "75"
    await neighbour.delete_context(context)
