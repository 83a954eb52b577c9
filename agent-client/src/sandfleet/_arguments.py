"""Check the arguments of a call against the annotations of its signature, which are read once, at its first use.

    @checked
    async def read(self, path: PathLike, *, format: Format = "text") -> str: ...

A wrong type, an unknown word of a Literal or an enum, a number out of range and text that UTF-8 cannot encode are
refused with InvalidArgument before anything is sent. A check takes about a microsecond.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import difflib
import inspect
import math
import numbers
import os
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import wraps
from importlib import import_module
from typing import Any, NoReturn, TypeVar

from sandfleet._calls import Items
from sandfleet.errors import InvalidArgument
from sandfleet.values.options import AnyNumber, FileText

Call = TypeVar("Call", bound=Callable[..., Any])

# The largest number of a call: that of a signed 64-bit field.
_MOST = 2**63 - 1
# Where names stand that modules import for type checkers only.
_HOMES = ("typing", "collections.abc", "sandfleet.values", "sandfleet.values.options")
_LATE = {
    "AnyTool": "sandfleet.values.tools",
    "AsyncFleet": "sandfleet._fleets.fleet",
    "Command": "sandfleet.resources.commands",
    "OnError": "sandfleet.resources.ports",
    "OnPreempted": "sandfleet.values.suspension",
    "OnReview": "sandfleet.values.reviews",
    "PathLike": "os",
    "Snapshot": "sandfleet.values.suspension",
    "ToolPolicy": "sandfleet.values.tools",
}
# Users of other sandboxes know options by these names.
_ELSEWHERE = {
    "allow_internet_access": "egress",
    "auto_pause": "on_timeout",
    "cpu": "cpus",
    "env_vars": "envs",
    "image": "template",
    "lifecycle": "on_timeout",
    "metadata": "labels",
    "network": "egress",
    "secrets": "credentials",
    "volumes": "mounts",
    "workdir": "cwd",
}
# Classes whose objects users make: their fields are checked as arguments are.
_REQUESTS = ("Autosave", "Header", "Limits", "Probe", "ServiceSpec")


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """What an argument may be.

    expects  it in words, or a quoted word of which there are several.
    takes    whether a value is of this kind.
    wrong    what is wrong with a value of this kind; "" if nothing is.
    """

    expects: tuple[str, ...]
    takes: Callable[[Any], bool]
    wrong: Callable[[Any], str] | None = None


def checked(function: Call) -> Call:
    """Check the arguments of each call. Raises InvalidArgument, and TypeError for an unknown option, as Python does."""
    signature = _Signature(function)
    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def asynchronous(*args: Any, **kwargs: Any) -> Any:
            signature.check(args, kwargs)
            return await function(*args, **kwargs)

        return typing.cast("Call", asynchronous)

    yields = inspect.isasyncgenfunction(function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        signature.check(args, kwargs)
        answer = function(*args, **kwargs)
        return Items(answer, function.__name__) if yields else answer

    return typing.cast("Call", call)


def check_request(value: object, kind: type, call: str) -> None:
    """Check an object of a class of requests, such as ServiceSpec. Raises InvalidArgument."""
    if problem := _problem(_kind_of(kind), kind.__name__, value):
        _refuse(call, kind.__name__, problem)


class _Signature:
    """The kinds of a function's arguments, read at the first call."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        # A method's own object.
        self._skipped = int(function.__code__.co_varnames[:1] in (("self",), ("cls",)))
        self._positional: tuple[tuple[str, Kind], ...] | None = None
        self._rest: Kind | None = None
        self._named: dict[str, Kind] = {}
        self._options = False

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        positional = self._positional if self._positional is not None else self._read()
        given = args[self._skipped :]
        for (name, kind), value in zip(positional, given, strict=False):
            if problem := _problem(kind, name, value):
                _refuse(self._function.__name__, name, problem)
        if self._rest is not None:
            for value in given[len(positional) :]:
                if problem := _problem(self._rest, "each of them", value):
                    _refuse(self._function.__name__, "", problem)
        for name, value in kwargs.items():
            if (named := self._named.get(name)) is None:
                self._unknown(name)
            elif problem := _problem(named, name, value):
                _refuse(self._function.__name__, name, problem)

    def _unknown(self, name: str) -> None:
        # Without options, Python says it.
        if self._options:
            near = [_ELSEWHERE[name]] if name in _ELSEWHERE else difflib.get_close_matches(name, self._named, 1)
            hint = f": did you mean {near[0]}?" if near and near[0] in self._named else ""
            raise TypeError(f"{self._function.__name__}() got an unexpected keyword argument {name!r}{hint}")

    def _read(self) -> tuple[tuple[str, Kind], ...]:
        names = _Names(self._function.__globals__)
        positional: list[tuple[str, Kind]] = []
        for parameter in list(inspect.signature(self._function).parameters.values())[self._skipped :]:
            if parameter.kind is parameter.VAR_KEYWORD:
                [options] = typing.get_args(names.type_of(parameter.annotation))
                self._named |= dict(_fields(options))
                self._options = True
                continue
            kind = _kind_of(names.type_of(parameter.annotation))
            if parameter.kind is parameter.VAR_POSITIONAL:
                self._rest = kind
                continue
            self._named[parameter.name] = kind
            if parameter.kind is not parameter.KEYWORD_ONLY:
                positional.append((parameter.name, kind))
        self._positional = tuple(positional)
        return self._positional


class _Names(Mapping[str, Any]):
    """Names of annotations, also those that only type checkers import."""

    def __init__(self, module: Mapping[str, Any]) -> None:
        self._module = module

    def type_of(self, annotation: object) -> Any:
        text = annotation.__forward_arg__ if isinstance(annotation, typing.ForwardRef) else annotation
        return eval(text, {}, self) if isinstance(text, str) else text  # noqa: S307  annotations of this package

    def __getitem__(self, name: str) -> Any:
        if name in self._module:
            return self._module[name]
        if name in _LATE:
            return getattr(import_module(_LATE[name]), name)
        for home in _HOMES:
            if hasattr(found := import_module(home), name):
                return getattr(found, name)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._module)

    def __len__(self) -> int:
        return len(self._module)


def _refuse(call: str, name: str, problem: str) -> NoReturn:
    raise InvalidArgument(f"cannot call {call}(): {problem}", reason="InvalidArgument", subject=name)


def _problem(kind: Kind, name: str, value: Any) -> str:
    if not kind.takes(value):
        return f"{name} has to be {_or(kind.expects)}, not {_named(kind, value)}"
    if kind.wrong is not None and (wrong := kind.wrong(value)):
        return f"{name}{wrong}"
    return ""


def _named(kind: Kind, value: object) -> str:
    """Name a refused value: a word by itself, anything else, which may be a secret, by its type."""
    if isinstance(value, str) and any(word.startswith("'") for word in kind.expects):
        return repr(str(value)[:60])
    if isinstance(value, (int, float)) and not isinstance(value, bool) and any("number" in w for w in kind.expects):
        return repr(value)[:60]
    return "None" if value is None else type(value).__name__


def _or(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _text_wrong(text: str) -> str:
    if text.isascii():
        return ""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f" holds what is no character (a lone surrogate at {error.start}): it cannot be sent as UTF-8"
    return ""


def _file_text_wrong(text: str) -> str:
    """Names of files may have bytes that are no UTF-8, as surrogates from U+DC80 on, as `os.fsdecode` gives them."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        return f" holds what is no character (a lone surrogate at {error.start}): it is neither text nor the name of a file"
    return ""


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, numbers.Real)) and not isinstance(value, bool)


def _is_integer(value: object) -> bool:
    return isinstance(value, (int, numbers.Integral)) and not isinstance(value, bool) and abs(int(value)) <= _MOST


def _or_fewer(value: Any) -> str:
    return " has to be 0 or more" if value < 0 else ""


def _time_wrong(value: Any) -> str:
    # All numbers with fractions are seconds.
    return "" if 0 <= value < math.inf else f" is no length of time: {float(value):g}"


_PLAIN: dict[object, Kind] = {
    str: Kind(("text",), lambda value: isinstance(value, str), _text_wrong),
    FileText: Kind(("text",), lambda value: isinstance(value, str), _file_text_wrong),
    bool: Kind(("True", "False"), lambda value: isinstance(value, bool)),
    int: Kind(("a whole number",), _is_integer, _or_fewer),
    AnyNumber: Kind(("a whole number",), _is_integer),
    float: Kind(("a number",), _is_number, _time_wrong),
    bytes: Kind(("bytes",), lambda value: isinstance(value, bytes)),
    type(None): Kind(("None",), lambda value: value is None),
    Any: Kind(("anything",), lambda _: True),
    object: Kind(("anything",), lambda _: True),
}


# Of types whose every value is of one kind, or is told to be wrong by it. Not of text, where there may be words.
_SAMPLES: tuple[object, ...] = (None, True, 0.5, b"")


def _kind_of(annotation: Any) -> Kind:
    try:
        return _PLAIN[annotation]
    except (KeyError, TypeError):
        pass
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return _any_of(tuple(map(_kind_of, inner)))
    if origin is typing.Literal:
        return _words(inner)
    if origin is collections.abc.Callable:
        return Kind(("a function",), callable)
    if origin is collections.abc.Mapping:
        return _mapping(*map(_kind_of, inner))
    if origin is collections.abc.Sequence:
        return _sequence(_kind_of(inner[0]))
    return _instance(origin or annotation)


def _any_of(kinds: tuple[Kind, ...]) -> Kind:
    # None is the one that a message need not offer.
    offered = [word for kind in kinds for word in kind.expects if kind is not _PLAIN[type(None)]]

    # The kind of a common type is found without a search.
    common = {type(one): kind for one in _SAMPLES for kind in reversed(kinds) if kind.takes(one)}

    def find(value: Any) -> Kind | None:
        return next((kind for kind in kinds if kind.takes(value)), None)

    def wrong(value: Any) -> str:
        kind = common.get(type(value)) or find(value)
        return kind.wrong(value) if kind is not None and kind.wrong is not None else ""

    def takes(value: Any) -> bool:
        return type(value) in common or find(value) is not None

    return Kind(tuple(dict.fromkeys(offered)), takes, wrong)


def _words(words: tuple[Any, ...]) -> Kind:
    known = frozenset(words)
    return Kind(tuple(map(repr, words)), lambda value: isinstance(value, (str, bool)) and value in known)


def _mapping(key: Kind, item: Kind) -> Kind:
    def wrong(value: Mapping[Any, Any]) -> str:
        for name, one in value.items():
            if problem := _problem(key, ": each name in it", name) or _problem(item, f"[{name!r:.80}]", one):
                return problem
        return ""

    return Kind((f"a mapping of {key.expects[0]} to {item.expects[0]}",), lambda v: isinstance(v, Mapping), wrong)


def _sequence(item: Kind) -> Kind:
    def wrong(value: collections.abc.Sequence[Any]) -> str:
        return next((said for i, one in enumerate(value) if (said := _problem(item, f"[{i}]", one))), "")

    def takes(value: object) -> bool:
        return isinstance(value, collections.abc.Sequence) and not isinstance(value, (str, bytes, bytearray))

    return Kind((f"a list of {_or(item.expects)}",), takes, wrong)


def _instance(cls: type) -> Kind:
    if issubclass(cls, Enum):
        # An UNKNOWN is an answer, never a wish.
        return _words(tuple(member.value for member in cls if member.name != "UNKNOWN"))
    if cls in (collections.abc.Iterable, collections.abc.AsyncIterable):
        word = "an iterable" if cls is collections.abc.Iterable else "an asynchronous iterable"
        return Kind((word,), lambda value: isinstance(value, cls) and not isinstance(value, (str, bytes)))
    if cls is os.PathLike:
        return Kind(("a path",), lambda value: isinstance(value, cls))
    name = cls.__name__.removeprefix("Async")
    article = "an" if name[0] in "AEIOU" else "a"
    if name not in _REQUESTS:
        return Kind((f"{article} {name}",), lambda value: isinstance(value, cls))
    fields = _fields(cls)

    def wrong(value: object) -> str:
        said = (_problem(kind, f".{field}", getattr(value, field)) for field, kind in fields)
        return next(filter(None, said), "")

    return Kind((f"{article} {name}",), lambda value: isinstance(value, cls), wrong)


def _fields(cls: type) -> list[tuple[str, Kind]]:
    """The fields of a dataclass or a TypedDict, with what they may be."""
    names = _Names(vars(import_module(cls.__module__)))
    return [(name, _kind_of(names.type_of(annotation))) for name, annotation in cls.__annotations__.items()]
