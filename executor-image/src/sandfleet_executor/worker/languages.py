"""The languages of contexts.

To add a language: a room beside `python` and `bash` whose module has `run(control, options)`, and a line in
`LANGUAGES`. `run` serves cells on the control socket until it ends: it takes the request {"op":"execute","cell","envs"}
with the source as payload, writes output to descriptors 1 and 2, and answers {"event":"error",…} if the cell failed
(the error's value stands in the header, or is the payload), then {"event":"done","status","cpu","peak","written"}.
A language that is `announced` first says {"event":"ready"}.
The examples are python/context.py and bash/context.py; frames are in base/frames.py. The contract tests of all
languages take their cells from the table in tests/contract/executor/languages.py.
"""

import importlib
import os
import socket
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

from .base import kernels

PYTHON = "python"
NODE = next((path for path in ("/usr/local/bin/node", "/usr/bin/node") if os.access(path, os.X_OK)), "/usr/bin/node")


# What holds of the contexts of all languages, unless a language says why not.
TOPICS = {
    "state": "what a cell defines is there in the next",
    "outcomes": "errors, deadlines, interrupts, memory and ends of the interpreter are the same outcomes",
    "interrupt": "an interrupt and a deadline keep the variables",
    "streams": "output is bounded, counted, and comes while the cell runs",
    "results": "values are results, as text and in richer forms",
    "places": "an error names the cell and the line",
    "folder": "a cell may change the folder and the environment for the next",
    "processes": "a cell may start programs, which live until the context ends",
    "tools": "code of a brokered sandbox calls the host's tools as functions",
    "tables": "`context.get` and `context.put` move tables",
    "looks": "`complete` and `inspect` answer",
    "copies": "a killed cell is rolled back, and a context can be forked",
    "saves": "variables can be saved and restored",
}
# Topics that follow from what a language declares.
DECLARED = {"tables": "tables", "looks": "looks", "copies": "kept", "saves": "kept"}


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
    # Whether it says {"event":"ready"} when it can take a cell, which takes it a while.
    announced: bool = False
    # Whether the program that is there may lack what it needs: that its version is empty says so, or a start.
    unsure: bool = False
    # Whether its module has `preimport()`, which the spawner calls once before it forks contexts.
    preimported: bool = False
    # Prints its version.
    version: tuple[str, ...] = ()
    # By topic: why it does not hold, or what holds instead.
    differs: Mapping[str, str] = MappingProxyType({})


_JAVASCRIPT = {
    "tools": "code starts the command `tool`",
    "tables": "Node has no Arrow of its own",
    "copies": "Node has threads of its own, which no fork has",
    "saves": "closures and modules have no form in which they could be saved",
}
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
        "bash.context",
        program="/bin/bash",
        looks=True,
        version=("/bin/bash", "--norc", "-c", 'echo "${BASH_VERSION%%(*}"'),
        differs={
            "results": "its results are its output and the exit code",
            "places": "bash says a line in its output, where it knows one",
            "tools": "the command `tool` calls them",
            "tables": "a shell has no tables",
            "copies": "bash cannot be forked between two cells by the process around it",
            "saves": "functions, traps and open descriptors of a shell are not in its variables",
        },
    ),
    "javascript": Language(
        "javascript.context",
        program=NODE,
        looks=True,
        version=(NODE, "-p", "process.versions.node"),
        differs=_JAVASCRIPT,
    ),
    "sql": Language(
        "sql.context",
        libraries=("duckdb", "pyarrow"),
        looks=True,
        tables=True,
        version=(sys.executable, "-IBc", "from importlib.metadata import version; print(version('duckdb'))"),
        differs={
            "folder": "a context stays in the folder in which it began, and has no environment",
            "processes": "SQL starts none",
            "tools": "SQL calls none",
            "copies": "DuckDB has threads of its own, which no fork has",
            "saves": "`COPY` writes a table to a file",
        },
    ),
    # Node strips the types of a cell, and checks none of them.
    "typescript": Language(
        "javascript.context",
        program=NODE,
        looks=True,
        announced=True,
        unsure=True,
        version=(NODE, "-p", "require('node:module').stripTypeScriptTypes ? process.versions.node : ''"),
        differs=_JAVASCRIPT,
    ),
}


# Contexts of Jupyter kernels: `jupyter-ir` is one of the kernel `ir`.
KERNEL = "jupyter-"
_KERNELS = Language(
    "jupyter.context",
    libraries=("jupyter_client",),
    looks=True,
    announced=True,
    differs={
        "results": "as its kernel shows them",
        "places": "its kernel says where, in the traceback",
        "folder": "code changes both as its language does, and the environment of one execution does not reach it",
        "tools": "code starts the command `tool`",
        "tables": "the protocol of Jupyter has none",
        "copies": "a kernel has threads of its own, which no fork has",
        "saves": "the protocol of Jupyter has no such thing",
    },
)
NAMES = f"{', '.join(LANGUAGES)}, and {KERNEL}NAME for a Jupyter kernel of the sandbox"


def find(name: str) -> Language | None:
    """What is declared of a language; None for a name that is none's. A kernel may be missing."""
    if name.startswith(KERNEL) and kernels.NAME.fullmatch(name.removeprefix(KERNEL)):
        return _KERNELS
    return LANGUAGES.get(name)


def declared(name: str) -> Language:
    """As `find`, of a language that was found before."""
    return find(name) or LANGUAGES[name]


def missing(name: str) -> str:
    """Why the sandbox cannot have a context of a language; empty if it can."""
    language = find(name)
    if language is None:
        return f"languages are {NAMES}"
    if language.program and not os.access(language.program, os.X_OK):
        return f"the sandbox has no {language.program}"
    if absent := _lacks(language):
        return f"the sandbox's Python has no {' and no '.join(absent)}"
    if language is _KERNELS and kernels.find(name.removeprefix(KERNEL)) is None:
        has = ", ".join(kernels.names()) or "none"
        return f"the sandbox has no Jupyter kernel {name.removeprefix(KERNEL)}; its kernels: {has}"
    return ""


def _lacks(language: Language) -> list[str]:
    return [each for each in language.libraries if find_spec(each) is None]


def available() -> list[str]:
    own = [name for name, each in LANGUAGES.items() if not each.unsure and not missing(name)]
    return own if _lacks(_KERNELS) else [*own, *(KERNEL + each for each in kernels.names())]


def unsure() -> list[str]:
    """Those that may be there."""
    return [name for name, each in LANGUAGES.items() if each.unsure and not missing(name)]


def version(name: str) -> tuple[str, ...]:
    """A command that prints the version of a language; empty where there is none."""
    return declared(name).version


def title(name: str) -> str:
    """Of a kernel, as its kernelspec names it; empty for the others."""
    found = kernels.find(name.removeprefix(KERNEL)) if name.startswith(KERNEL) else None
    return found.display_name if found else ""


def preimport() -> None:
    """In the spawner, before each fork of a context; only the first call does something."""
    for language in LANGUAGES.values():
        if language.preimported:
            _module(language).preimport()


def run(name: str, control: socket.socket, options: dict[str, Any]) -> NoReturn:
    """Serves as a context; never returns."""
    if name.startswith(KERNEL):
        options = options | {"kernel": name.removeprefix(KERNEL)}
    _module(declared(name)).run(control, options)
    raise SystemExit(f"cannot go on: the context of {name} came back")


def _module(language: Language) -> Any:
    # Imported late: a supervisor of commands needs none of them.
    return importlib.import_module(f".{language.module}", __package__)
