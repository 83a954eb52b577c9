"""Custom resources as tables: each attribute of a class says where it stands in the object, and how it is written.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class PoolSpec:
        template: Annotated[str, at("templateRef.name", required=True)]
        lifetime: Annotated[float | None, at("lifetimeSeconds", whole)] = None

`decode` reads such a class from JSON and `encode` writes it. A value of a wrong type raises FleetError with "cannot
read PATH: why". Null is absent, and an absent field has the attribute's default. Unknown fields are ignored.
"""

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache, partial
from typing import Annotated, Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

from sandfleet_operator.api.errors import FleetError, invalid
from sandfleet_operator.api.quantities import parse_bytes, parse_cores
from sandfleet_operator.api.times import parse_time, time_text

T = TypeVar("T")
# Of a value in JSON and the path that led to it.
Reader = Callable[[object, str], Any]
Json = dict[str, Any]

# bool is an int to Python, but not to JSON.
NAMES: Mapping[type, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


@dataclass(frozen=True, slots=True)
class At:
    """The place of an attribute in the object."""

    path: tuple[str, ...]
    # None: as the attribute's type says.
    read: Reader | None
    required: bool
    empty: Literal["kept", "null", "left out"]

    @property
    def word(self) -> str:
        """As the object has it: `resources.limits`."""
        return ".".join(self.path)


def at(
    path: str,
    read: Reader | None = None,
    *,
    required: bool = False,
    empty: Literal["kept", "null", "left out"] = "kept",
) -> At:
    """`empty` says what is written where the attribute is empty."""
    return At(tuple(path.split(".")), read, required, empty)


@dataclass(frozen=True, slots=True)
class Column:
    """One attribute of a class that is a table."""

    name: str
    at: At
    type: Any
    default: object


def table(kind: type) -> tuple[Column, ...]:
    """The attributes of the class that have a place, in its order."""
    return _table(cast("Any", kind))


@cache
def _table(kind: Any) -> tuple[Column, ...]:
    hints, found = get_type_hints(kind, include_extras=True), []
    for one in fields(kind):
        hint, *extras = get_args(hints[one.name]) if hasattr(hints[one.name], "__metadata__") else (hints[one.name],)
        place = next((extra for extra in extras if isinstance(extra, At)), None)
        if place is not None:
            default = one.default_factory() if one.default_factory is not MISSING else one.default
            found.append(Column(one.name, place, hint, default))
    return tuple(found)


def decode(kind: type[T], value: object, path: str, base: T | None = None) -> T:
    """An absent field has the value that `base` has, or the class's default."""
    found = {}
    for column in table(kind):
        inner, where = _look(value, column.at.path, path)
        default = column.default if base is None else getattr(base, column.name)
        if column.at.required and inner in (None, ""):
            raise unreadable(where, "it is missing")
        if column.at.read is None and is_dataclass(column.type):
            inner_base = None if default is MISSING else default
            found[column.name] = decode(
                cast("type[Any]", column.type), {} if inner is None else inner, where, inner_base
            )
        elif inner is not None:
            found[column.name] = (column.at.read or reader(column.type))(inner, where)
        elif default is not MISSING:
            found[column.name] = default
    return kind(**found)


def _look(value: object, parts: tuple[str, ...], path: str) -> tuple[object, str]:
    """What stands there, None where nothing does, and its whole path."""
    for part in parts:
        value = None if value is None else as_type(value, dict, path).get(part)
        path = f"{path}.{part}" if path else part
    return value, path


def encode(value: Any) -> Json:
    """Of a class that has no path of more than one word."""
    found: Json = {}
    for column in table(type(value)):
        inner = getattr(value, column.name)
        if inner in ("", (), None) and column.at.empty != "kept":
            if column.at.empty == "null":
                found[column.at.word] = None
            continue
        found[column.at.word] = time_text(inner) if column.at.read is moment else _written(inner)
    return found


def _written(value: Any) -> object:
    if isinstance(value, tuple):
        return [_written(one) for one in value]
    if isinstance(value, Enum):
        return word_of(value)
    return encode(value) if is_dataclass(value) else value


def word_of(value: Enum) -> str:
    """As the custom resources write it: its `word`, else its value."""
    return str(getattr(value, "word", value.value))


# How values are read.


def unreadable(path: str, why: str) -> FleetError:
    return invalid("InvalidSpec", f"cannot read {path}: {why}", path)


def as_type(value: object, wanted: type[T], path: str) -> T:
    if type(value) is not wanted:
        raise unreadable(path, f"{NAMES.get(type(value), type(value).__name__)} stands where {NAMES[wanted]} should be")
    return value


@cache
def reader(kind: Any) -> Reader:
    """By the type of an attribute."""
    if isinstance(kind, types.UnionType):
        (kind,) = (one for one in get_args(kind) if one is not types.NoneType)
        return reader(kind)
    if get_origin(kind) is tuple:
        return listed(reader(get_args(kind)[0]))
    if get_origin(kind) is not None and issubclass(get_origin(kind), Mapping):
        return _mapping
    if is_dataclass(kind):
        return partial(decode, cast("type[Any]", kind))
    if issubclass(kind, Enum):
        return partial(_choice, {word_of(one): one for one in kind})
    return number if kind is float else lambda value, path: as_type(value, kind, path)


def listed(read: Reader) -> Reader:
    """A list of what `read` reads, as a tuple."""

    def read_all(value: object, path: str) -> tuple[Any, ...]:
        return tuple(read(one, f"{path}[{place}]") for place, one in enumerate(as_type(value, list, path)))

    return read_all


def number(value: object, path: str) -> float:
    """JSON writes a whole one without a point."""
    return whole(value, path) if type(value) is int else as_type(value, float, path)


def whole(value: object, path: str) -> float:
    """Written without a point: seconds, shares."""
    try:
        return float(as_type(value, int, path))
    except OverflowError:
        raise unreadable(path, "the number is too large") from None


def moment(value: object, path: str) -> float:
    """A time, as seconds since the epoch."""
    return parse_time(as_type(value, str, path), path)


def in_bytes(value: object, path: str) -> int:
    """A quantity, in bytes."""
    return parse_bytes(value, path)


def in_cores(value: object, path: str) -> float:
    return parse_cores(value, path)


def optional_text(value: object, path: str) -> str | None:
    """None for the empty text."""
    return as_type(value, str, path) or None


def raw(value: object, path: str) -> Json:
    """An object as it stands there."""
    return dict(as_type(value, dict, path))


def variables(value: object, path: str) -> dict[str, str]:
    """Environment variables, as in a container: a list of names and values."""
    return {one.name: one.value for one in listed(partial(decode, _Variable))(value, path)}


def names(value: object, path: str) -> tuple[str, ...]:
    """A list of objects that have a name alone, such as references."""
    return tuple(one.name for one in listed(partial(decode, _Variable))(value, path))


@dataclass(frozen=True, slots=True)
class _Variable:
    name: Annotated[str, at("name", required=True)]
    value: Annotated[str, at("value")] = ""


def _mapping(value: object, path: str) -> dict[str, str]:
    """The object itself: thousands of values share it with what they were read from."""
    inner = as_type(value, dict, path)
    for key, one in inner.items():
        as_type(one, str, f"{path}.{key}")
    return inner


def _choice(words: Mapping[str, Enum], value: object, path: str) -> Enum:
    text = as_type(value, str, path)
    if text not in words:
        raise unreadable(path, f"{text[:40]!r} is none of {', '.join(words)}")
    return words[text]
