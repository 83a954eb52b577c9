"""The client on a real fleet with real executors."""

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sandfleet import Fleet, Sandbox
from sandfleet._fleets.embedded import Options, Process
from sandfleet._fleets.fleet import AsyncFleet
from sandfleet.errors import (
    AlreadyExistsError,
    CommandFailed,
    FileNotFound,
    FilePermission,
    InvalidArgument,
    InvalidPath,
    IsADirectory,
    NotFoundError,
    SandboxEnded,
)
from sandfleet.sandbox import AsyncSandbox
from sandfleet.values.execution import Blame, Outcome
from sandfleet.values.sandbox import Isolation
from support.client.contexts import DEFAULTS
from support.client.executors import children, kill_executors
from support.client.served import served_fleet

EVERYTHING = ("variables", "processes", "tmp")


@pytest.fixture(scope="module")
def served() -> Iterator[Process]:
    with served_fleet(Options(pool_size=1)) as process:
        yield process


@pytest.fixture
async def sandbox(fleet: AsyncFleet) -> AsyncIterator[AsyncSandbox]:
    async with await AsyncSandbox.create(fleet=fleet) as made:
        yield made


@pytest.fixture
def sync_sandbox(served: Process) -> Iterator[Sandbox]:
    with Fleet.connect(served.address) as fleet, Sandbox.create(fleet=fleet) as made:
        yield made


async def test_variables_last_and_everything_of_an_execution_comes_back(sandbox: AsyncSandbox) -> None:
    assert (await sandbox.run_code("x = 20")).ok
    heard: list[str] = []
    execution = await sandbox.run_code("print('ünïcode'); open('made', 'w').close(); x + 1", on_stdout=heard.append)
    assert (execution.text, execution.logs.stdout, "".join(heard)) == ("21", "ünïcode\n", "ünïcode\n")
    assert execution.files.created == ("made",)
    assert execution.usage.peak_memory_bytes > 1 << 20
    assert execution.cell_number == 2


async def test_an_exception_comes_back_with_its_line(sandbox: AsyncSandbox) -> None:
    execution = await sandbox.run_code("x = 1\nraise LookupError('gone')")
    assert (execution.outcome, execution.blame) == (Outcome.ERROR, Blame.CODE)
    assert execution.error is not None
    assert (execution.error.name, execution.error.value, execution.error.frames[-1].line) == ("LookupError", "gone", 2)


async def test_contexts_are_apart_and_can_be_restarted_and_deleted(sandbox: AsyncSandbox) -> None:
    mine = await sandbox.create_context("mine", envs={"WHO": "me"})
    assert (await sandbox.run_code("import os; y = os.environ['WHO']; y", context=mine)).text == "'me'"
    assert (await sandbox.run_code("y")).outcome is Outcome.ERROR
    listed = await sandbox.list_contexts()
    assert [context.context_id for context in listed] == [*DEFAULTS, "mine"]
    for default in listed[: len(DEFAULTS)]:
        assert (await sandbox.run_code("6 * 7", context=default)).text == "42"
    with pytest.raises(AlreadyExistsError):
        await sandbox.create_context("mine")
    assert (await sandbox.restart_context(mine)).generation == 2
    assert (await sandbox.run_code("y", context="mine")).error is not None
    await sandbox.delete_context(mine)
    with pytest.raises(NotFoundError):
        await sandbox.run_code("y", context="mine")


async def test_a_deadline_and_an_interrupt_are_outcomes_and_the_session_goes_on(sandbox: AsyncSandbox) -> None:
    late = await sandbox.run_code("import time; time.sleep(60)", timeout=0.3)
    assert (late.outcome, late.blame) == (Outcome.TIMEOUT, Blame.LIMIT)
    began = asyncio.Event()
    code = "import time\nprint('on', flush=True)\ntime.sleep(60)"
    running = asyncio.create_task(sandbox.run_code(code, on_stdout=lambda _: began.set()))
    await began.wait()
    assert await sandbox.interrupt()
    assert (await running).outcome is Outcome.INTERRUPTED
    assert (await sandbox.run_code("1")).ok


async def test_cancelling_a_call_frees_the_context(sandbox: AsyncSandbox) -> None:
    began = asyncio.Event()
    code = "import time\nprint('on', flush=True)\ntime.sleep(60)"
    running = asyncio.create_task(sandbox.run_code(code, on_stdout=lambda _: began.set()))
    await began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    async with asyncio.timeout(60):
        assert (await sandbox.run_code("1")).ok


async def test_commands_give_output_code_and_signal(sandbox: AsyncSandbox) -> None:
    ended = await sandbox.commands.run("echo out; echo err >&2; exit 3")
    assert (ended.stdout, ended.stderr, ended.exit_code, ended.outcome) == ("out\n", "err\n", 3, Outcome.ERROR)
    assert (await sandbox.commands.run(["no-such-program"])).exit_code == 127
    assert (await sandbox.commands.run("kill -9 $$")).exit_code == 137
    with pytest.raises(CommandFailed):
        await sandbox.commands.run("false", check=True)
    data = secrets.token_bytes(3 << 20)
    assert (await sandbox.commands.run(["cat"], stdin=data)).stdout_bytes == data


async def test_a_command_in_the_background_is_spoken_with(sandbox: AsyncSandbox) -> None:
    handle = await sandbox.commands.run(["cat"], background=True, stdin=True)
    await handle.send_stdin("one\n")
    assert (await anext(handle)).text == "one\n"
    assert [command.execution_id for command in await sandbox.commands.list()] == [handle.execution_id]
    await handle.close_stdin()
    assert (await handle.wait()).ok
    sleeper = await sandbox.commands.run("sleep 60", background=True)
    assert await sleeper.kill()
    assert (await sleeper.wait()).exit_code == 137
    assert not await sleeper.kill()


async def test_files_go_in_and_out(sandbox: AsyncSandbox, tmp_path: Path) -> None:
    data = secrets.token_bytes(5 << 20)
    (tmp_path / "in").write_bytes(data)
    assert (await sandbox.files.upload(tmp_path / "in", "deep/er/file", mode=0o600)).bytes == len(data)
    info = await sandbox.files.get_info("deep/er/file")
    assert (info.path, info.size, info.mode) == ("/workspace/deep/er/file", len(data), 0o600)
    assert (await sandbox.files.download("deep/er/file", tmp_path / "out")).bytes == len(data)
    assert (tmp_path / "out").read_bytes() == data
    assert await sandbox.files.read("deep/er/file", format="bytes", offset=10, length=5) == data[10:15]
    await sandbox.files.rename("deep/er/file", "top")
    assert {entry.name for entry in await sandbox.files.list(depth=3)} == {"deep", "er", "top"}
    assert not await sandbox.files.make_dir("deep")
    with pytest.raises(IsADirectory):
        await sandbox.files.read("deep")
    with pytest.raises(FilePermission):
        await sandbox.files.write("../etc/passwd", "root::0:0::/:/bin/sh")
    with pytest.raises(InvalidPath):
        await sandbox.files.read("a\0b")
    await sandbox.files.remove("deep", recursive=True)
    assert not await sandbox.files.exists("deep")
    with pytest.raises(FileNotFoundError) as caught:
        await sandbox.files.get_info("deep")
    assert isinstance(caught.value, FileNotFound)


@pytest.mark.smoke
async def test_info_says_what_isolates_it_and_a_lease_can_be_set(sandbox: AsyncSandbox, fleet: AsyncFleet) -> None:
    info = await sandbox.get_info()
    assert info.isolation is Isolation.NAMESPACE
    assert {"pid", "mount", "network"} <= set(info.separations)
    longer = await sandbox.set_timeout(1000)
    assert longer.lease_expires is not None
    assert info.lease_expires is not None
    assert longer.lease_expires > info.lease_expires
    assert await sandbox.health()
    assert (await sandbox.usage()).memory_bytes > 0
    assert sandbox.sandbox_id in {known.sandbox_id for known in await fleet.list()}


async def test_a_list_has_the_sandboxes_of_sessions_and_the_warm_ones_where_they_are_asked_for(
    fleet: AsyncFleet,
) -> None:
    while not any(one.warm for one in await fleet.pools()):
        await asyncio.sleep(0.05)
    assert {info.state for info in await fleet.list()} <= {"claimed", "suspended", "recovering"}
    assert "warm" in {info.state for info in await AsyncSandbox.list(fleet=fleet, warm=True)}


async def test_labels_select_sandboxes(fleet: AsyncFleet) -> None:
    async with await AsyncSandbox.create(fleet=fleet, labels={"team": "a"}) as mine:
        assert [info.sandbox_id for info in await AsyncSandbox.list("team=a", fleet=fleet)] == [mine.sandbox_id]
        assert await AsyncSandbox.list("team=b", fleet=fleet) == []


async def test_a_killed_sandbox_has_ended_for_everybody(fleet: AsyncFleet) -> None:
    sandbox = await AsyncSandbox.create(fleet=fleet)
    other = await AsyncSandbox.connect(sandbox.sandbox_id, fleet=fleet)
    assert await sandbox.kill()
    for left in (sandbox, other):
        with pytest.raises(SandboxEnded):
            await left.run_code("1")
    await other.close()


async def test_a_lease_that_is_not_renewed_ends_the_sandbox(fleet: AsyncFleet) -> None:
    sandbox = await AsyncSandbox.create(fleet=fleet, timeout=4.0, keep_alive=False)
    cut_off = await sandbox.run_code("import time; time.sleep(60)")
    assert (cut_off.outcome, cut_off.blame, cut_off.reason) == (Outcome.INTERRUPTED, Blame.POLICY, "LeaseExpired")
    with pytest.raises(SandboxEnded) as ended:
        while True:
            execution = await sandbox.run_code("1")
            # The sandbox is ending, and still answers, or has just ended.
            assert execution.reason in {"LeaseExpired", "SandboxEnded"}
            assert f"The lease of sandbox {sandbox.sandbox_id} was over" in execution.message
    for message in (cut_off.message, ended.value.message):
        assert f"The lease of sandbox {sandbox.sandbox_id} was over" in message
        assert "keep_alive=True" in message
    assert ended.value.reason == "LeaseExpired"
    await sandbox.close()


async def test_a_lease_is_renewed_while_something_runs(fleet: AsyncFleet) -> None:
    sandbox = await AsyncSandbox.create(fleet=fleet, timeout=4.0)
    assert (await sandbox.run_code("import time; time.sleep(6)")).ok
    handle = await sandbox.commands.run("sleep 6; echo done", background=True)
    assert (await handle.wait()).stdout == "done\n"
    again = await AsyncSandbox.connect(sandbox.sandbox_id, fleet=fleet)
    assert (await again.run_code("time.sleep(6); 7")).text == "7"
    # Nothing runs now.
    with pytest.raises(SandboxEnded):
        while True:
            await again.get_info()
            await asyncio.sleep(0.1)
    await again.close()
    await sandbox.close()


def test_an_embedded_fleet_keeps_a_sandbox_as_long_as_its_object_lives() -> None:
    said = subprocess.run(
        [
            sys.executable,
            "-c",
            """
import gc
from sandfleet import Sandbox

sandbox = Sandbox.create(timeout=1.0)
first = now = sandbox.get_info().lease_expires
while (now - first).total_seconds() < 2:
    now = sandbox.get_info().lease_expires
print(sandbox.run_code("1 + 1").text)
sandbox_id = sandbox.sandbox_id
del sandbox
gc.collect()
while sandbox_id in {one.sandbox_id for one in Sandbox.list()}:
    pass
print("gone")
""",
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    assert said.stdout.split() == ["2", "gone"]


@pytest.mark.smoke
async def test_an_executor_killed_in_mid_execution_costs_one_lost_execution_and_no_file(
    served: Process, sandbox: AsyncSandbox
) -> None:
    await sandbox.files.write("kept", "text")
    assert (await sandbox.run_code("x = 1")).ok
    began = asyncio.Event()
    code = "print('half', flush=True)\nimport time; time.sleep(60)"
    running = asyncio.create_task(sandbox.run_code(code, on_stdout=lambda _: began.set()))
    await began.wait()
    kill_executors(served)
    lost = await running
    assert (lost.outcome, lost.blame, lost.lost) == (Outcome.LOST, Blame.PLATFORM, EVERYTHING)
    assert lost.logs.stdout == "half\n"
    after = await sandbox.run_code("import os; 'x' in globals(), os.listdir()")
    assert (after.text, after.lost) == ("(False, ['kept'])", ())
    assert await sandbox.files.read("kept") == "text"


async def test_an_executor_killed_between_executions_is_said_by_the_next_one(
    served: Process, sandbox: AsyncSandbox
) -> None:
    await sandbox.create_context("mine", envs={"A": "1"})
    assert (await sandbox.run_code("x = 1", context="mine")).ok
    kill_executors(served)
    # An execution sent before the connection's end is seen would be lost, as its extent is not known.
    assert await sandbox.health()
    after = await sandbox.run_code("import os; os.environ['A']", context="mine")
    assert (after.text, after.lost) == ("'1'", EVERYTHING)
    assert (await sandbox.get_info()).restarts == 1


async def test_mounts_are_the_sandboxs_also_in_the_executor_that_replaces_a_killed_one(
    served: Process, fleet: AsyncFleet
) -> None:
    async with await AsyncSandbox.create(fleet=fleet, mounts=["/app", "/home/user"]) as sandbox:
        await sandbox.files.write("/app/main.py", "print(open('/home/user/data').read())")
        await sandbox.files.write("home/user/data", "data")
        assert (await sandbox.commands.run("python main.py", cwd="/app")).stdout == "data\n"
        assert (await sandbox.get_info()).mounts == {"/app": "app", "/home/user": "home/user"}
        kill_executors(served)
        assert await sandbox.health()
        assert (await sandbox.commands.run("python main.py", cwd="/app")).stdout == "data\n"
        assert await sandbox.files.read("/app/main.py") == await sandbox.files.read("app/main.py")
        # User code may have replaced a folder by then: the session goes on, and says what is missing.
        await sandbox.commands.run("mv app other && ln -s / app", check=True)
        kill_executors(served)
        assert await sandbox.health()
        result = await sandbox.commands.run("cat /home/user/data; ls -A /app")
        assert ([each.reason for each in result.notices], result.stdout) == (["FolderNotMounted"], "data")


FIXED = ("/app", "/logs", "/solution", "/tests")
SOLUTION = "#!/bin/bash\ncd /app && echo 42 > answer.txt\n"
CHECK = """\
import os
ok = open("/app/answer.txt").read() == "42\\n" and os.getcwd() == "/app"
os.makedirs("/logs/verifier", exist_ok=True)
open("/logs/verifier/reward.txt", "w").write(str(int(ok)))
"""


async def a_task_with_fixed_paths(sandbox: AsyncSandbox, folder: Path) -> str:
    """As harnesses of agents' benchmarks do it: nothing in it knows of /workspace."""
    for name, text in (("solution/solve.sh", SOLUTION), ("tests/check.py", CHECK)):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(text)
    await sandbox.files.upload(folder / "solution", "/solution")
    await sandbox.files.upload(folder / "tests", "/tests")
    await sandbox.commands.run(["bash", "/solution/solve.sh"], cwd="/app", check=True)
    await sandbox.commands.run(["python", "/tests/check.py"], cwd="/app", check=True)
    await sandbox.files.download("/logs", folder / "logs")
    return (folder / "logs/verifier/reward.txt").read_text()


async def test_a_task_that_is_written_for_fixed_paths_runs_as_it_is(fleet: AsyncFleet, tmp_path: Path) -> None:
    async with await AsyncSandbox.create(fleet=fleet, mounts=FIXED) as sandbox:
        assert await a_task_with_fixed_paths(sandbox, tmp_path / "mounted") == "1"
        assert sorted(entry.name for entry in await sandbox.files.list(".")) == [path[1:] for path in FIXED]
    async with await AsyncSandbox.create(fleet=fleet) as control:
        with pytest.raises(FilePermission):
            await a_task_with_fixed_paths(control, tmp_path / "control")


@pytest.mark.parametrize(
    ("mounts", "reason", "why"),
    [
        (["/etc"], "InvalidMount", "cannot mount /etc: /etc belongs to the system"),
        ({"/app": "src/../x"}, "InvalidMount", "cannot mount /app: folder 'src/../x': write it without"),
        ({"/app": "../nothing"}, "", "cannot mount /app: ../nothing is no folder of this machine"),
        ([sys.base_prefix], "InvalidClaim", f"cannot mount {sys.base_prefix}: {sys.base_prefix} belongs to Python"),
    ],
)
async def test_mounts_that_cannot_be_are_refused_by_reason(fleet: AsyncFleet, mounts, reason, why) -> None:
    if sys.base_prefix == "/usr" and reason == "InvalidClaim":
        pytest.skip("needs a Python outside of /usr")
    with pytest.raises(InvalidArgument) as refused:
        await AsyncSandbox.create(fleet=fleet, mounts=mounts)
    assert refused.value.reason == reason
    assert why in refused.value.message


async def test_what_stands_in_a_mounts_place_in_a_kept_workspace_refuses_the_claim_and_loses_nothing(
    fleet: AsyncFleet,
) -> None:
    async with await AsyncSandbox.create(fleet=fleet, keep_workspace=True) as first:
        await first.commands.run("ln -s /etc app; echo kept > file", check=True)
        workspace = (await first.get_info()).workspace_id
    with pytest.raises(InvalidArgument, match="/workspace/app cannot be opened as a folder") as refused:
        await AsyncSandbox.create(fleet=fleet, workspace_id=workspace, mounts=["/app"])
    assert refused.value.reason == "InvalidClaim"
    async with await AsyncSandbox.create(fleet=fleet, workspace_id=workspace, mounts={"/app": "."}) as second:
        assert await second.files.read("/app/file") == "kept\n"


def test_sixteen_threads_use_one_sandbox(sync_sandbox: Sandbox) -> None:
    def work(number: int) -> tuple[str | None, str]:
        context = sync_sandbox.create_context(f"c{number}") if number < 4 else None
        text = sync_sandbox.run_code(f"{number} * 2", context=context).text
        return text, sync_sandbox.commands.run(["echo", str(number)]).stdout

    with ThreadPoolExecutor(16) as pool:
        done = list(pool.map(work, range(16)))
    assert done == [(str(number * 2), f"{number}\n") for number in range(16)]


async def test_the_sync_class_works_inside_a_running_loop(sync_sandbox: Sandbox) -> None:
    assert asyncio.get_running_loop().is_running()
    assert sync_sandbox.run_code("6 * 7").text == "42"


PROGRAM = """
import sys
from sandfleet import Sandbox

if len(sys.argv) > 1:
    with Sandbox.connect(sys.argv[1]) as sandbox:
        print(sandbox.run_code("x").text)
else:
    import subprocess
    with Sandbox.create() as sandbox:
        sandbox.run_code("x = 'from the first'")
        subprocess.run([sys.executable, __file__, sandbox.sandbox_id], check=True)
        assert sandbox.sandbox_id in [info.sandbox_id for info in Sandbox.list()]
        print(sandbox.run_code("x").ok)
"""


def test_a_second_process_connects_by_id_and_nothing_is_left_when_the_owner_ends(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    with tempfile.TemporaryDirectory(prefix="sf-", dir="/tmp") as base:
        environment = {**os.environ, "SANDFLEET_STATE": base, "SANDFLEET_POOL_SIZE": "1"}
        done = subprocess.run(
            [sys.executable, program], env=environment, capture_output=True, text=True, timeout=100, check=False
        )
        assert done.stdout == "'from the first'\nTrue\n", done.stderr
        assert list(Path(base).iterdir()) == []


def test_an_owner_that_is_killed_leaves_no_fleet(tmp_path: Path) -> None:
    program = "from sandfleet import Sandbox; s = Sandbox.create(); print(s.run_code('1').ok, flush=True); input()"
    with tempfile.TemporaryDirectory(prefix="sf-", dir="/tmp") as base:
        environment = {**os.environ, "SANDFLEET_STATE": base, "SANDFLEET_POOL_SIZE": "1"}
        owner = subprocess.Popen(
            [sys.executable, "-c", program], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert owner.stdout is not None
        assert owner.stdout.readline() == "True\n"
        (fleet,) = children(owner.pid)
        owner.kill()
        owner.communicate()
        while Path(f"/proc/{fleet}").exists() or list(Path(base).iterdir()):
            time.sleep(0.02)


def test_dev_serves_clients_with_its_address_until_ctrl_c() -> None:
    with tempfile.TemporaryDirectory(prefix="sf-", dir="/tmp") as base:
        command = [sys.executable, "-m", "sandfleet", "dev", "--pool-size", "1", "--json"]
        environment = {**os.environ, "SANDFLEET_STATE": base}
        serving = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        assert serving.stdout is not None
        address = json.loads(serving.stdout.readline())["address"]
        with Fleet.connect(address) as fleet, Sandbox.create(fleet=fleet) as sandbox:
            assert sandbox.run_code("6 * 7").text == "42"
        serving.send_signal(signal.SIGINT)
        assert serving.communicate(timeout=60) == ("", None)
        assert serving.returncode == 0
        assert list(Path(base).iterdir()) == []


def test_the_doctor_agrees_with_the_isolation_of_real_sandboxes(sync_sandbox: Sandbox) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sandfleet", "doctor", "--json"], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["isolation"] == sync_sandbox.get_info().isolation
