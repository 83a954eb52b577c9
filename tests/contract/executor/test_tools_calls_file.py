"""What a host of tools keeps of its calls in a file: it is killed, and another process goes on from the file."""

import asyncio
import sqlite3
import stat

import pytest
import pytest_asyncio
from contract.executor.harness import until
from contract.executor.kept_host import FINISHED, LIMIT, NEVER, RECEIVED, RUNNING, kept_host, tools_of
from sandfleet.errors import InvalidArgument, PreconditionFailed

pytestmark = pytest.mark.asyncio(loop_scope="session")
CODE = """
def tried(call):
    try:
        return call()
    except tools.ToolError as error:
        return error.reason, getattr(error, "may_have_run", None)
tried(lambda: tools.pay(amount=20)), tried(lambda: tools.look(key=b'abc'))
"""
PAY, LOOK = ("tried(lambda: tools.pay(amount=20))", "tried(lambda: tools.look(key=b'abc'))")
HEAD = CODE[: CODE.rindex("tried(lambda: tools.pay")]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def executor(starting):
    async with starting(contract="brokered") as made:
        yield made


@pytest.fixture
def file(tmp_path):
    return tmp_path / "calls.db"


@pytest.fixture
def log(tmp_path):
    made = tmp_path / "log"
    made.touch()
    return made


async def killed_at(executor, sandbox, moment, call, file, log, *, then="the same file"):
    """What the code got of a call whose host was killed with kill -9 at this moment, and what ran."""
    async with kept_host(executor, file, log, moment) as process:
        running = asyncio.ensure_future(sandbox.run_code(f"{HEAD}{call}"))
        assert await process.wait() == -9
    kept = {"calls_file": file} if then == "the same file" else {}
    async with await sandbox.serve_tools(tools_of(log), **kept):
        return (await running).text, log.read_text().split()


@pytest.mark.parametrize(
    ("moment", "call", "said", "ran"),
    [
        (RECEIVED, PAY, "'paid 20'", ["pay"]),
        (RUNNING, PAY, "('HostLost', True)", ["pay"]),
        (FINISHED, PAY, "'paid 20'", ["pay"]),
        (RECEIVED, LOOK, "b'cba'", ["look"]),
        (RUNNING, LOOK, "b'cba'", ["look", "look"]),
        (FINISHED, LOOK, "b'cba'", ["look"]),
    ],
)
async def test_a_call_of_a_killed_host_runs_once_and_a_finished_one_is_answered_from_the_file(
    executor, sandbox, file, log, moment, call, said, ran
):
    assert await killed_at(executor, sandbox, moment, call, file, log) == (said, ran)


@pytest.mark.parametrize("moment", [RECEIVED, RUNNING, FINISHED])
async def test_control_without_the_file_nothing_says_whether_the_call_ran(executor, sandbox, file, log, moment):
    said, _ = await killed_at(executor, sandbox, moment, PAY, file, log, then="no file")
    assert said == "('HostLost', True)"


async def test_a_host_that_goes_on_counts_what_the_one_before_has_run_and_spent(executor, sandbox, file, log):
    async with kept_host(executor, file, log, NEVER) as process:
        for _ in range(3):
            await sandbox.run_code("tools.pay(amount=30)")
        process.kill()
        await process.wait()
    async with await sandbox.serve_tools(tools_of(log), calls_file=file) as server:
        assert server.calls == {"pay": 3}
        assert "10 of the budget of 100 are left" in (await sandbox.run_code("tools.pay(amount=30)")).error.value
        assert (await sandbox.run_code("tools.pay(amount=10)")).text == "'paid 10'"
        assert f"the most is {LIMIT} calls in a session" in (await sandbox.run_code("tools.pay(amount=0)")).error.value


@pytest.mark.parametrize(("then", "said"), [("the same file", "CallsPerExecution"), ("no file", "looked")])
async def test_a_host_that_goes_on_counts_what_a_running_cell_has_called(executor, sandbox, file, log, then, said):
    """Without the file the cell gets as many calls again."""
    waits = "import os, time\nwhile not os.path.exists('go'):\n    time.sleep(0.01)\n"
    code = f"{HEAD}tools.twice(); tools.twice()\nopen('called', 'w').close()\n{waits}tried(tools.twice)"
    await sandbox.commands.run("rm -f go called")
    async with kept_host(executor, file, log, NEVER) as process:
        running = asyncio.ensure_future(sandbox.run_code(code))
        await until(lambda: sandbox.files.exists("called"))
        process.kill()
        await process.wait()
    kept = {"calls_file": file} if then == "the same file" else {}
    async with await sandbox.serve_tools(tools_of(log), **kept):
        await sandbox.files.write("go", b"")
        execution = await running
        assert said in (execution.text or ""), execution


async def test_answers_that_have_arrived_are_not_kept(executor, sandbox, file, log):
    async with await sandbox.serve_tools(tools_of(log), calls_file=file):
        for _ in range(3):
            await sandbox.run_code("tools.look(key=b'a secret')")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600

    def left():
        with sqlite3.connect(file) as database:
            return database.execute("SELECT count(*) FROM calls").fetchone() == (0,)

    await until(left)
    assert not (file.parent / "calls.db-journal").exists()


async def test_one_process_has_the_file_open_and_the_next_one_when_it_has_closed_it(executor, sandbox, file, log):
    async with await sandbox.serve_tools(tools_of(log), calls_file=file):
        with pytest.raises(PreconditionFailed) as caught:
            await sandbox.serve_tools(tools_of(log), calls_file=file)
        assert caught.value.reason == "CallsFileInUse"
        # The one that has it serves on.
        assert (await sandbox.run_code("tools.pay(amount=1)")).text == "'paid 1'"
    async with await sandbox.serve_tools(tools_of(log), calls_file=file) as server:
        assert server.calls == {"pay": 1}


@pytest.mark.parametrize("what", ["another sandbox's", "no database", "a folder", "cut", "no folder"])
async def test_a_file_that_is_not_this_sandbox_s_is_refused_and_left_as_it_is(executor, sandbox, file, log, what):
    async with await sandbox.serve_tools(tools_of(log), calls_file=file):
        pass
    data = file.read_bytes()
    match what:
        case "another sandbox's":
            with sqlite3.connect(file) as database:
                database.execute("UPDATE host SET sandbox = 'another'")
            database.close()
        case "no database":
            file.write_text("orders: 1")
        case "cut":
            file.write_bytes(data[: len(data) // 2])
        case "a folder":
            file.unlink()
            file.mkdir()
        case "no folder":
            file = file.parent / "missing" / "calls.db"
    before = file.read_bytes() if file.is_file() else b""
    with pytest.raises(InvalidArgument, match="cannot keep calls in"):
        await sandbox.serve_tools(tools_of(log), calls_file=file)
    assert (file.read_bytes() if file.is_file() else b"") == before


async def test_a_call_that_cannot_be_written_down_does_not_run(executor, sandbox, file, log):
    async with await sandbox.serve_tools(tools_of(log), calls_file=file) as server:
        await server._file._do(lambda: server._file._database.execute("PRAGMA query_only = ON"))
        execution = await sandbox.run_code(f"{HEAD}{PAY}")
        assert execution.text == "('NotKept', False)"
        await server._file._do(lambda: server._file._database.execute("PRAGMA query_only = OFF"))
        assert (await sandbox.run_code(f"{HEAD}{PAY}")).text == "'paid 20'"
    assert log.read_text().split() == ["pay"]
