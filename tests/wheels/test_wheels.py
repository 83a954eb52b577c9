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
DISTRIBUTIONS = 5
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
    ran("make", "-s", "wheels", f"DIST={folder}", cwd=ROOT)
    assert len(list(folder.glob("*.whl"))) == DISTRIBUTIONS
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

    def has_pip(self) -> None:
        """The environment as `python -m venv` makes it."""
        ran(sys.executable, "-m", "venv", "--clear", self.folder / ".venv")

    def installs(self, *wanted: object) -> None:
        ran(self._uv, "pip", "install", "--quiet", "--compile-bytecode", *wanted, env=self.environment, cwd=self.folder)

    def runs(self, program: str, *words: object) -> str:
        return ran(self.bin / program, *words, env=self.environment, cwd=self.folder).stdout


def options(wheels: Path) -> tuple[object, ...]:
    """As README says, with the versions that were tested."""
    return "--find-links", wheels, "--constraint", wheels / "constraints.txt"


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    yield Project(tmp_path)
    # Each fleet has removed its own folder.
    with suppress(FileNotFoundError):
        STATE.rmdir()


@pytest.mark.parametrize("distribution", ["sandfleet[local]", "sandfleet-client[local]"])
def test_the_wheels_run_the_screen_of_the_readme(wheels: Path, project: Project, distribution: str) -> None:
    project.installs(*options(wheels), distribution, *USED)
    screen = next(block.text for block in blocks_of("README.md") if block.language == "python")
    (project.folder / "screen.py").write_text(screen)
    said = project.runs("python", "screen.py")
    assert len(broken_promises(screen, "")) >= 3
    assert broken_promises(screen, said) == [], said
    assert (project.folder / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert project.runs("sandfleet", "run", "-c", "import pandas; pandas.DataFrame({'a': [1]}).a[0]") == "np.int64(1)\n"


@pytest.mark.timeout(600)
def test_pip_alone_installs_the_clone(project: Project) -> None:
    """Not editable, with no other help: as README says it."""
    project.has_pip()
    project.runs("pip", "install", "--quiet", "--disable-pip-version-check", ROOT)
    assert project.runs("sandfleet", "run", "-c", "print(6 * 7)") == "42\n"
    assert project.runs("sandfleet", "--version").startswith("sandfleet ")
    assert str(project.folder) in project.runs("python", "-c", "import sandfleet_operator as o; print(o.__file__)")
    # Extras that pages name are in it, and no package of another is looked for.
    project.runs("pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "sandfleet[mcp,jupyter]")


def test_the_client_alone_says_what_is_missing(wheels: Path, project: Project) -> None:
    project.installs(*options(wheels), "sandfleet-client")
    program = "from sandfleet import Sandbox, UnavailableError\ntry: Sandbox.create()\nexcept UnavailableError as error: print(error)"
    assert "install sandfleet[local]" in project.runs("python", "-c", program)
