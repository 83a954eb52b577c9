"""Tasks with checkers, from files. Pure but for reading the file.

A file has one table for each task, in TOML, JSON (a list) or JSON Lines:

    [[task]]
    key = "median"
    prompt = "Write the function median(values) into solution.py."
    test = "from solution import median; assert median([3, 1, 2]) == 2"

What is right is said by `answer` (a value or a list of them, numbers within `tolerance` of them) or by `test` (Python
that a fresh interpreter in the sandbox runs: exit code 0 is right), or by both. `files` are put into the workspace.
`solution` and `wrong` are what the scripted policies run: code in the place of a model's.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any

from sandfleet.errors import InvalidArgument

# The shipped sets.
SETS = ("functions", "data")
_LARGEST = 32 * 1024 * 1024
_MOST_TASKS = 100_000


@dataclass(frozen=True, slots=True)
class EvalTask:
    """One task of a set."""

    key: str
    prompt: str
    answer: tuple[str | int | float, ...] = ()
    tolerance: float = 1e-6
    test: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    solution: str = ""
    wrong: str = ""

    @property
    def is_judged_by_test(self) -> bool:
        """Whether only its test decides: the agent's answer needs no value."""
        return not self.answer


def load(name: str) -> tuple[EvalTask, ...]:
    """Read a shipped set by its name, or a file. Raises InvalidArgument, which says what is wrong where."""
    if name in SETS:
        text = resources.files("sandfleet.evals.sets").joinpath(f"{name}.toml").read_text(encoding="utf-8")
        return _tasks(tomllib.loads(text).get("task"), name)
    path = Path(name)
    try:
        if path.stat().st_size > _LARGEST:
            raise InvalidArgument(f"cannot read the tasks {name}: the file is over {_LARGEST >> 20} MiB")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        shipped = ", ".join(SETS)
        raise InvalidArgument(f"cannot read the tasks {name}: no such file; the shipped sets are {shipped}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"cannot read the tasks {name}: {error}") from error
    return _tasks(_parsed(text, path.suffix, name), name)


def _parsed(text: str, suffix: str, name: str) -> object:
    try:
        if suffix == ".toml":
            return tomllib.loads(text).get("task")
        if suffix == ".jsonl":
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        return json.loads(text)
    except ValueError as error:
        raise InvalidArgument(f"cannot read the tasks {name}: {error}") from error


def _tasks(said: object, name: str) -> tuple[EvalTask, ...]:
    if not isinstance(said, list) or not said:
        raise InvalidArgument(f"cannot read the tasks {name}: there is no list of tasks in it")
    if len(said) > _MOST_TASKS:
        raise InvalidArgument(f"cannot read the tasks {name}: it has {len(said)} tasks, more than {_MOST_TASKS}")
    tasks = tuple(_task(one, f"{name}, task {number}") for number, one in enumerate(said, start=1))
    seen: set[str] = set()
    for task in tasks:
        if task.key in seen:
            raise InvalidArgument(f"cannot use the tasks {name}: two of them have the key {task.key!r}")
        seen.add(task.key)
    return tasks


def _task(said: object, where: str) -> EvalTask:
    if not isinstance(said, dict):
        raise InvalidArgument(f"cannot read {where}: it is no table")
    known = {one.name for one in fields(EvalTask)}
    if unknown := sorted(set(said) - known):
        raise InvalidArgument(f"cannot read {where}: it has no field {unknown[0]!r}; the fields are {sorted(known)}")
    for name in ("key", "prompt"):
        if not isinstance(said.get(name), str) or not said[name].strip():
            raise InvalidArgument(f"cannot read {where}: its {name} has to be text")
    for name in ("test", "solution", "wrong"):
        if not isinstance(said.get(name, ""), str):
            raise InvalidArgument(f"cannot read {where}: its {name} has to be text")
    if "answer" not in said and not said.get("test"):
        raise InvalidArgument(f"cannot read {where}: it has neither an answer nor a test, so nothing can be right")
    return EvalTask(**{**said, "answer": _answer(said.get("answer", []), where), "files": _files(said, where)})


def _answer(said: object, where: str) -> tuple[str | int | float, ...]:
    values = said if isinstance(said, list) else [said]
    if not all(isinstance(value, (str, int, float)) for value in values):
        raise InvalidArgument(f"cannot read {where}: its answer has to be text, a number, or a list of them")
    return tuple(values)


def _files(said: Mapping[str, Any], where: str) -> dict[str, str]:
    files = said.get("files", {})
    if not isinstance(files, dict) or not all(isinstance(content, str) for content in files.values()):
        raise InvalidArgument(f"cannot read {where}: its files have to be a table of names and texts")
    return files
