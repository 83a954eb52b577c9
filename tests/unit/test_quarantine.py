"""A test in quarantine runs again when it fails; any other fails at once."""

import ast
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import quarantine

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
CONFTEST = """
from support import quarantine

quarantine.QUARANTINE |= {name: ("test_it.py", "of a race") for name in ("test_sometimes", "test_never")}
pytest_plugins = ["support.quarantine"]
"""
TESTS = """
import pytest
from pathlib import Path

ran = Path(__file__).with_name("ran")


@pytest.fixture
def fixture():
    yield
    with ran.open("a") as file:
        file.write("teardown ")


def note(name):
    with ran.open("a") as file:
        file.write(f"{name} ")
    return ran.read_text().split().count(name)


@pytest.mark.parametrize("n", [1])
def test_sometimes(fixture, n):
    assert note("sometimes") == 2


def test_never():
    note("never")
    assert 0


def test_other():
    assert note("other") == 2
"""


def run(tmp_path: Path, *side_by_side: str, **environment: str) -> str:
    """What pytest says of the tests above."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        *side_by_side,
    ]
    ran = subprocess.run(
        [*command, str(tmp_path)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT / "tests"), "PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.stdout + ran.stderr


@pytest.mark.parametrize("side_by_side", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_only_a_test_in_quarantine_runs_again(tmp_path: Path, side_by_side: tuple[str, ...]) -> None:
    said = run(tmp_path, *side_by_side)
    assert "2 failed, 1 passed" in said, said
    assert "failed, and runs again (of a race)" in said
    assert sorted((tmp_path / "ran").read_text().split()) == [
        *["never"] * quarantine.ATTEMPTS,
        "other",
        *["sometimes"] * 2,
        *["teardown"] * 2,
    ]


@pytest.mark.parametrize("side_by_side", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_where_each_has_a_second_chance_those_that_needed_it_are_named(
    tmp_path: Path, side_by_side: tuple[str, ...]
) -> None:
    said = run(tmp_path, *side_by_side, SANDFLEET_SECOND_CHANCE="1")
    assert "1 failed, 2 passed" in said, said
    assert re.search(r"test_it.py::test_other\n.*\(second chance; this process stood still for \d+\.\d s", said), said
    assert (tmp_path / "ran").read_text().split().count("other") == 2


@pytest.mark.parametrize("name", quarantine.QUARANTINE)
def test_the_list_names_tests_that_exist(name: str) -> None:
    file, why = quarantine.QUARANTINE[name]
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    assert name in {node.name for node in ast.parse((ROOT / file).read_text()).body if isinstance(node, functions)}
    assert why
    assert quarantine.reason(f"{file}::{name}[a-b]") == why
    assert not quarantine.reason(f"tests/elsewhere.py::{name}")


def test_programs_that_tests_start_take_ctrl_c() -> None:
    said = subprocess.run(
        [sys.executable, "-c", "import signal; print(signal.getsignal(signal.SIGINT).__name__)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == "default_int_handler\n"


def test_they_do_so_where_the_shell_ignores_it() -> None:
    """As for a job that a script starts with &."""
    test = f"{__file__}::{test_programs_that_tests_start_take_ctrl_c.__name__}"
    # A child process inherits an ignored signal.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "1", test],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    assert "1 passed" in ran.stdout, ran.stdout + ran.stderr
