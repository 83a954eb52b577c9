"""`%pip`: installs packages into a folder of the workspace, which `import` searches after the image's packages."""

import importlib
import importlib.util
import os
import shlex
import sys
from pathlib import Path

from . import system

VARIABLE = "SANDFLEET_PACKAGES"
DEFAULT_FOLDER = "/workspace/.sandfleet/packages"
# pip must not ask, or draw on a terminal.
QUIET = {
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INPUT": "1",
    "PIP_NO_COLOR": "1",
    "PIP_PROGRESS_BAR": "off",
    "PIP_ROOT_USER_ACTION": "ignore",
}


class CannotInstall(RuntimeError):
    """%pip has failed."""

    __module__ = "builtins"


def folder() -> str:
    """The folder of installed packages."""
    return os.environ.get(VARIABLE) or DEFAULT_FOLDER


def run(line: str, *, capture: bool) -> None:
    """Runs pip with the arguments of the line. Raises CannotInstall if there is no pip, or if it fails."""
    try:
        arguments = shlex.split(line)
    except ValueError as error:
        raise CannotInstall(f"cannot install: the arguments cannot be read: {error}") from None
    target = folder()
    argv = [sys.executable, *find_pip(), *_with_target(arguments, target)]
    env = {**os.environ, **QUIET, "PYTHONPATH": target, "PIP_NO_CACHE_DIR": "1"}
    code = system.run(argv, capture=capture, env=env)
    importlib.invalidate_caches()
    if code != 0:
        raise CannotInstall(f"cannot install: pip ended with exit code {code}; its output says why")


def _with_target(arguments: list[str], target: str) -> list[str]:
    if arguments[:1] != ["install"] or any(
        each.startswith(("-t", "--target", "--prefix", "--root")) for each in arguments
    ):
        return arguments
    # Without --upgrade pip leaves a package in the folder as it is.
    return ["install", "--target", target, "--upgrade", *arguments[1:]]


def find_pip() -> list[str]:
    """Arguments that run pip: the interpreter's own, or the copy in the standard library (ensurepip)."""
    if importlib.util.find_spec("pip") is not None:
        return ["-m", "pip"]
    if (spec := importlib.util.find_spec("ensurepip")) is not None and spec.origin is not None:
        for wheel in sorted(Path(spec.origin).parent.glob("_bundled/pip-*.whl")):
            return [str(wheel / "pip")]
    raise CannotInstall(
        f"cannot install: the interpreter {sys.executable} has no pip and no ensurepip; use an image that has pip, or upload the package's files"
    )
