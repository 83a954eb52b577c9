"""Deadlines: an execution that does not end is ended, whatever it does against that."""

import asyncio

import pytest
import pytest_asyncio
from contract.executor.harness import until
from contract.executor.service_tools import back_to
from sandfleet import Outcome

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def executor(starting):
    """Without copies of contexts: what a killed cell loses then is the subject here."""
    async with starting(rollback={"enabled": False}) as made:
        yield made


DEAF = """
import signal
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM): signal.signal(number, signal.SIG_IGN)
while True:
    try:
        open("/tmp/deaf", "w")
        while True: pass
    except BaseException: pass
"""
MASKED = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())"


def is_timeout(execution, seconds):
    assert (execution.outcome, execution.blame, execution.reason) == ("timeout", "limit", "DeadlineExceeded")
    assert execution.message == f"The execution did not end within {seconds:g} seconds."
    return True


async def in_time(sandbox, code, context):
    """Runs it into its deadline.

    It has a second to react then, which a machine that is busy does not give it each time.
    """
    for _ in range(5):
        await sandbox.run_code("kept = 1", context=context)
        execution = await sandbox.run_code(code, context=context, timeout=0.3)
        assert is_timeout(execution, 0.3)
        if not execution.lost:
            break
    return execution


@pytest.mark.parametrize(
    "code",
    ["while True: pass", "import time; time.sleep(1000)", "import asyncio; await asyncio.sleep(1000)", "!sleep 1000"],
)
async def test_where_an_interrupt_is_enough_the_variables_are_kept(sandbox, context, code):
    execution = await in_time(sandbox, code, context)
    assert execution.lost == ()
    assert (await sandbox.run_code("kept", context=context)).text == "1"


@pytest.mark.parametrize(
    "code",
    [
        DEAF,
        f"{MASKED}\nwhile True: pass",
        "import ctypes; ctypes.CDLL(None).sleep(1000); ctypes.CDLL(None).sleep(1000)",
        "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
        "import threading; threading.Lock().acquire(); (lambda lock: (lock.acquire(), lock.acquire()))(threading.Lock())\nwhile 1: pass",
    ],
    ids=["deaf", "masked", "in C", "stopped", "lock"],
)
async def test_code_that_cannot_be_interrupted_is_killed_and_says_what_is_lost(sandbox, context, code):
    execution = await sandbox.run_code(code, context=context, timeout=0.3)
    assert is_timeout(execution, 0.3)
    after = await sandbox.run_code("1", context=context)
    assert (after.outcome, after.lost) == (Outcome.OK, execution.lost)


async def test_an_interrupt_cannot_end_what_is_deaf_so_the_kill_did(sandbox, context):
    if await sandbox.files.exists("/tmp/deaf"):
        await sandbox.files.remove("/tmp/deaf")
    # Control: the same code goes on after an interrupt.
    running = asyncio.create_task(sandbox.run_code(DEAF, context=context, timeout=60))
    await until(lambda: sandbox.files.exists("/tmp/deaf"))
    assert await sandbox.interrupt(context, grace=1)
    execution = await running
    assert (execution.outcome, execution.lost) == ("interrupted", ("variables", "processes"))


async def test_a_deadline_says_what_was_said_until_then(sandbox, context):
    execution = await sandbox.run_code("print('begun')\nwhile True: pass", context=context, timeout=0.5)
    assert execution.logs.stdout == "begun\n"
    assert execution.usage.wall_seconds >= 0.5


async def test_code_that_ends_by_itself_after_its_deadline_is_a_timeout_all_the_same(sandbox, context):
    code = "import time\ntry:\n    time.sleep(100)\nexcept KeyboardInterrupt:\n    'cleaned up'"
    execution = await in_time(sandbox, code, context)
    assert execution.lost == ()


async def test_a_timed_out_cell_takes_its_children_with_it_when_it_is_killed(sandbox, context):
    before = (await sandbox.usage()).processes
    code = f"{MASKED}\nimport subprocess\nfor _ in range(3): subprocess.Popen(['setsid', 'sleep', '1000'])\nwhile True: pass"
    assert is_timeout(await sandbox.run_code(code, context=context, timeout=2), 2)
    # The interpreter itself is gone as well.
    await until(lambda: back_to(sandbox, before))


@pytest.mark.parametrize(
    "line",
    [
        "sleep 1000",
        "trap '' TERM HUP INT; while :; do :; done",
        "trap '' TERM; sleep 1000 & setsid sleep 1000 & (setsid sh -c 'setsid sleep 1000 & disown' &) ; while :; do :; done",
        "kill -STOP $$",
    ],
)
async def test_a_command_is_ended_at_its_deadline_with_everything_that_it_started(sandbox, line):
    before = (await sandbox.usage()).processes
    result = await sandbox.commands.run(line, timeout=0.5)
    assert is_timeout(result, 0.5)
    assert result.signal in ("SIGTERM", "SIGKILL")
    await until(lambda: back_to(sandbox, before))


async def test_what_a_command_leaves_running_is_killed_and_counted(sandbox):
    before = (await sandbox.usage()).processes
    there = "until [ $(pgrep -fxc 'sleep 1007') = 4 ]; do sleep 0.02; done"
    daemons = f"sleep 1007 & setsid sleep 1007 & (setsid sh -c 'sleep 1007 & sleep 1007' &); {there}; echo done"
    result = await sandbox.commands.run(daemons)
    assert (result.outcome, result.stdout, result.leftover_processes_killed) == (Outcome.OK, "done\n", 5)
    said = "5 processes that it left running (sh, sleep) were ended with it: start what is to stay as a service"
    assert result.message.startswith(said)
    await until(lambda: back_to(sandbox, before))


async def test_what_a_command_leaves_running_would_live_on_without_its_supervisor(sandbox, context):
    # Control: the same daemons, started from a cell, whose background processes may stay.
    code = "import subprocess\nsubprocess.run(['sh', '-c', '(setsid sleep 1000 &) ; sleep 0.2'])\nsubprocess.run(['pgrep', '-f', 'sleep 1000'], capture_output=True).stdout"
    execution = await sandbox.run_code(code, context=context)
    assert execution.text not in ("b''", None)


async def test_a_deadline_longer_than_the_sandbox_allows_is_refused_and_the_default_is_its_own(starting):
    async with starting(limits={"max_timeout": 5.0, "default_timeout": 0.5}) as executor:
        assert is_timeout(await executor.sandbox.run_code("while True: pass"), 0.5)
        with pytest.raises(ValueError, match="at most 5"):
            await executor.sandbox.run_code("1", timeout=6)


async def test_no_deadline_needs_a_sandbox_without_a_longest_timeout(sandbox, starting):
    with pytest.raises(ValueError, match=r"no deadline \(0\) needs a template whose longest timeout is 0"):
        await sandbox.run_code("1", timeout=0)
    async with starting(limits={"max_timeout": 0, "default_timeout": 0.5}) as executor:
        made = executor.sandbox
        assert is_timeout(await made.run_code("while True: pass"), 0.5)
        code = "import time; time.sleep(1.5); 7"
        assert (await made.run_code(code, timeout=0)).text == "7"
        assert (await made.run_code(code, timeout=1_000_000)).text == "7"
        handle = await made.commands.run("read line; sleep 1; echo $line", stdin=True, timeout=0, background=True)
        await handle.send_stdin("late\n")
        assert (await handle.wait()).stdout == "late\n"
        # An interrupt still ends it.
        running = asyncio.create_task(made.run_code("print('on', flush=True)\nwhile True: pass", timeout=0))
        await until(made.interrupt)
        assert (await running).outcome is Outcome.INTERRUPTED
