"""The manifest of a skill: its functions, and what it may use. What it does not name is not granted. Pure.

functions   a list of {"name", "parameters": [names], "doc", "numbers"}; "numbers": the module's function takes and
            gives numbers of WebAssembly, and no JSON
folders     a list of {"path", "mode"}, in the workspace; the mode is "read" or "write"
tools       a list of names
clock       whether it may read the clock and wait; random: whether its random numbers differ from call to call
memory_mb   the most that its memory may have; seconds: the longest that a call may take; fuel: instructions of a call
doc         for people
"""

import json
import keyword
from collections.abc import Mapping
from typing import Any, NamedTuple

READ, WRITE = "read", "write"
# Bytes of the text, and of a module.
LARGEST, LARGEST_MODULE = 64 << 10, 2 << 20
MOST_FUNCTIONS, MOST_PARAMETERS, MOST_FOLDERS, MOST_TOOLS = 50, 32, 16, 64
NAME_LIMIT, PATH_LIMIT = 64, 512
MEMORY_MB, MOST_MEMORY_MB = 64, 1024
SECONDS, MOST_SECONDS = 10.0, 600.0
MOST_FUEL = 10**15
# A skill that could write there would write what the session imports.
SKILLS = "skills"


class ManifestError(ValueError):
    """The text is no manifest."""


class Function(NamedTuple):
    """What code in the session calls."""

    name: str
    parameters: tuple[str, ...] = ()
    # Whether the module's function takes and gives numbers of WebAssembly; else JSON.
    numbers: bool = False


class Folder(NamedTuple):
    """A folder of the workspace; the module finds it at the same path."""

    path: str
    may_write: bool = False


class Manifest(NamedTuple):
    """What a skill has and may do."""

    functions: tuple[Function, ...]
    folders: tuple[Folder, ...] = ()
    tools: frozenset[str] = frozenset()
    clock: bool = False
    random: bool = False
    memory_mb: int = MEMORY_MB
    seconds: float = SECONDS
    # Instructions, roughly; 0: not counted.
    fuel: int = 0

    def function(self, name: str) -> Function | None:
        """The function of that name."""
        return next((each for each in self.functions if each.name == name), None)


def parse(text: bytes) -> Manifest:
    """The manifest that the text says. Raises ManifestError."""
    if len(text) > LARGEST:
        raise ManifestError(f"it is over {LARGEST >> 10} KiB")
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"it is no JSON: {error}") from None
    said = _object(
        said, "it", {"doc", "functions", "folders", "tools", "clock", "random", "memory_mb", "seconds", "fuel"}
    )
    return Manifest(
        _unlike(tuple(_function(each) for each in _list(said, "functions", MOST_FUNCTIONS, least=1)), "functions"),
        _unlike(tuple(_folder(each) for each in _list(said, "folders", MOST_FOLDERS)), "folders"),
        frozenset(_name(each, "a tool") for each in _list(said, "tools", MOST_TOOLS)),
        _flag(said, "clock"),
        _flag(said, "random"),
        int(_number(said, "memory_mb", MEMORY_MB, 1, MOST_MEMORY_MB, whole=True)),
        _number(said, "seconds", SECONDS, 0.01, MOST_SECONDS),
        int(_number(said, "fuel", 0, 0, MOST_FUEL, whole=True)),
    )


def _function(value: object) -> Function:
    said = _object(value, "a function", {"name", "parameters", "doc", "numbers"})
    parameters = tuple(_name(each, "a parameter") for each in _list(said, "parameters", MOST_PARAMETERS))
    if len(set(parameters)) != len(parameters):
        raise ManifestError("a function has a parameter twice")
    return Function(_name(said.get("name"), "a function"), parameters, _flag(said, "numbers"))


def _folder(value: object) -> Folder:
    said = _object(value, "a folder", {"path", "mode"})
    path, mode = said.get("path"), said.get("mode", READ)
    if mode not in {READ, WRITE}:
        raise ManifestError(f"the mode of a folder is {READ!r} or {WRITE!r}, not {str(mode)[:80]!r}")
    if why := _wrong_path(path, may_write=mode == WRITE):
        raise ManifestError(f"the folder {str(path)[:80]!r} cannot be granted: {why}")
    return Folder(str(path), mode == WRITE)


def _wrong_path(path: object, *, may_write: bool) -> str:
    if not isinstance(path, str) or not 0 < len(path) <= PATH_LIMIT or not path.isprintable():
        return "a path is a printable text"
    if path == ".":
        return "the whole workspace holds code of the session; name a folder in it" if may_write else ""
    names = path.split("/")
    if any(name in {"", ".", ".."} for name in names):
        return "a path is relative to the workspace, without '..'"
    if may_write and (names[0] == SKILLS or any(name.startswith(".") for name in names)):
        return "the session takes code and settings from it"
    return ""


def _object(value: object, what: str, known: set[str]) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ManifestError(f"{what} is no object")
    # A misspelt limit would be no limit.
    if strange := sorted(value.keys() - known):
        raise ManifestError(f"{what} has {strange[0][:80]!r}, which means nothing here")
    return value


def _list(said: Mapping[str, Any], name: str, most: int, *, least: int = 0) -> list[Any]:
    value = said.get(name, [])
    if not isinstance(value, list) or not least <= len(value) <= most:
        raise ManifestError(f"{name} is no list of {least} to {most}")
    return value


def _name(value: object, what: str) -> str:
    is_name = isinstance(value, str) and value.isascii() and value.isidentifier() and len(value) <= NAME_LIMIT
    if not is_name or keyword.iskeyword(str(value)):
        raise ManifestError(f"{str(value)[:80]!r} is no name of {what}")
    return str(value)


def _flag(said: Mapping[str, Any], name: str) -> bool:
    value = said.get(name, False)
    if not isinstance(value, bool):
        raise ManifestError(f"{name} is neither true nor false")
    return value


def _number(
    said: Mapping[str, Any], name: str, default: float, least: float, most: float, *, whole: bool = False
) -> float:
    value = said.get(name, default)
    fits = type(value) is int or (type(value) is float and not whole)
    if not fits or not least <= value <= most:
        raise ManifestError(f"{name} is no number from {least} to {most}")
    return float(value) if not whole else value


def _unlike(entries: tuple[Any, ...], what: str) -> tuple[Any, ...]:
    # The first field is the name, or the path.
    if len({each[0] for each in entries}) != len(entries):
        raise ManifestError(f"two of its {what} have one name")
    return entries
