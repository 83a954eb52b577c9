"""The languages of contexts.

To add a language: a room beside `python` and `bash` whose module has `run(control, options)`, and a line in
`LANGUAGES`. `run` serves cells on the control socket until it ends: it takes the request {"op":"execute","cell","envs"}
with the source as payload, writes output to descriptors 1 and 2, and answers {"event":"error",…} if the cell failed
(the error's value stands in the header, or is the payload), then {"event":"done","status","cpu","peak","written"}.
The examples are python/context.py and bash/context.py; frames are in base/frames.py. The contract tests of all
languages take their cells from the table in tests/contract/executor/languages.py.
"""

import importlib
import os
import socket
import sys
from importlib.util import find_spec
from typing import Any, NamedTuple, NoReturn

PYTHON = "python"
NODE = next((path for path in ("/usr/local/bin/node", "/usr/bin/node") if os.access(path, os.X_OK)), "/usr/bin/node")


class Language(NamedTuple):
    """How its contexts are started."""

    # Its module, in this package.
    module: str
    # The program that it needs; empty if it needs none.
    program: str = ""
    # Libraries of Python that it needs.
    libraries: tuple[str, ...] = ()
    # Whether its address space is limited, beside the memory guard: some languages reserve far more than they use.
    bounded: bool = False
    # Whether its contexts can be copied and their variables saved.
    kept: bool = False
    # Whether its contexts complete and inspect code.
    looks: bool = False
    # Whether tables go into its contexts and out of them.
    tables: bool = False
    # Whether its module has `preimport()`, which the spawner calls once before it forks contexts.
    preimported: bool = False
    # Prints its version.
    version: tuple[str, ...] = ()


LANGUAGES = {
    PYTHON: Language(
        "python.context",
        bounded=True,
        kept=True,
        looks=True,
        tables=True,
        preimported=True,
        version=(sys.executable, "-IBSc", "import platform; print(platform.python_version())"),
    ),
    "bash": Language(
        "bash.context", program="/bin/bash", version=("/bin/bash", "--norc", "-c", 'echo "${BASH_VERSION%%(*}"')
    ),
    "javascript": Language("javascript.context", program=NODE, version=(NODE, "-p", "process.versions.node")),
    "sql": Language(
        "sql.context",
        libraries=("duckdb", "pyarrow"),
        tables=True,
        version=(sys.executable, "-IBc", "from importlib.metadata import version; print(version('duckdb'))"),
    ),
}


def missing(name: str) -> str:
    """Why the sandbox cannot have a context of a language; empty if it can."""
    language = LANGUAGES.get(name)
    if language is None:
        return f"languages are {', '.join(LANGUAGES)}"
    if language.program and not os.access(language.program, os.X_OK):
        return f"the sandbox has no {language.program}"
    if absent := [each for each in language.libraries if find_spec(each) is None]:
        return f"the sandbox's Python has no {' and no '.join(absent)}"
    return ""


def available() -> list[str]:
    return [name for name in LANGUAGES if not missing(name)]


def preimport() -> None:
    """In the spawner, before each fork of a context; only the first call does something."""
    for language in LANGUAGES.values():
        if language.preimported:
            _module(language).preimport()


def run(name: str, control: socket.socket, options: dict[str, Any]) -> NoReturn:
    """Serves as a context; never returns."""
    _module(LANGUAGES[name]).run(control, options)
    raise SystemExit(f"cannot go on: the context of {name} came back")


def _module(language: Language) -> Any:
    # Imported late: a supervisor of commands needs none of them.
    return importlib.import_module(f".{language.module}", __package__)
