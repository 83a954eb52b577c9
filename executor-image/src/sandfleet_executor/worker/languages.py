"""The languages of contexts. A new one is a module with `run(control, options)` that speaks as context.py does, and a line here."""

import importlib
import os
import socket
import sys
from typing import Any, NamedTuple, NoReturn

PYTHON = "python"


class Language(NamedTuple):
    """How a context of it comes about."""

    # In this package.
    module: str
    # Has to be there; empty when nothing beside this package is needed.
    program: str = ""
    # Whether the process gets an end to its address space, beside the guard on its memory: others reserve far more than they use.
    bounded: bool = False
    # Whether its contexts can be copied, and their variables saved.
    kept: bool = False
    # Says its version on standard output.
    version: tuple[str, ...] = ()


LANGUAGES = {
    PYTHON: Language(
        "context",
        bounded=True,
        kept=True,
        version=(sys.executable, "-IBSc", "import platform; print(platform.python_version())"),
    ),
    "bash": Language("bash", program="/bin/bash", version=("/bin/bash", "--norc", "-c", 'echo "${BASH_VERSION%%(*}"')),
}


def missing(name: str) -> str:
    """Why there can be no context of a language; empty when there can."""
    language = LANGUAGES.get(name)
    if language is None:
        return f"languages are {', '.join(LANGUAGES)}"
    if language.program and not os.access(language.program, os.X_OK):
        return f"the sandbox has no {language.program}"
    return ""


def available() -> list[str]:
    return [name for name in LANGUAGES if not missing(name)]


def run(name: str, control: socket.socket, options: dict[str, Any]) -> NoReturn:
    """Becomes a context."""
    # Only here: a supervisor has no use for any of them.
    module = importlib.import_module(f".{LANGUAGES[name].module}", __package__)
    module.run(control, options)
    raise SystemExit(f"cannot go on: the context of {name} came back")
