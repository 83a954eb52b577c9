"""pip as the session has it: `%pip`, `!pip`, `pip` in a command and `python -m pip` come here.

It installs into a folder of the workspace, which each Python of the session searches after the image's packages. Where
no index can be reached it says so at once, and installs what lies in the session. A Python of another environment, as
one that the user has made, keeps its own pip.
"""

import contextlib
import importlib
import importlib.util
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from . import index, line
from .index import Reach
from .line import Line

VARIABLE = "SANDFLEET_PACKAGES"
DEFAULT_FOLDER = "/workspace/.sandfleet/packages"
SHIMS = Path(__file__).absolute().parents[1] / "shims"
# Set by %pip, which shows a refusal itself, as an error.
REFUSAL_FILE = "SANDFLEET_PIP_REFUSAL"
# The exit codes of a refusal (EX_UNAVAILABLE), of an interrupt, and of a missing pip.
REFUSED, INTERRUPTED, NO_PIP = 69, 130, 1
# pip must not ask, or draw on a terminal.
QUIET = {
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INPUT": "1",
    "PIP_NO_COLOR": "1",
    "PIP_PROGRESS_BAR": "off",
    "PIP_ROOT_USER_ACTION": "ignore",
}
# Where an index may not be reached: pip would wait for minutes.
WAITING = {"PIP_RETRIES": "2", "PIP_TIMEOUT": "10"}
AT_ONCE = {"PIP_RETRIES": "0", "PIP_TIMEOUT": "1"}
NO_INDEX = {"PIP_NO_INDEX": "1"}


class CannotInstall(RuntimeError):
    """pip has failed."""

    __module__ = "builtins"


def folder() -> str:
    """The folder of installed packages."""
    return os.environ.get(VARIABLE) or DEFAULT_FOLDER


# In a context


def run(text: str, start: Callable[[list[str], dict[str, str]], int]) -> None:
    """Runs pip with the arguments of the text, as a program that `start` runs to its end. Raises CannotInstall."""
    try:
        arguments = shlex.split(text)
    except ValueError as error:
        raise CannotInstall(f"cannot install: the arguments cannot be read: {error}") from None
    with tempfile.NamedTemporaryFile() as refusal:
        own = {"PYTHONPATH": str(SHIMS), "SANDFLEET_PYTHON": sys.executable, VARIABLE: folder()}
        variables = {**os.environ, **own, REFUSAL_FILE: refusal.name}
        code = start([sys.executable, str(SHIMS / "pip"), *arguments], variables)
        if code == REFUSED:
            raise CannotInstall(refusal.read().decode())
    importlib.invalidate_caches()
    if code != 0:
        raise CannotInstall(f"cannot install: pip ended with exit code {code}; its output says why")


# As a program


def main(arguments: Sequence[str]) -> int:
    """Does what pip would do; the exit code."""
    try:
        return _do(list(arguments), line.read(arguments))
    except CannotInstall as error:
        print(error, file=sys.stderr)
        return NO_PIP
    except KeyboardInterrupt:
        return INTERRUPTED


def _do(arguments: list[str], asked: Line) -> int:
    own = folder() in sys.path
    into_session = own and asked.into_session
    if own and asked.command == line.UNINSTALL and asked.words:
        # Late, as below: other Pythons do not have what this imports.
        from .uninstall import uninstall

        return uninstall(list(asked.words), folder())
    if not asked.fetches:
        return _pip(arguments)
    if asked.without_index or os.environ.get("PIP_NO_INDEX"):
        return _install_files(arguments, asked) if into_session else _pip(arguments)
    found, why = index.reach(asked.indexes(os.environ))
    if found is not Reach.NONE:
        return _pip(_placed(arguments, asked), {} if found is Reach.REACHED else WAITING)
    try:
        wanted = asked.plain()
    except OSError:
        # pip names the file.
        return _pip(arguments, NO_INDEX)
    if into_session and wanted is not None and _are_met(asked, wanted):
        return 0
    code = _without_network(arguments, asked, wanted)
    if code == REFUSED:
        _refuse(line.refusal(asked, why))
    return code


def _refuse(sentence: str) -> None:
    if file := os.environ.get(REFUSAL_FILE):
        Path(file).write_text(sentence)
    else:
        print(sentence, file=sys.stderr)


def _placed(arguments: list[str], asked: Line) -> list[str]:
    """The arguments; of an installation into the session's folder with that folder."""
    into_session = asked.into_session and folder() in sys.path
    return line.with_target(arguments, asked, folder()) if into_session else arguments


def _are_met(asked: Line, wanted: list[str]) -> bool:
    """Whether installed packages meet what is wanted, which is said then."""
    from .requirements import met

    found = met(wanted, folder())
    if found and "--quiet" not in asked.options:
        for name, version in found:
            print(f"Requirement already satisfied: {name} ({version})")
    return bool(found)


def _without_network(arguments: list[str], asked: Line, wanted: list[str] | None) -> int:
    """Does what can be done with what lies in the session; REFUSED where that is not enough."""
    if _is_configured():
        code = _pip(_placed(arguments, asked), AT_ONCE)
    elif wanted is not None and "--find-links" not in asked.options:
        code = REFUSED
    elif asked.into_session and folder() in sys.path:
        code = _install_files(arguments, asked)
    else:
        code = _pip(arguments, NO_INDEX)
    return REFUSED if code == 1 else code


def _install_files(arguments: list[str], asked: Line) -> int:
    """Installs without an index; where pip misses what the image has (it ignores that with --target), without that."""
    placed = _placed(arguments, asked)
    if asked.options.keys() & line.NOT_IN_TWO_STEPS:
        return _pip(placed, NO_INDEX)
    with tempfile.TemporaryDirectory() as made:
        said, report = Path(made) / "said", Path(made) / "report.json"
        with said.open("wb") as file:
            code = _pip(placed, NO_INDEX, file.fileno())
        if code == 0:
            print(said.read_text(errors="replace"), end="")
            return 0
        if code := _pip([*arguments, "--quiet", "--dry-run", "--report", str(report)], NO_INDEX):
            return code
        chosen = [each["download_info"]["url"] for each in json.loads(report.read_text())["install"]]
    # A file of the version that is there already may have other content.
    again = [each for each in asked.words if line.is_file(each) and _address(each) not in chosen]
    if not (chosen or again):
        print(f"Requirement already satisfied: {line.named(asked)}")
        return 0
    quiet = ["--quiet"] if "--quiet" in asked.options else []
    return _pip(["install", "--no-deps", "--upgrade", "--target", folder(), *quiet, *chosen, *again], NO_INDEX)


def _address(place: str) -> str:
    return Path(place.partition("[")[0]).absolute().as_uri()


def _is_configured() -> bool:
    """Whether pip has settings of its own, which may name files in the session."""
    home = Path(os.environ.get("HOME", "/"))
    places = (
        Path(sys.prefix) / "pip.conf",
        home / ".config/pip/pip.conf",
        home / ".pip/pip.conf",
        Path("/etc/pip.conf"),
    )
    named = os.environ.get("PIP_FIND_LINKS") or os.environ.get("PIP_CONFIG_FILE", os.devnull) != os.devnull
    return bool(named) or any(place.is_file() for place in places)


def _pip(arguments: Sequence[str], variables: Mapping[str, str] | None = None, output: int | None = None) -> int:
    """Runs the real pip; its exit code. `output`: a descriptor for all that it says."""
    path = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each and each != str(SHIMS)]
    # pip sees what is installed there.
    path = [folder(), *path] if folder() in sys.path else path
    given = {"PIP_NO_CACHE_DIR": "1", **(variables or {}), **os.environ, **QUIET, "PYTHONPATH": os.pathsep.join(path)}
    # No pip.py of the folder that it runs in takes its place (from Python 3.11 on).
    safe = ["-P"] if sys.version_info >= (3, 11) else []
    argv = [sys.executable, *safe, *find_pip(), *arguments]
    with subprocess.Popen(argv, env=given, stdout=output, stderr=output) as process:
        while True:
            # An interrupt reaches pip as well, which ends then.
            with contextlib.suppress(KeyboardInterrupt):
                code = process.wait()
                return code if code >= 0 else 128 - code


def find_pip() -> list[str]:
    """Arguments that run the real pip: the interpreter's own, or the copy in the standard library (ensurepip)."""
    path = [each for each in sys.path if each not in (str(SHIMS), str(SHIMS / "pip"))]
    if PathFinder.find_spec("pip", path) is not None:
        return ["-m", "pip"]
    if (spec := importlib.util.find_spec("ensurepip")) is not None and spec.origin is not None:
        for wheel in sorted(Path(spec.origin).parent.glob("_bundled/pip-*.whl")):
            return [str(wheel / "pip")]
    raise CannotInstall(
        f"cannot install: the interpreter {sys.executable} has no pip and no ensurepip; use an image that has pip, or upload the package's files"
    )
