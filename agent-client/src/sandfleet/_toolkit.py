"""Prepared tools for agents that call tools: run_code, run_command, read, write, edit, glob and grep of one sandbox.

Each tool is a function whose signature says what it takes. Its JSON schema is made of the signature.
"""

from __future__ import annotations

import codecs
import inspect
import json
import re
import secrets
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Self, get_args, get_type_hints, overload

from sandfleet._portal import run, unwrap
from sandfleet.codeact.evidence import Evidence, of_command, of_execution
from sandfleet.codeact.observe import Sizes, cut, report
from sandfleet.errors import FileError, InvalidArgument, LimitReached

if TYPE_CHECKING:
    from sandfleet._sync.sandbox import Sandbox
    from sandfleet.sandbox import AsyncSandbox
    from sandfleet.values.files import Found

DEFAULT_LIMIT = 16_000
_MAX_MATCHES = 10_000
_LONGEST_LINE = 400
# The largest file that is edited, in bytes.
_LARGEST_EDIT = 16 * 1024 * 1024
_MOST_LINES_NAMED = 10
# How many long results a toolkit keeps in the sandbox; the oldest goes first.
_MOST_KEPT = 16
_KEPT = "/tmp/toolkit"  # noqa: S108  a folder of the sandbox
_JSON_TYPES: Mapping[type, str] = {str: "string", bool: "boolean", int: "integer", float: "number"}
# A model can mend these by another call. All other errors are the platform's, and are raised.
_MENDABLE = (FileError, InvalidArgument, LimitReached)


class ToolText(str):
    """The text of a tool, as a model is to read it. `is_error`: the call was refused, and the text says why."""

    __slots__ = ("is_error",)
    is_error: bool

    def __new__(cls, text: str, *, is_error: bool = False) -> Self:
        made = super().__new__(cls, text)
        made.is_error = is_error
        return made


class _Tools:
    """The tools themselves. What they return is bounded by `limit`, in characters."""

    def __init__(self, sandbox: AsyncSandbox, limit: int) -> None:
        self._sandbox = sandbox
        self._limit = limit
        self._kept: deque[str] = deque()

    async def run_code(
        self,
        code: Annotated[str, "The code of one cell."],
        language: Annotated[str, "python, bash, javascript or sql; each has a session of its own."] = "python",
        timeout: Annotated[float | None, "Seconds after which the code is ended with all that it started."] = None,
    ) -> str:
        """Run code as a cell of a notebook. Variables, imports and definitions last from one call to the next."""
        ended = await self._sandbox.run_code(code, language=language, timeout=timeout)
        return await self._told(of_execution(ended))

    async def run_command(
        self,
        command: Annotated[str, "A line for bash."],
        timeout: Annotated[float | None, "Seconds after which the command is ended with all that it started."] = None,
    ) -> str:
        """Run a shell command in the workspace. Each call is a new shell: files last, variables and cd do not."""
        ended = await self._sandbox.commands.run(command, timeout=timeout)
        return await self._told(of_command(ended))

    async def read(
        self,
        path: Annotated[str, "The file, from the workspace on or absolute."],
        offset: Annotated[int, "The first line to show; lines count from 1."] = 1,
        limit: Annotated[int, "How many lines to show."] = 2000,
    ) -> str:
        """Read lines of a text file."""
        if offset < 1 or limit < 1:
            raise InvalidArgument(f"cannot read {path}: offset and limit are at least 1")
        window = _Window(offset, limit, self._limit)
        chunks = await self._sandbox.files.read(path, format="stream")
        await window.fill(path, chunks)
        return window.shown(path)

    async def write(
        self,
        path: Annotated[str, "The file; folders that are missing are made."],
        text: Annotated[str, "All that the file is to hold."],
    ) -> str:
        """Write a whole text file; it replaces the one that is there."""
        made = await self._sandbox.files.write(path, text)
        return f"wrote {made.path} ({made.size:,} bytes)"

    async def edit(
        self,
        path: Annotated[str, "The file."],
        old: Annotated[str, "The text to replace, exactly as it stands in the file, with its white space."],
        new: Annotated[str, "The text that comes in its place."],
        replace_all: Annotated[bool, "Replace the text wherever it occurs; otherwise it has to occur once."] = False,
    ) -> str:
        """Replace a text in a file. It is refused where the text does not occur, or occurs several times."""
        data = await self._sandbox.files.read(path, limit=_LARGEST_EDIT)
        text, count = edited(path, data, old, new, every=replace_all)
        await self._sandbox.files.write(path, text)
        return f"edited {path}: replaced {count:,} of {count:,}" if replace_all else f"edited {path}"

    async def glob(
        self,
        pattern: Annotated[str, "* and ? match within a name, ** any number of folders, as in **/*.py."],
        path: Annotated[str, "The folder to look in."] = ".",
    ) -> str:
        """Find files by their names."""
        found = await self._sandbox.files.glob(pattern, path, max_matches=_MAX_MATCHES)
        return await self._listed(found, [each.path for each in found])

    async def grep(
        self,
        pattern: Annotated[str, "A regular expression, without look-around and back references."],
        path: Annotated[str, "The file or folder to search."] = ".",
        include: Annotated[str, "Only files whose names match this pattern of glob."] = "**",
        ignore_case: Annotated[bool, "Take upper and lower case as the same."] = False,
    ) -> str:
        """Find lines of text files that match a regular expression."""
        found = await self._sandbox.files.search(
            pattern, path, regex=True, ignore_case=ignore_case, include=include, max_matches=_MAX_MATCHES
        )
        return await self._listed(found, [f"{each.path}:{each.line}: {each.text[:_LONGEST_LINE]}" for each in found])

    async def _told(self, evidence: Evidence) -> str:
        # Every part is bounded already: the executor keeps so much of it.
        whole = sum(map(len, (evidence.stdout, evidence.stderr, *evidence.results)), self._limit)
        return await self._bounded("\n".join(report(evidence, Sizes(output=whole))))

    async def _listed(self, found: Found[Any], lines: list[str]) -> str:
        if found.stopped:
            lines = [*lines, f"[there may be more: the search ended at its bound of {found.stopped}]"]
        return await self._bounded("\n".join(lines) or "nothing was found")

    async def _bounded(self, text: str) -> str:
        """Leave out the middle of a long text. The whole is in a file of the sandbox, which `read` shows."""
        if len(text) <= self._limit:
            return text
        path = f"{_KEPT}/{secrets.token_hex(4)}.txt"
        try:
            await self._sandbox.files.write(path, text.encode("utf-8", "replace"))
        except (FileError, LimitReached) as error:
            return f"{cut(text, self._limit)}\n[the rest could not be kept: {error}]"
        self._kept.append(path)
        while len(self._kept) > _MOST_KEPT:
            with suppress(FileError):
                await self._sandbox.files.remove(self._kept.popleft())
        return f"{cut(text, self._limit)}\n[all {len(text):,} characters are in {path}: read or grep it]"


class _Window:
    """The lines of a file that are shown: `count` from line `first` on, in at most `limit` characters."""

    def __init__(self, first: int, count: int, limit: int) -> None:
        self.first = first
        self.count = count
        self.limit = limit
        self.line = 1
        self.text = ""
        self.more = False

    async def fill(self, path: str, chunks: AsyncIterator[bytes]) -> None:
        """Take what it shows, and look whether there is more."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        async for chunk in chunks:
            if self.line == 1 and b"\0" in chunk:
                raise FileError(f"cannot read {path}: it is not text", reason="NotText", subject=path)
            if not self._take(decoder.decode(chunk)):
                self.more = True
                break

    def _take(self, text: str) -> bool:
        for piece in re.findall(r"[^\n]*\n|[^\n]+", text):
            if self.line >= self.first + self.count or len(self.text) > self.limit:
                return False
            if self.line >= self.first:
                self.text += piece
            self.line += piece.endswith("\n")
        return True

    def shown(self, path: str) -> str:
        """The text, and what to ask for to read on."""
        if not self.text:
            return self._nothing(path)
        if len(self.text) > self.limit:
            return self._cut()
        if not self.more:
            return self.text
        return f"{self.text}[there is more: go on with offset={self.line}]"

    def _nothing(self, path: str) -> str:
        if self.line == 1:
            return "[the file is empty]"
        raise InvalidArgument(f"cannot read {path} from line {self.first} on: its last line is {self.line - 1}")

    def _cut(self) -> str:
        whole = self.text.rfind("\n", 0, self.limit) + 1
        if whole:
            shown = self.text[:whole]
            return f"{shown}[there is more: go on with offset={self.first + shown.count(chr(10))}]"
        part = f"line {self.first} is longer: these are its first {self.limit:,} characters"
        return f"{self.text[: self.limit]}\n[{part}; go on with offset={self.first + 1}]"


def edited(path: str, text: str, old: str, new: str, *, every: bool) -> tuple[str, int]:
    """Replace a text, and count how often. Raises InvalidArgument where it is not clear what is to be replaced."""
    if not old or old == new:
        raise InvalidArgument(
            f"cannot edit {path}: {'the new text is the old one' if old else 'the old text is empty'}"
        )
    count = text.count(old)
    if not count:
        raise InvalidArgument(f"cannot edit {path}: the text does not occur in it{_nearly(text, old)}")
    if count > 1 and not every:
        lines = [text.count("\n", 0, each.start()) + 1 for each in _first(re.finditer(re.escape(old), text))]
        more = ", …" if count > len(lines) else ""
        where = f"the text occurs {count:,} times, at lines {', '.join(map(str, lines))}{more}"
        raise InvalidArgument(f"cannot edit {path}: {where}; give more of the text around it, or set replace_all")
    return text.replace(old, new), count


def _first(found: Iterator[re.Match[str]]) -> Iterator[re.Match[str]]:
    return (each for each, _ in zip(found, range(_MOST_LINES_NAMED), strict=False))


def _nearly(text: str, old: str) -> str:
    words = old.split()
    near = re.search(r"\s+".join(map(re.escape, words)), text) if words else None
    if near is None:
        return "; read it again"
    return f"; one that differs in white space alone begins at line {text.count(chr(10), 0, near.start()) + 1}"


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """The words by which a model knows one tool; `parameters` is the JSON schema of its arguments."""

    name: str
    description: str
    parameters: Mapping[str, Any]


class _Kit:
    """Both kinds of toolkit have this part."""

    def __init__(self, tools: _Tools, functions: Mapping[str, Callable[..., Any]]) -> None:
        self._tools = tools
        self._functions = functions

    @property
    def schemas(self) -> tuple[ToolSchema, ...]:
        """The tools for any other API of models."""
        return tuple(_schema(getattr(self._tools, name)) for name in self._functions)

    @property
    def openai(self) -> list[dict[str, Any]]:
        """The tools as `tools=` of OpenAI's chat completions takes them."""
        return [
            {
                "type": "function",
                "function": {"name": each.name, "description": each.description, "parameters": each.parameters},
            }
            for each in self.schemas
        ]

    @property
    def anthropic(self) -> list[dict[str, Any]]:
        """The tools as `tools=` of Anthropic's messages takes them."""
        return [
            {"name": each.name, "description": each.description, "input_schema": each.parameters}
            for each in self.schemas
        ]

    def _bound(self, name: str, arguments: str | Mapping[str, Any]) -> dict[str, Any]:
        if name not in self._functions:
            raise InvalidArgument(f"cannot call {name}: the tools are {', '.join(self._functions)}")
        return _checked(name, _schema(getattr(self._tools, name)).parameters, arguments)


class Toolkit(_Kit):
    """Prepared tools of one sandbox, which block until they have their result.

    functions  the tools as functions, for a framework that takes functions as tools.
    """

    @property
    def functions(self) -> tuple[Callable[..., ToolText], ...]:
        """The tools as functions."""
        return tuple(self._functions.values())

    def __getitem__(self, name: str) -> Callable[..., ToolText]:
        """One tool by its name."""
        return self._functions[name]

    def call(self, name: str, arguments: str | Mapping[str, Any]) -> ToolText:
        """Call a tool as a model has asked for it, with arguments as JSON (OpenAI) or as a mapping (Anthropic).

        What the model can mend by another call is told in the text. Raises only what the platform cannot do:
        SandboxEnded, UnavailableError, …
        """
        try:
            bound = self._bound(name, arguments)
        except InvalidArgument as error:
            return ToolText(str(error), is_error=True)
        return self[name](**bound)


class AsyncToolkit(_Kit):
    """As `Toolkit`, with functions and a `call` to await."""

    @property
    def functions(self) -> tuple[Callable[..., Awaitable[ToolText]], ...]:
        """The tools as functions."""
        return tuple(self._functions.values())

    def __getitem__(self, name: str) -> Callable[..., Awaitable[ToolText]]:
        """One tool by its name."""
        return self._functions[name]

    async def call(self, name: str, arguments: str | Mapping[str, Any]) -> ToolText:
        """As `Toolkit.call`."""
        try:
            bound = self._bound(name, arguments)
        except InvalidArgument as error:
            return ToolText(str(error), is_error=True)
        return await self[name](**bound)


_NAMES = ("run_code", "run_command", "read", "write", "edit", "glob", "grep")


@overload
def toolkit(sandbox: Sandbox, *, limit: int = ...) -> Toolkit: ...
@overload
def toolkit(sandbox: AsyncSandbox, *, limit: int = ...) -> AsyncToolkit: ...
def toolkit(sandbox: Sandbox | AsyncSandbox, *, limit: int = DEFAULT_LIMIT) -> Toolkit | AsyncToolkit:
    """Give an agent that calls tools what it needs: run_code, run_command, read, write, edit, glob and grep.

    limit  how many characters one result has at most. A longer one lacks its middle, and says how to read the rest.
    """
    if limit < 1:
        raise InvalidArgument(f"cannot make a toolkit with the limit {limit}: it is at least 1")
    original = unwrap(sandbox, "_async")
    tools = _Tools(original, limit)
    told = {name: _telling(getattr(tools, name)) for name in _NAMES}
    if original is sandbox:
        return AsyncToolkit(tools, told)
    return Toolkit(tools, {name: _blocking(each) for name, each in told.items()})


def _telling(method: Callable[..., Awaitable[str]]) -> Callable[..., Any]:
    """Make a tool of a method: what a model can mend is told, and the docstring describes each argument."""

    @wraps(method)
    async def function(*args: Any, **kwargs: Any) -> ToolText:
        try:
            return ToolText(await method(*args, **kwargs))
        except _MENDABLE as error:
            return ToolText(str(error), is_error=True)

    arguments = _schema(method).parameters["properties"]
    lines = [f"    {name}: {each['description']}" for name, each in arguments.items()]
    function.__doc__ = "\n".join((inspect.cleandoc(method.__doc__ or ""), "", "Args:", *lines))
    # Frameworks look for the annotations in the function itself.
    function.__annotations__ = get_type_hints(method, include_extras=True)
    function.__signature__ = _signature(method)  # type: ignore[attr-defined]
    return function


def _signature(method: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(method, eval_str=True)


def _blocking(function: Callable[..., Any]) -> Callable[..., ToolText]:
    @wraps(function)
    def blocking(*args: Any, **kwargs: Any) -> ToolText:
        return run(function(*args, **kwargs))  # type: ignore[no-any-return]

    return blocking


def _schema(method: Callable[..., Any]) -> ToolSchema:
    properties, required = {}, []
    for each in _signature(method).parameters.values():
        hint, description = get_args(each.annotation)
        kind = next(kind for kind in get_args(hint) or (hint,) if kind is not NoneType)
        properties[each.name] = {"type": _JSON_TYPES[kind], "description": description}
        if each.default is inspect.Parameter.empty:
            required.append(each.name)
        elif each.default is not None:
            properties[each.name]["default"] = each.default
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return ToolSchema(method.__name__, inspect.cleandoc(method.__doc__ or ""), parameters)


def _checked(name: str, schema: Mapping[str, Any], arguments: str | Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as the function takes them; a null for one that may be left out counts as left out."""
    try:
        given = json.loads(arguments or "{}") if isinstance(arguments, str) else arguments
    except ValueError as error:
        raise InvalidArgument(f"cannot call {name}: its arguments are no JSON: {error}") from None
    if not isinstance(given, Mapping):
        raise InvalidArgument(f"cannot call {name}: its arguments are no JSON object")
    known, required = schema["properties"], schema["required"]
    given = {key: value for key, value in given.items() if value is not None or key in required}
    wrong = [f"{key} is unknown" for key in given if key not in known]
    wrong += [f"{key} is missing" for key in required if key not in given]
    wrong += [
        f"{key} is no {known[key]['type']}"
        for key, value in given.items()
        if key in known and not _is(value, known[key]["type"])
    ]
    if wrong:
        raise InvalidArgument(f"cannot call {name}: {', '.join(wrong)}; it takes {', '.join(known)}")
    return given


def _is(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if isinstance(value, int):
        return kind in {"integer", "number"}
    return (isinstance(value, float) and kind == "number") or (isinstance(value, str) and kind == "string")
