"""The module `tools`: each tool of the host is a function in it, made when it is first asked for."""

import builtins
import inspect
import json
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from . import failures, line

NAME = "tools"
DOC = """The tools of the host: `tools.NAME(...)`, or `await tools.NAME.aio(...)`.

The host runs them, outside the sandbox. `dir(tools)` names them, `help(tools.NAME)` describes one. A call that gives no
result raises ToolError, or ToolDenied, ToolTimeout or ToolUnavailable, which are kinds of it.
"""


class Text:
    """Shown as it is: an annotation or a default that was written elsewhere."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


class Tools(ModuleType):
    """The module."""

    def __init__(self) -> None:
        super().__init__(NAME, DOC)
        self.__path__: list[str] = []
        self.__dict__.update(failures.EXPORTED)
        self._described: Mapping[str, Mapping[str, Any]] = {}
        self._made: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        # Asked for by Python itself, as __wrapped__ and __file__.
        if name.startswith("_"):
            raise AttributeError(f"module {NAME!r} has no attribute {name!r}")
        if name in self._made:
            return self._made[name]
        spec = self._described.get(name) or self._look().get(name)
        if spec is None:
            raise AttributeError(f"the host offers no tool {name!r}; it has {', '.join(self._described) or 'none'}")
        self._made[name] = made = function(spec)
        return made

    def __dir__(self) -> list[str]:
        return sorted({*self._look(), *failures.EXPORTED})

    def __repr__(self) -> str:
        return "<module 'tools': functions of the host>"

    def _look(self) -> Mapping[str, Mapping[str, Any]]:
        self._made = {}
        self._described = {each["name"]: each for each in line.ask("list")}
        return self._described


def install() -> None:
    """In a context: `tools` is there without an import. As a built-in it is no variable of the user's."""
    builtins.tools = sys.modules[NAME] = Tools()  # type: ignore[attr-defined]


def function(spec: Mapping[str, Any]) -> Any:
    """The function that calls a tool; `aio` is its asynchronous form."""
    name = str(spec["name"])
    signature = signature_of(spec)
    as_tables = table_parameters(spec)

    def call(*args: Any, **kwargs: Any) -> Any:
        return line.ask("call", name, bound(args, kwargs), as_tables)

    async def aio(*args: Any, **kwargs: Any) -> Any:
        return await line.ask_async("call", name, bound(args, kwargs), as_tables)

    def bound(args: Any, kwargs: Any) -> dict[str, Any]:
        # As Python itself says it for a function: "missing a required argument: 'customer'".
        try:
            return signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{name}() {error}") from None

    shown: Any = call
    shown.aio = aio
    for made in (shown, shown.aio):
        made.__name__ = made.__qualname__ = name
        made.__module__ = NAME
        made.__doc__ = described(spec)
        made.__signature__ = signature
    return shown


def table_parameters(spec: Mapping[str, Any]) -> frozenset[str]:
    """The parameters that are tables on the host."""
    # Most tools have none, and each call makes its function anew.
    if '"table"' not in spec["schema"]:
        return frozenset()
    try:
        properties = json.loads(spec["schema"])["properties"]
        return frozenset(name for name, each in properties.items() if each.get("format") == "table")
    except (ValueError, KeyError, TypeError, AttributeError):
        return frozenset()


def described(spec: Mapping[str, Any]) -> str:
    """The docstring: what the host says of it, and the schema of the arguments."""
    try:
        schema = json.dumps(json.loads(spec["schema"]), indent=2)
    except ValueError:
        schema = str(spec["schema"])
    return f"{spec['doc']}\n\nThe arguments as JSON Schema:\n{schema}".strip()


def signature_of(spec: Mapping[str, Any]) -> inspect.Signature:
    """As the host's function has it; types and defaults are shown and not evaluated."""
    parameters = [
        inspect.Parameter(
            each["name"],
            inspect.Parameter.KEYWORD_ONLY if each["keyword_only"] else inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=inspect.Parameter.empty if each["default"] is None else Text(each["default"]),
            annotation=Text(each["annotation"]) if each["annotation"] else inspect.Parameter.empty,
        )
        for each in spec["parameters"]
    ]
    returns = Text(spec["returns"]) if spec["returns"] else inspect.Signature.empty
    return inspect.Signature(parameters, return_annotation=returns)
