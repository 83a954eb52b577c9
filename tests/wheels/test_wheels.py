"""The built wheels, installed into empty environments, do what README says (make wheels-test)."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.pages import blocks_of, broken_promises

ROOT = Path(__file__).parents[2]
FOLDERS = ("proto", "executor-image", "operator", "agent-client", ".")
# What README's screen imports in its sandbox.
USED = ("pandas", "matplotlib")
# A short path, since paths of sockets are limited.
STATE = Path(f"/tmp/sf-{os.getpid()}")


def ran(*command: object, **options: object) -> "subprocess.CompletedProcess[str]":
    ended = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **options)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    for part in FOLDERS:
        ran(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT / part)
    assert len(list(folder.iterdir())) == len(FOLDERS)
    return folder


class Project:
    """An empty folder with an environment of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._uv = ran(ROOT / "scripts/uv.sh").stdout.strip()
        self.bin = folder / ".venv/bin"
        ran(self._uv, "venv", "--quiet", "--python", sys.executable, folder / ".venv")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SANDFLEET_", "PYTHON"))}
        self.environment = kept | {
            "VIRTUAL_ENV": str(folder / ".venv"),
            "UV_SYSTEM_CERTS": "1",
            "SANDFLEET_STATE": str(STATE),
        }

    def installs(self, *wanted: object) -> None:
        options = ("--quiet", "--compile-bytecode", "--constraint", ROOT / "requirements.lock")
        ran(self._uv, "pip", "install", *options, *wanted, env=self.environment, cwd=self.folder)

    def runs(self, program: str, *words: object) -> str:
        return ran(self.bin / program, *words, env=self.environment, cwd=self.folder).stdout


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    yield Project(tmp_path)
    # Each fleet has removed its own folder.
    with suppress(FileNotFoundError):
        STATE.rmdir()


def test_the_wheels_of_the_parts_run_the_screen_of_the_readme(wheels: Path, project: Project) -> None:
    project.installs("--find-links", wheels, "sandfleet[local]", *USED)
    screen = next(block.text for block in blocks_of("README.md") if block.language == "python")
    (project.folder / "screen.py").write_text(screen)
    said = project.runs("python", "screen.py")
    assert len(broken_promises(screen, "")) >= 3
    assert broken_promises(screen, said) == []
    assert (project.folder / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert project.runs("sandfleet", "run", "-c", "import pandas; pandas.DataFrame({'a': [1]}).a[0]") == "np.int64(1)\n"


def test_the_wheel_of_the_whole_is_all_that_a_clone_gives(wheels: Path, project: Project) -> None:
    project.installs(*wheels.glob("sandfleet_workspace-*.whl"))
    assert project.runs("sandfleet", "run", "-c", "print(6 * 7)") == "42\n"
    assert project.runs("sandfleet", "--version").startswith("sandfleet ")
    # The session's own pip is a program, and stays one in an installation.
    said = project.runs("sandfleet", "run", "-c", "!pip install no-such-package 2>&1")
    assert "this session has no network" in said


def test_the_client_alone_says_what_is_missing(wheels: Path, project: Project) -> None:
    project.installs("--find-links", wheels, "sandfleet")
    program = "from sandfleet import Sandbox, UnavailableError\ntry: Sandbox.create()\nexcept UnavailableError as error: print(error)"
    assert "install sandfleet[local]" in project.runs("python", "-c", program)
