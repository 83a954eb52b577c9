"""Each test is in a lane, and the pure lane refuses programs, sockets and long computations."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.lanes import lane_of

ROOT = Path(__file__).parents[2]
PLUGIN = f"""
import os
import sys
sys.path[:0] = [{str(ROOT / "tests")!r}]
import support.lanes as lanes
lanes.lane = lambda item: "pure" if "pure" in item.path.name else lanes.lane_of(item.path.name, set())
lanes.SLOW, lanes.LIMIT = 0.2, 30.0 if os.environ.get("SLOW_IS_FINE") else 0.2
pytest_plugins = ["support.lanes"]
"""
PURE = {
    "starts a program": "import subprocess; subprocess.run(['true'])",
    "forks": "import os; os.fork()",
    "opens a socket": "import socket; socket.create_server(('127.0.0.1', 0))",
    "computes for long": "import time\n    while time.process_time() < 30 and sum(range(200_000)): pass",
}


@pytest.mark.parametrize(
    ("path", "marks", "lane"),
    [
        ("unit/client/test_a.py", set(), "pure"),
        ("transition/test_a.py", {"asyncio"}, "pure"),
        ("unit/test_a.py", {"process"}, "contract"),
        ("transition/joint/test_a.py", {"slow"}, "contract"),
        ("contract/executor/test_a.py", set(), "contract"),
        ("contract/test_a.py", {"smoke", "attack"}, "smoke"),
        ("contract/test_a.py", {"attack"}, "attacks"),
        ("contract/test_a.py", {"control"}, "attacks"),
        ("unit/test_a.py", {"attack"}, "pure"),
        ("cluster/test_a.py", {"scale"}, "cluster"),
        ("elsewhere/test_a.py", {"smoke"}, ""),
    ],
)
def test_a_test_has_the_lane_of_its_folder_and_marks(path: str, marks: set[str], lane: str) -> None:
    assert lane_of(path, marks) == lane


def run(folder: Path, name: str, body: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    (folder / "conftest.py").write_text(PLUGIN)
    (folder / name).write_text(f"def test_it():\n    {body}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), name]
    environment = {**os.environ, "HYPOTHESIS_PROFILE": "fast", **variables}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.process
@pytest.mark.parametrize("does", PURE)
def test_a_pure_test_that_has_an_effect_or_computes_for_long_fails(tmp_path: Path, does: str) -> None:
    done = run(tmp_path, "test_pure.py", PURE[does].replace("< 30", "< 2"))
    assert done.returncode == 1, done.stdout
    assert "cannot " in done.stdout or "of processor time" in done.stdout


@pytest.mark.process
def test_a_pure_test_without_an_effect_passes(tmp_path: Path) -> None:
    assert run(tmp_path, "test_pure.py", "assert sum(range(10)) == 45").returncode == 0


@pytest.mark.process
def test_a_slow_pure_test_is_named_at_the_end(tmp_path: Path) -> None:
    done = run(tmp_path, "test_pure.py", PURE["computes for long"].replace("< 30", "< 2"), SLOW_IS_FINE="1")
    assert done.returncode == 0, done.stdout
    assert re.search(r"slow for a pure test: \d\.\d s of processor time in test_pure.py::test_it", done.stdout)


@pytest.mark.process
def test_a_run_with_a_test_in_no_lane_ends_at_once(tmp_path: Path) -> None:
    done = run(tmp_path, "test_stray.py", "pass")
    assert done.returncode == 4
    assert "is in no lane" in done.stderr
