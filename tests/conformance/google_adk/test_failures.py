"""Sessions, files, errors of the code, and failures of the platform."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from google.adk.code_executors.code_execution_utils import CodeExecutionInput, CodeExecutionResult, File
from sandfleet import Sandbox
from sandfleet.errors import SandboxEnded
from sandfleet.integrations.google_adk import SandfleetCodeExecutor


@pytest.fixture
def executor() -> Iterator[SandfleetCodeExecutor]:
    made = SandfleetCodeExecutor(timeout_seconds=20, labels={"run": "adk"})
    yield made
    made.close()
    assert Sandbox.list("run=adk") == []


def run(executor: SandfleetCodeExecutor, code: str, session: str | None = "a", *files: File) -> CodeExecutionResult:
    return executor.execute_code(None, CodeExecutionInput(code, list(files), session))


def test_each_session_has_variables_of_its_own(executor: SandfleetCodeExecutor) -> None:
    run(executor, "x = 1")
    assert run(executor, "print(x)").stdout == "1\n"
    other = run(executor, "x", "b")
    assert other.exit_code == 1
    assert other.stderr.startswith("NameError: name 'x' is not defined\nTraceback")
    assert run(executor, "x", None).exit_code == 1


def test_calls_at_a_time_of_a_new_session_share_its_sandbox(executor: SandfleetCodeExecutor) -> None:
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: run(executor, "1"), range(8)))
    assert len(Sandbox.list("run=adk")) == 1


def test_files_go_in_and_pictures_come_out(executor: SandfleetCodeExecutor) -> None:
    code = "import PIL.Image; print(open('data.csv').read()); PIL.Image.new('RGB', (9, 9))"
    ended = run(executor, code, "a", File("data.csv", "a,b\n", "text/csv"))
    assert ended.stdout == "a,b\n\n"
    (picture,) = ended.output_files
    assert (picture.name, picture.mime_type, picture.content[1:4]) == ("picture-1.png", "image/png", b"PNG")


def test_code_that_takes_too_long_is_told_to_the_model() -> None:
    executor = SandfleetCodeExecutor(timeout_seconds=1)
    assert "1 s" in run(executor, "while True: pass").stderr
    executor.close()


def test_a_session_whose_sandbox_has_ended_is_told_so_once(executor: SandfleetCodeExecutor) -> None:
    run(executor, "x = 1")
    Sandbox.connect(Sandbox.list("run=adk")[0].sandbox_id).kill()
    with pytest.raises(SandboxEnded):
        run(executor, "x")
    assert run(executor, "print(1)").stdout == "1\n"
