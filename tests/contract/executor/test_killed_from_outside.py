"""What another execution does to an interpreter is not the fault of the next cell."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import pytest
from contract.executor.copies import copied
from contract.executor.harness import until

pytestmark = pytest.mark.asyncio(loop_scope="session")
LOST = ("variables", "processes")


def inside(executor, pid):
    """The process, as the machine sees it, that has this pid in the session."""
    for outer in executor.processes():
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{outer}/status").read_text()
            numbers = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[1:]
            if len(numbers) > 1 and int(numbers[-1]) == pid:
                return outer
    raise AssertionError(f"no process {pid} in the session")


@contextlib.contextmanager
def stopped(pid):
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        # Who was killed meanwhile may have been reaped.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


async def busy(sandbox):
    return (await sandbox.list_contexts())[0].state == "busy"


async def test_a_cell_after_a_command_that_killed_everything_is_not_blamed(fresh):
    sandbox = fresh.sandbox
    for number in range(5):
        assert (await sandbox.run_code(f"x = {number}")).ok
        await sandbox.commands.run("kill -9 -1")
        after = await sandbox.run_code("1 + 1")
        assert (after.text, after.lost, after.error) == ("2", LOST, None)


@pytest.mark.needs("own uid")
@pytest.mark.parametrize("seen", [True, False], ids=["the socket has ended", "the socket ends with the cell in it"])
async def test_a_cell_that_was_not_read_by_a_killed_interpreter_runs_in_a_new_one(fresh, seen):
    """The end of a process is told by PID 1 of the session, which may be late."""
    sandbox = fresh.sandbox
    pid = int((await sandbox.run_code("import os; os.getpid()")).text)
    # One that is stopped in the middle of its copy takes no cell.
    await copied(sandbox, "default")
    context, first = inside(fresh, pid), inside(fresh, 1)
    if seen:
        with stopped(first):
            os.kill(context, signal.SIGKILL)
            await until(lambda: "Z" in Path(f"/proc/{context}/stat").read_text())
            running = asyncio.create_task(sandbox.run_code("open('ran', 'a').write('x')"))
    else:
        # The cell stays in the socket.
        with stopped(context):
            running = asyncio.create_task(sandbox.run_code("open('ran', 'a').write('x')"))
            await until(lambda: busy(sandbox))
            os.kill(context, signal.SIGKILL)
    ran = await running
    # Without the variables where no copy had been made yet.
    assert (ran.outcome, ran.text, ran.lost[-1:]) == ("ok", "1", ("processes",))
    assert await sandbox.files.read("ran") == "x"


@pytest.mark.needs("own uid")
async def test_a_session_ends_also_while_its_first_process_does_not_look(starting):
    """As while it imports modules ahead."""
    async with starting() as executor:
        assert (await executor.sandbox.run_code("1")).ok
        first = inside(executor, 1)
        os.kill(first, signal.SIGSTOP)
        await asyncio.wait_for(executor.close_session(), 60)
        await until(lambda: not Path(f"/proc/{first}").exists())
