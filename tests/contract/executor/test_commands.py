"""Commands: how they are started, fed, heard and ended."""

import asyncio
import hashlib
import signal

import pytest
from contract.executor.harness import until
from contract.executor.service_tools import back_to
from sandfleet import Outcome
from sandfleet.errors import InvalidArgument, NotFoundError, PreconditionFailed

pytestmark = pytest.mark.asyncio(loop_scope="session")

MIB = 1 << 20


async def test_a_caller_that_gives_up_waiting_for_output_loses_none_of_it(sandbox):
    handle = await sandbox.commands.run("read go; echo first; echo second >&2", background=True, stdin=True)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await anext(handle)
    await handle.send_stdin("go\n")
    result = await handle.wait()
    assert (result.stdout, result.stderr) == ("first\n", "second\n")


@pytest.mark.smoke
async def test_a_line_goes_through_a_shell_and_arguments_do_not(sandbox):
    assert (await sandbox.commands.run("echo $((6 * 7)) | tr 4 5")).stdout == "52\n"
    assert (await sandbox.commands.run(["echo", "$HOME", "a  b", "", "*"])).stdout == "$HOME a  b  *\n"


@pytest.mark.smoke
async def test_arguments_are_bytes_and_come_as_they_are(sandbox):
    result = await sandbox.commands.run(["printf", "%s", b"\xff\xfe\n\t'\""])
    assert result.stdout_bytes == b"\xff\xfe\n\t'\""


@pytest.mark.smoke
async def test_a_command_starts_in_the_workspace_or_where_it_is_told(sandbox):
    await sandbox.files.make_dir("deep/er")
    found = [(await sandbox.commands.run("pwd", cwd=cwd)).stdout for cwd in ("", "deep/er", "/tmp")]
    assert found == ["/workspace\n", "/workspace/deep/er\n", "/tmp\n"]


async def test_a_command_has_its_own_environment_and_nothing_of_the_executor_s(sandbox, executor):
    result = await sandbox.commands.run("env", envs={"COLOUR": "blue", "TZ": "CET"})
    names = dict(line.split("=", 1) for line in result.stdout.splitlines())
    assert (names["COLOUR"], names["TZ"], names["HOME"], names["LC_ALL"]) == ("blue", "CET", "/workspace", "C.UTF-8")
    assert executor.secret not in result.stdout


@pytest.mark.smoke
async def test_standard_input_is_closed_unless_asked_for(sandbox):
    assert (await sandbox.commands.run("cat; echo end")).stdout == "end\n"
    assert (await sandbox.commands.run("cat", stdin="é\n")).stdout == "é\n"


async def test_50_mib_go_through_standard_input_and_output_unharmed(sandbox):
    data = hashlib.sha256(b"seed").digest() * (50 * MIB // 32)
    result = await sandbox.commands.run(
        "tee /tmp/copy | sha256sum; stat -c %s /tmp/copy; rm /tmp/copy", stdin=data, timeout=100
    )
    assert result.stdout.split() == [hashlib.sha256(data).hexdigest(), "-", str(len(data))]
    result = await sandbox.commands.run("cat", stdin=data, output_limit=64 * MIB, timeout=100)
    assert hashlib.sha256(result.stdout_bytes).digest() == hashlib.sha256(data).digest()


async def test_streams_are_apart_or_merged_in_the_order_of_writing(sandbox):
    line = "for i in 1 2 3; do echo out$i; echo err$i >&2; done"
    apart = await sandbox.commands.run(line)
    assert (apart.stdout, apart.stderr) == ("out1\nout2\nout3\n", "err1\nerr2\nerr3\n")
    merged = await sandbox.commands.run(line, merge_output=True)
    assert (merged.stdout, merged.stderr) == ("out1\nerr1\nout2\nerr2\nout3\nerr3\n", "")


@pytest.mark.parametrize(
    ("command", "code", "outcome", "reason", "name"),
    [
        ("exit 0", 0, "ok", "", ""),
        ("exit 1", 1, "error", "ExitCode", ""),
        ("exit 255", 255, "error", "ExitCode", ""),
        ("no-such-program", 127, "error", "NotFound", ""),
        (["no-such-program"], 127, "error", "NotFound", ""),
        (["/no/such/program"], 127, "error", "NotFound", ""),
        ("/etc/passwd", 126, "error", "NotExecutable", ""),
        (["/etc/passwd"], 126, "error", "NotExecutable", ""),
        (["/workspace"], 126, "error", "NotExecutable", ""),
        ("kill -TERM $$", 143, "killed", "Signal", "SIGTERM"),
        ("kill -KILL $$", 137, "killed", "Signal", "SIGKILL"),
        ("kill -SEGV $$", 139, "killed", "Signal", "SIGSEGV"),
        (["python3", "-c", "import os; os.abort()"], 134, "killed", "Signal", "SIGABRT"),
    ],
)
async def test_exit_codes_are_a_shell_s(sandbox, command, code, outcome, reason, name):
    result = await sandbox.commands.run(command)
    assert (result.exit_code, result.outcome, result.reason, result.signal) == (code, outcome, reason, name)
    assert result.blame == (None if outcome == "ok" else "code")


@pytest.mark.smoke
async def test_a_program_that_cannot_be_started_says_why_on_standard_error(sandbox):
    said = (await sandbox.commands.run(["no-such-program"])).stderr
    assert said == "cannot start the command: No such file or directory: no-such-program\n"
    assert "Permission denied" in (await sandbox.commands.run(["/etc/passwd"])).stderr


@pytest.mark.smoke
async def test_a_program_that_is_no_program_for_the_kernel_is_not_executable(sandbox):
    await sandbox.files.write("garbage", b"\x7fELFgarbage", mode=0o755)
    assert (await sandbox.commands.run(["/workspace/garbage"])).exit_code == 126


async def test_a_working_directory_that_is_not_there_is_said(sandbox):
    await sandbox.files.write("a-file", "")
    for cwd, why in (("not/there", "No such file"), ("a-file", "Not a directory")):
        result = await sandbox.commands.run("true", cwd=cwd)
        assert (result.outcome, result.reason, result.exit_code) == (Outcome.ERROR, "WorkingDirectoryGone", 126)
        assert result.stderr.startswith(f"cannot start the command in its working directory: {why}")
        assert cwd in result.stderr


@pytest.mark.parametrize("line", ["", "\n", "  "])
async def test_an_empty_line_runs_and_does_nothing(sandbox, line):
    result = await sandbox.commands.run(line)
    assert (result.ok, result.stdout, result.stderr) == (True, "", "")


@pytest.mark.parametrize(
    "options",
    [
        {"cmd": ["echo", b"a\0b"]},
        {"cmd": "echo a\0b"},
        {"cmd": []},
        {"cmd": [""]},
        {"cmd": "true", "cwd": "x" * 5000},
        {"cmd": "true", "cwd": "a\0b"},
        {"cmd": "true", "envs": {"1A": "x"}},
        {"cmd": "true", "envs": {"A": "x\0"}},
        {"cmd": "true", "envs": {f"A{n}": "x" * 1000 for n in range(300)}},
        {"cmd": ["echo", "x" * (2 * MIB)]},
        {"cmd": "true", "timeout": -1},
        {"cmd": "true", "execution_id": "../x"},
    ],
    ids=lambda options: str(options)[:40],
)
async def test_a_command_that_cannot_be_is_refused(sandbox, options):
    with pytest.raises(InvalidArgument):
        await sandbox.commands.run(options.pop("cmd"), **options)
    assert (await sandbox.commands.run("echo on")).stdout == "on\n"


async def test_1_mib_of_arguments_and_of_shell_line_is_taken(sandbox):
    words = ["x" * 100_000] * 10
    assert (await sandbox.commands.run(["printf", "%s", *words], output_limit=4 * MIB)).stdout == "".join(words)
    line = f"printf %s '{'y' * 1_000_000}' | wc -c"
    assert (await sandbox.commands.run(line)).stdout == "1000000\n"


async def test_a_single_argument_that_linux_does_not_take_is_an_exit_code(sandbox):
    result = await sandbox.commands.run(["echo", "x" * 200_000])
    assert (result.exit_code, result.outcome) == (126, Outcome.ERROR)
    assert "Argument list too long" in result.stderr
    assert "131071 bytes in one argument" in result.stderr


@pytest.mark.parametrize(
    ("count", "size"), [(16, 64 << 10), (1, (128 << 10) - 1), (14, (128 << 10) - 1), (1000, 1)], ids=str
)
async def test_arguments_are_taken_as_far_as_the_kernel_takes_them(sandbox, count, size):
    program = "import sys; print(len(sys.argv) - 1, {len(word) for word in sys.argv[1:]})"
    result = await sandbox.commands.run(["python3", "-c", program, *["x" * size] * count])
    assert result.stdout == f"{count} {{{size}}}\n"


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda s: s.commands.run(["true", *["x" * (64 << 10)] * 32]), "larger than 2097152 bytes"),
        (lambda s: s.commands.run("true #" + "x" * (2 << 20)), "larger than 2097152 bytes"),
        (lambda s: s.commands.run("true", envs={"A": "x" * (256 << 10)}), "larger than 262144 bytes"),
        (lambda s: s.run_code("#" + "x" * (8 << 20)), "larger than 8388608 bytes"),
    ],
)
async def test_what_is_above_a_limit_is_refused_by_naming_it(sandbox, call, why):
    with pytest.raises(InvalidArgument, match=why):
        await call(sandbox)


@pytest.mark.smoke
async def test_output_that_is_no_utf_8_is_kept_as_bytes(sandbox):
    result = await sandbox.commands.run(r"printf 'a\377\376\n\303'")
    assert (result.stdout_bytes, result.stdout) == (b"a\xff\xfe\n\xc3", "a\ufffd\ufffd\n\ufffd")


@pytest.mark.smoke
async def test_a_background_command_is_fed_heard_and_closed(sandbox):
    handle = await sandbox.commands.run("while read x; do echo got $x; done; echo over", background=True, stdin=True)
    await handle.send_stdin("one\n")
    assert (await anext(handle)).text == "got one\n"
    await handle.send_stdin(b"two\n")
    await handle.close_stdin()
    result = await handle.wait()
    assert (result.outcome, result.stdout) == (Outcome.OK, "got one\ngot two\nover\n")


async def test_a_command_that_closed_its_input_refuses_more_of_it(sandbox):
    handle = await sandbox.commands.run("exec <&-; echo closed; sleep 100", background=True, stdin=True)
    await anext(handle)
    with pytest.raises(PreconditionFailed, match="closed"):
        await handle.send_stdin(b"x" * (2 * MIB))
    assert await handle.kill()
    await handle.wait()
    with pytest.raises(NotFoundError):
        await handle.send_stdin("x")


@pytest.mark.smoke
async def test_a_command_that_never_reads_does_not_keep_its_deadline_from_coming(sandbox):
    result = await sandbox.commands.run("sleep 1000", stdin=b"x" * (4 * MIB), timeout=0.5)
    assert result.outcome is Outcome.TIMEOUT


async def test_a_signal_reaches_the_program_and_what_it_started(sandbox):
    line = "trap 'echo caught; exit 7' USR1; echo ready; while :; do sleep 0.05; done"
    handle = await sandbox.commands.run(line, background=True)
    await anext(handle)
    assert await handle.signal(signal.SIGUSR1)
    result = await handle.wait()
    assert (result.exit_code, result.stdout.split()[:2]) == (7, ["ready", "caught"])
    assert await handle.signal(signal.SIGUSR1) is False


@pytest.mark.smoke
async def test_a_signal_that_does_not_exist_is_refused(sandbox):
    handle = await sandbox.commands.run("sleep 1000", background=True)
    with pytest.raises(InvalidArgument):
        await handle.signal(99)
    await handle.kill()
    assert (await handle.wait()).outcome is Outcome.INTERRUPTED


async def test_killing_a_command_ends_everything_below_it(sandbox):
    before = (await sandbox.usage()).processes
    handle = await sandbox.commands.run("trap '' TERM INT; setsid sleep 1000 & echo up; wait", background=True)
    await anext(handle)
    [listed] = await sandbox.commands.list()
    assert (listed.execution_id, listed.argv[0]) == (handle.execution_id, "/bin/bash")
    assert await handle.kill()
    result = await handle.wait()
    assert (result.outcome, result.blame, result.exit_code, result.signal) == ("interrupted", "policy", 137, "SIGKILL")
    assert await sandbox.commands.list() == ()
    await until(lambda: back_to(sandbox, before))


async def test_commands_run_beside_each_other_and_beside_cells(sandbox):
    both = await asyncio.gather(
        sandbox.commands.run("touch /tmp/x; until test -e /tmp/y; do sleep 0.02; done", timeout=60),
        sandbox.commands.run("touch /tmp/y; until test -e /tmp/z; do sleep 0.02; done", timeout=60),
        sandbox.run_code(
            "import os, time\nopen('/tmp/z', 'w')\nwhile not os.path.exists('/tmp/x'): time.sleep(0.02)", timeout=60
        ),
    )
    assert [each.outcome for each in both] == [Outcome.OK] * 3


@pytest.mark.smoke
async def test_an_execution_id_is_used_once_by_cells_and_commands_together(sandbox):
    await sandbox.run_code("1", execution_id="shared")
    with pytest.raises(Exception, match="used before"):
        await sandbox.commands.run("true", execution_id="shared")


@pytest.mark.smoke
async def test_processor_time_and_memory_of_a_command_are_counted(sandbox):
    line = "python3 -c 'x = b\"1\" * (200 << 20); sum(x[::8])'"
    usage = (await sandbox.commands.run(line, timeout=60)).usage
    assert usage.cpu_seconds > 0.1
    assert usage.peak_memory_bytes > 200 * MIB


async def test_commands_that_end_at_once_lose_nothing(sandbox):
    results = await asyncio.gather(*(sandbox.commands.run(f"printf {n}; printf e{n} >&2; exit {n}") for n in range(20)))
    assert [(each.stdout, each.stderr, each.exit_code) for each in results] == [
        (f"{n}", f"e{n}", n) for n in range(20)
    ], results


async def test_a_pipe_that_a_daemon_holds_open_does_not_hold_the_command(sandbox):
    handle = await sandbox.commands.run("setsid sleep 1000 & echo ended", background=True, timeout=60)
    result = await until(handle.wait)
    assert (result.outcome, result.stdout) == (Outcome.OK, "ended\n")
