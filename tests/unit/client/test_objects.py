"""How objects show themselves, and the shapes of calls."""

import asyncio
import copy
import pickle
import re
import traceback
from datetime import UTC, datetime

import pytest
import sandfleet
from sandfleet import (
    AsyncSandbox,
    CommandFailed,
    CommandResult,
    Execution,
    ExecutionError,
    ExecutionFailed,
    Outcome,
    Result,
    SandboxEnded,
    SandfleetError,
    errors,
)
from sandfleet._calls import Opening
from sandfleet._fleets.fleet import AsyncFleet
from sandfleet.testing import FakeFleet, finished
from sandfleet.values import Context, Environment, Logs, RunningCommand
from sandfleet.values.files import FileInfo, FileType
from sandfleet.values.sandbox import SandboxInfo
from sandfleet.values.suspension import KeptContext, Snapshot, Suspension
from sandfleet.values.usage import SandboxUsage

TRACEBACK = "Traceback (most recent call last):\n  <cell 1>, line 1\nValueError: no"
FAILED = Execution(
    "e", Outcome.ERROR, reason="Raised", logs=Logs("before\n"), error=ExecutionError("ValueError", "no", TRACEBACK)
)
SHOWN = [
    (Execution("e", Outcome.OK, results=(Result({"text/plain": "42"}, is_main_result=True),)), "Execution(e, ok, 42)", "42"),
    (Execution("e", Outcome.OK), "Execution(e, ok)", "Execution(e, ok)"),
    (FAILED, "Execution(e, error, ValueError: no)", f"before\n{TRACEBACK}"),
    (FAILED.error, "ExecutionError(ValueError: no)", TRACEBACK),
    (ExecutionError("KeyboardInterrupt", ""), "ExecutionError(KeyboardInterrupt)", "KeyboardInterrupt"),
    (CommandResult("c", Outcome.OK, stdout="hi\n"), "CommandResult(c, ok, exit code 0, hi)", "hi"),
    (
        CommandResult("c", Outcome.ERROR, 3, stderr="bad\n", message="It failed."),
        "CommandResult(c, error, exit code 3, bad)",
        "bad\nerror, exit code 3: It failed.",
    ),
    (Context("default", "python", "idle", 1, 2), "Context(default, python, idle)", None),
    (
        RunningCommand("c", ("sleep", "5"), datetime.now(UTC), pid=7),
        "RunningCommand(c, process 7, sleep 5)",
        None,
    ),
    (
        SandboxEnded("cannot go on: it ended", reason="Killed", subject="sb-1"),
        "SandboxEnded('cannot go on: it ended', reason='Killed', subject='sb-1')",
        "cannot go on: it ended",
    ),
    (SandfleetError("cannot"), "SandfleetError('cannot')", "cannot"),
]  # fmt: skip


@pytest.mark.parametrize(("shown", "as_repr", "printed"), SHOWN)
def test_a_repr_names_id_and_state_and_a_print_is_readable(shown: object, as_repr: str, printed: str | None) -> None:
    assert (repr(shown), str(shown)) == (as_repr, printed or as_repr)


def test_raise_for_error_returns_what_is_ok_and_raises_the_rest() -> None:
    fine = Execution("e", Outcome.OK)
    assert fine.raise_for_error() is fine
    with pytest.raises(ExecutionFailed, match="cannot go on: the code raised ValueError: no") as raised:
        FAILED.raise_for_error()
    assert (raised.value.execution, raised.value.reason) == (FAILED, "Raised")
    assert "<cell 1>, line 1" in "".join(traceback.format_exception(raised.value))
    with pytest.raises(ExecutionFailed, match=r"ended with the outcome timeout: Too long\."):
        Execution("e", Outcome.TIMEOUT, message="Too long.").raise_for_error()
    with pytest.raises(CommandFailed, match="exit code 3"):
        CommandResult("c", Outcome.ERROR, 3).raise_for_error()


@pytest.mark.parametrize("again", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_an_error_of_an_execution_survives_a_process_pool(again) -> None:
    with pytest.raises(ExecutionFailed) as raised:
        FAILED.raise_for_error()
    assert again(raised.value).execution == FAILED


def test_every_documented_error_is_importable_from_the_package() -> None:
    documented = set(re.findall(r"^[│ ]*[├└]── (\w+)", errors.__doc__, re.MULTILINE)) | {"SandfleetError"}
    raised = (one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.SandfleetError))
    assert documented == {one.__name__ for one in raised}
    assert documented <= set(sandfleet.__all__)
    assert all(getattr(sandfleet, name) is getattr(errors, name) for name in documented)


async def test_a_sandbox_can_be_awaited_entered_and_made_in_a_task() -> None:
    async with FakeFleet() as fake, AsyncFleet.connect(fake.address) as fleet:
        async with AsyncSandbox.create(fleet=fleet) as sandbox:
            assert repr(sandbox) == "AsyncSandbox(s-1, open)"
        assert repr(sandbox) == "AsyncSandbox(s-1, ended: Killed)"
        fake.ended = False
        async with AsyncSandbox.connect("s-1", fleet=fleet) as connected:
            assert connected.sandbox_id == "s-1"
        assert repr(connected) == "AsyncSandbox(s-1, closed)"
        made = await asyncio.create_task(AsyncSandbox.create(fleet=fleet))
        (other,) = await asyncio.gather(AsyncSandbox.create(fleet=fleet))
        assert repr(fleet) == f"AsyncFleet({fake.address})"
        await made.close()
        await other.close()


async def test_what_is_opened_gets_the_exception_of_its_block() -> None:
    seen: list[object] = []

    class Door:
        async def __aenter__(self):
            return self

        async def __aexit__(self, kind, error, trace):
            seen.append(kind)

    async def opened():
        return Door()

    with pytest.raises(LookupError):
        async with Opening(opened()):
            raise LookupError
    assert seen == [LookupError]


async def test_the_class_kills_and_describes_by_id() -> None:
    async with FakeFleet() as fake, AsyncFleet.connect(fake.address) as fleet:
        assert (await AsyncSandbox.get_info("s-1", fleet=fleet)).sandbox_id == "s-1"
        assert await AsyncSandbox.kill("s-1", fleet=fleet)
        assert not await AsyncSandbox.kill("s-1", fleet=fleet)
        with pytest.raises(SandboxEnded):
            await AsyncSandbox.get_info("s-1", fleet=fleet)


async def test_a_handle_says_whether_its_command_runs() -> None:
    async with FakeFleet() as fake, AsyncFleet.connect(fake.address) as fleet:
        fake.answer("cmd", finished())
        async with AsyncSandbox.create(fleet=fleet) as sandbox:
            handle = await sandbox.commands.run("cmd", background=True, execution_id="mine")
            assert repr(handle) == "AsyncCommandHandle(mine, running)"
            await handle.wait()
            assert repr(handle) == "AsyncCommandHandle(mine, ok)"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (FileInfo("/workspace/a.csv", FileType.FILE, 1234, 0o644, None), "FileInfo(/workspace/a.csv, file, 1,234 bytes)"),
        (SandboxInfo("box", state="claimed", template="python"), "SandboxInfo(box, claimed, python, isolation unknown)"),
        (Snapshot("s1", "before", "box", entries=4), "Snapshot(s1, before, sandbox box, 4 entries, 0 bytes)"),
        (SandboxUsage(5 << 20, 0, 2, 0.0, 0, cpus=2.0), "SandboxUsage(5 MiB now, 0 MiB at most, 0.00 s of 2 CPUs, 2 processes, 0 executions)"),
        (Environment("3.11.7", "Linux", {"python": "3.11.7", "bash": "5"}), "Environment(Python 3.11.7, python, bash, 0 packages)"),
        (Suspension("box", contexts=(KeptContext("default", "python", 3),)), "Suspension(box, default: 3 variables)"),
    ],
)  # fmt: skip
def test_values_show_in_one_line_what_they_are(value: object, shown: str) -> None:
    assert repr(value) == shown


async def test_a_call_that_was_not_awaited_says_so() -> None:
    opening = AsyncSandbox.create()
    with pytest.raises(AttributeError, match="cannot use 'run_code' of a call that was not awaited: write `await …`"):
        opening.run_code  # type: ignore[attr-defined]  # noqa: B018  the mistake itself
    opening.close()
