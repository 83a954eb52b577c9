"""The Jupyter kernels that a sandbox has: their kernelspecs, as the programs that install them leave them."""

import json
import os
import re
import sys
from collections.abc import Mapping
from typing import NamedTuple

FOLDER = "kernels"
FILE = "kernel.json"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
# A kernelspec, in bytes.
MAX_BYTES = 64 << 10
# Kernels that are listed.
MAX_KERNELS = 32
# Programs that stand for the Python of the session.
PYTHONS = {"python", "python3", f"python{sys.version_info[0]}.{sys.version_info[1]}"}
# Modules that are IPython's kernel. Jedi takes seconds of processor time for the first completion, longer than a caller
# waits, and reads files of the user's home: contexts of Python complete without it, too.
IPYTHONS = {"ipykernel", "ipykernel_launcher"}
WITHOUT_JEDI = "--IPCompleter.use_jedi=False"
# Runs a module as `-m` does, but no file of the folder that it starts in: IPython lets code find those later (with `-P`
# it would not).
MODULE = (
    "import sys; sys.path.remove(''); import runpy; runpy.run_module(sys.argv.pop(1), None, '__main__', alter_sys=True)"
)


class Kernel(NamedTuple):
    """A kernelspec."""

    name: str
    # In which it stands, with what else it brings.
    folder: str
    # Its program, with `{connection_file}` and `{resource_dir}`.
    argv: list[str]
    envs: dict[str, str]
    display_name: str
    # Whether an interrupt is a message to it, and no signal.
    takes_messages: bool

    def command(self, connection_file: str) -> list[str]:
        """The program and its arguments."""
        known = {"{connection_file}": connection_file, "{resource_dir}": self.folder, "{prefix}": sys.prefix}
        program, *words = self.argv
        if program in PYTHONS:
            program = sys.executable
        if program == sys.executable and words[:1] == ["-m"]:
            words = ["-c", MODULE, *words[1:]]
        filled = [program, *words]
        for place, value in known.items():
            filled = [word.replace(place, value) for word in filled]
        return filled if IPYTHONS.isdisjoint(words) else [*filled, WITHOUT_JEDI]


def folders() -> list[str]:
    """Where kernelspecs stand, in their order: of the session's Python, of the system, and of the workspace.

    Code can write the last, and takes no name of the others with that.
    """
    given = [each for each in os.environ.get("JUPYTER_PATH", "").split(os.pathsep) if each]
    home, packages = os.environ.get("HOME", ""), os.environ.get("SANDFLEET_PACKAGES", "")
    own = [f"{home}/.local/share/jupyter"] if home else []
    installed = [f"{packages}/share/jupyter"] if packages else []
    system = [f"{sys.prefix}/share/jupyter", "/usr/local/share/jupyter", "/usr/share/jupyter"]
    return [f"{each}/{FOLDER}" for each in (*given, *system, *installed, *own)]


def find(name: str) -> Kernel | None:
    """The kernel of that name; None where there is none, or its kernelspec cannot be read."""
    if not NAME.fullmatch(name):
        return None
    return next((found for folder in folders() if (found := read(name, f"{folder}/{name}"))), None)


def names() -> list[str]:
    """The kernels that the sandbox has, at most so many."""
    found: set[str] = set()
    for folder in folders():
        try:
            found |= {each for each in os.listdir(folder) if NAME.fullmatch(each)}  # noqa: PTH208  names alone
        except OSError:
            continue
    return [each for each in sorted(found) if find(each)][:MAX_KERNELS]


def read(name: str, folder: str) -> Kernel | None:
    """The kernelspec of a folder; None where it is none."""
    try:
        # pathlib is not needed in PID 1.
        with open(f"{folder}/{FILE}", "rb") as file:  # noqa: PTH123
            return parse(name, folder, file.read(MAX_BYTES + 1))
    except OSError:
        return None


def parse(name: str, folder: str, text: bytes) -> Kernel | None:
    """The kernelspec; None where it is none."""
    try:
        said = json.loads(text) if len(text) <= MAX_BYTES else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    argv, envs = said.get("argv"), said.get("env") or {}
    if not (isinstance(argv, list) and argv and all(isinstance(word, str) and "\0" not in word for word in argv)):
        return None
    return Kernel(name, folder, argv, _envs(envs), str(said.get("display_name", name)), _takes_messages(said))


def _envs(said: object) -> dict[str, str]:
    if not isinstance(said, Mapping):
        return {}
    # `${PATH}` is filled in as Jupyter does.
    return {str(name): _filled(str(value)) for name, value in said.items() if str(name).isidentifier()}


def _filled(value: str) -> str:
    return re.sub(r"\$\{(\w+)\}", lambda found: os.environ.get(found[1], found[0]), value).replace("\0", "")


def _takes_messages(said: Mapping[str, object]) -> bool:
    return said.get("interrupt_mode") == "message"
