"""Skills as code of the session calls them: the module `wasm_skill`.

`wasm_skill.load("skills/stats").call("mean", values=[1, 2])` runs `mean` of skills/stats.wasm, as skills/stats.json
grants. A call needs no thread here: a context with threads cannot be copied.
"""

import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from ..packages import pip
from ..tools import failures as tool_failures
from ..tools import line, values
from . import failures, manifest
from .manifest import Function, Manifest
from .process import Process

DOC = """Skills that are WebAssembly modules: `load(path)` gives one, and its `call(function, **arguments)` a result.

A call that gives no result raises SkillError, or SkillFailed, SkillDenied, SkillLimit, SkillRefused or
SkillUnavailable, which are kinds of it.
"""
NAME = failures.MODULE
# Helpers that wait for the next call of a skill.
MOST_IDLE = 1
_getpid = os.getpid


class Skill:
    """A module and its manifest, which are read at the first call."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """`path` is that of the module, of the manifest or of the skill's Python file: they differ in the suffix."""
        self._path = Path(path).absolute()
        self._name = self._path.stem
        self._workspace = Path(pip.folder()).parents[1]
        self._read: tuple[Manifest, bytes, bytes] | None = None
        self._free: list[Process] = []
        self._owner = _getpid()

    def __repr__(self) -> str:
        return f"<the skill {self._name}>"

    def __reduce__(self) -> Any:
        return load, (str(self._path),)

    def call(self, function: str, /, **arguments: Any) -> Any:
        """What the function of the module gives. Raises SkillError; TypeError for arguments that do not fit."""
        said, text, module = self._content()
        data = _encoded(said.function(function), function, arguments)
        try:
            process = self._take(text, module)
            try:
                return process.call(function, data, said.seconds, self._tool)
            finally:
                self._leave(process)
        except failures.SkillError as error:
            error.skill = self._name
            raise

    def _content(self) -> tuple[Manifest, bytes, bytes]:
        if self._read is None:
            try:
                with self._path.with_suffix(".json").open("rb") as file:
                    text = file.read(manifest.LARGEST + 1)
                with self._path.with_suffix(".wasm").open("rb") as file:
                    module = file.read(manifest.LARGEST_MODULE + 1)
                said = manifest.parse(text)
            except OSError as error:
                raise self._refused(f"cannot read {error.filename}: {error.strerror}", "NoFile") from None
            except manifest.ManifestError as error:
                raise self._refused(f"cannot read the manifest: {error}", "Manifest") from None
            if len(module) > manifest.LARGEST_MODULE:
                why = f"it is over {manifest.LARGEST_MODULE >> 20} MiB"
                raise self._refused(f"cannot use the module: {why}", "TooLarge")
            self._check_folders(said)
            self._read = said, text, module
        return self._read

    def _check_folders(self, said: Manifest) -> None:
        # Links do not hide where the files are.
        own = [self._path.with_suffix(suffix).resolve() for suffix in (".json", ".wasm")]
        for folder in said.folders:
            place = (self._workspace / folder.path).resolve()
            if folder.may_write and any(path.is_relative_to(place) for path in own):
                why = "it could then write its own manifest"
                raise self._refused(f"cannot grant the folder {folder.path}, where the skill is: {why}", "OwnFolder")

    def _take(self, text: bytes, module: bytes) -> Process:
        if self._owner != _getpid():
            # A fork: the helpers are the parent's.
            free, self._free, self._owner = self._free, [], _getpid()
            for each in free:
                each.forget()
        while self._free:
            process = self._free.pop()
            if process.is_ready():
                return process
            process.end()
        process = Process()
        try:
            process.load(str(self._workspace), text, module)
        except BaseException:
            process.end()
            raise
        return process

    def _leave(self, process: Process) -> None:
        if process.is_ready() and len(self._free) < MOST_IDLE and self._owner == _getpid():
            self._free.append(process)
        else:
            process.end()

    def _tool(self, name: str, arguments: bytes) -> tuple[bool, bytes]:
        """Whether a call of a tool has failed, and what the module gets. The manifest decides here, at the keys."""
        said = self._content()[0]
        if name not in said.tools:
            message = f"cannot call the tool {name[:80]!r}: the manifest does not grant it"
            raise failures.SkillDenied(message, skill=self._name, reason="Tool")
        try:
            given = json.loads(arguments)
            text, blobs = values.encode(line.ask("call", name, given))
        except (tool_failures.ToolError, ValueError, TypeError, AttributeError, RecursionError) as error:
            return True, f"{type(error).__name__}: {error}".encode("utf-8", "replace")
        if blobs:
            return True, b"ValueError: the result has bytes, which JSON has not"
        return False, text

    def _refused(self, message: str, reason: str) -> failures.SkillRefused:
        return failures.SkillRefused(message, skill=self._name, reason=reason)


def _encoded(function: Function | None, name: str, arguments: dict[str, Any]) -> bytes:
    if function is None:
        raise failures.SkillRefused(f"cannot call {name[:80]}: the manifest has no such function", reason="NoFunction")
    if arguments.keys() != set(function.parameters):
        takes = ", ".join(function.parameters) or "no arguments"
        raise TypeError(f"{name}() takes {takes}, and was given {', '.join(arguments) or 'none'}")
    text, blobs = values.encode(arguments)
    if blobs:
        raise TypeError(f"{name}() takes JSON, which has no bytes")
    return text


def load(path: str | os.PathLike[str]) -> Skill:
    """The skill of PATH.wasm and PATH.json; a suffix of the path does not count."""
    return Skill(path)


def module() -> ModuleType:
    """The module `wasm_skill`."""
    made = ModuleType(NAME, DOC)
    made.__dict__.update(failures.EXPORTED, load=load, Skill=Skill)
    return made


def install() -> None:
    """In a context: `import wasm_skill` finds it."""
    sys.modules[NAME] = module()
