"""Calls by id, short tracebacks, polls and terminals of another client, on real sandboxes of this machine."""

import secrets
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandfleet import ExecutionFailed, FileEventType, FileNotFound, Fleet, Sandbox, SandboxEnded
from sandfleet._fleets.embedded import Options, Process
from support.client.contexts import DEFAULTS


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    # A short name: the paths of sockets below it are limited.
    with tempfile.TemporaryDirectory(prefix="sf-", dir="/tmp") as base:
        process = Process(Options(pool_size=1), state_dir=Path(base) / f"f-{secrets.token_hex(3)}")
        with Fleet.connect(process.address) as connected:
            yield connected
        process.stop()


@pytest.fixture(scope="module")
def sandbox(fleet: Fleet) -> Iterator[Sandbox]:
    with Sandbox.create(fleet=fleet) as made:
        yield made


@pytest.mark.smoke
def test_the_class_describes_and_kills_by_id(fleet: Fleet) -> None:
    made = Sandbox.create(fleet=fleet)
    assert repr(made) == f"Sandbox({made.sandbox_id}, open)"
    info = Sandbox.get_info(made.sandbox_id, fleet=fleet)
    assert info == made.get_info()
    assert info.limits.memory_bytes
    assert Sandbox.kill(made.sandbox_id, fleet=fleet)
    assert not Sandbox.kill(made.sandbox_id, fleet=fleet)
    with pytest.raises(SandboxEnded):
        Sandbox.get_info(made.sandbox_id, fleet=fleet)
    made.close()


def lines_of(error: BaseException) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


@pytest.mark.smoke
def test_a_traceback_of_the_sync_client_has_the_callers_line_and_no_machinery(sandbox: Sandbox) -> None:
    with pytest.raises(FileNotFound) as raised:
        sandbox.files.read("missing")
    assert lines_of(raised.value) == [
        "test_a_traceback_of_the_sync_client_has_the_callers_line_and_no_machinery",
        "read",
        "run",
    ]
    assert len("".join(traceback.format_exception(raised.value)).splitlines()) < 12


@pytest.mark.smoke
def test_a_traceback_of_a_callback_shows_the_callbacks_own_lines(sandbox: Sandbox) -> None:
    def refuse(_: str) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError) as raised:
        sandbox.run_code("print(1)", on_stdout=refuse)
    assert lines_of(raised.value)[-1] == "refuse"
    assert not [frame for frame in traceback.extract_tb(raised.value.__traceback__) if "asyncio" in frame.filename]


@pytest.mark.smoke
def test_a_failed_cell_prints_its_traceback_and_raises_on_request(sandbox: Sandbox) -> None:
    execution = sandbox.run_code("print('before')\n1 / 0")
    assert str(execution).startswith("before\n")
    assert str(execution).endswith("ZeroDivisionError: division by zero")
    assert "<cell" in str(execution.error)
    with pytest.raises(ExecutionFailed, match="the code raised ZeroDivisionError: division by zero"):
        execution.raise_for_error()


@pytest.mark.smoke
def test_default_contexts_are_listed_before_their_first_cells(fleet: Fleet) -> None:
    with Sandbox.create(fleet=fleet) as fresh:
        assert repr(fresh.list_contexts()[0]) == "Context(default, python, idle)"
        assert tuple(each.context_id for each in fresh.list_contexts()) == DEFAULTS
        fresh.create_context("mine")
        assert {each.context_id for each in fresh.list_contexts()} == {*DEFAULTS, "mine"}
        fresh.run_code("1")
        begun = {each.context_id: each.generation for each in fresh.list_contexts()}
        assert {begun[each] for each in DEFAULTS[1:]} <= {0}
        assert begun["default"] == 1


@pytest.mark.smoke
def test_commands_have_process_ids_and_end_by_either_id(sandbox: Sandbox) -> None:
    for by_pid in (False, True):
        handle = sandbox.commands.run("echo $$; exec sleep 1000", background=True)
        pid = int(next(iter(handle)).text)
        (running,) = sandbox.commands.list()
        assert (running.execution_id, running.pid) == (handle.execution_id, pid)
        given = pid if by_pid else handle.execution_id
        assert sandbox.commands.kill(given)
        assert handle.wait().signal == "SIGKILL"
        assert not sandbox.commands.kill(given)


@pytest.mark.smoke
def test_a_terminal_is_used_from_another_client_in_a_new_size(fleet: Fleet, sandbox: Sandbox) -> None:
    made = sandbox.pty.create(command="stty size; read line; stty size; echo typed $line")
    assert b"24 80" in next(iter(made))
    with Sandbox.connect(sandbox.sandbox_id, fleet=fleet) as other:
        joined = other.pty.connect(made.execution_id, rows=30, cols=100)
        assert "running" in repr(joined)
        joined.send("hello\r")
        shown = b"".join(joined)
    assert b"30 100" in shown
    assert b"typed hello" in shown


@pytest.mark.smoke
def test_a_watch_is_polled(sandbox: Sandbox) -> None:
    watch = sandbox.files.watch_dir(".")
    assert watch.get_new_events() == []
    sandbox.files.write("polled", "x")
    events = watch.get_new_events(timeout=20)
    assert "polled" in {Path(event.path).name for event in events}
    assert events[0].type is FileEventType.CREATED
    watch.stop()
    assert "stopped" in repr(watch)
    while watch.get_new_events():
        pass
