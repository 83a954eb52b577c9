"""JSON objects read field by field. A field of a wrong type raises FleetError with "cannot read PATH: why"; null is absent."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar, cast

from sandfleet_operator.api.errors import FleetError, invalid
from sandfleet_operator.api.quantities import parse_bytes, parse_cores
from sandfleet_operator.api.times import parse_time

E = TypeVar("E", bound=Enum)
# bool is an int to Python, but not to JSON.
NAMES: Mapping[type, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


def unreadable(path: str, why: str) -> FleetError:
    return invalid("InvalidSpec", f"cannot read {path}: {why}", path)


def as_type(value: object, wanted: type, path: str) -> object:
    if type(value) is not wanted:
        raise unreadable(path, f"{NAMES.get(type(value), type(value).__name__)} stands where {NAMES[wanted]} should be")
    return value


@dataclass(frozen=True, slots=True)
class Fields:
    """One JSON object and the path that led to it."""

    values: Mapping[str, object]
    path: str

    @classmethod
    def of(cls, value: object, path: str) -> "Fields":
        return cls(cast("Mapping[str, object]", as_type(value, dict, path)), path)

    def at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def has(self, name: str) -> bool:
        return self.values.get(name) is not None

    def text(self, name: str, default: str = "") -> str:
        return cast("str", as_type(self.values[name], str, self.at(name))) if self.has(name) else default

    def required_text(self, name: str) -> str:
        text = self.text(name)
        if not text:
            raise unreadable(self.at(name), "it is missing")
        return text

    def integer(self, name: str, default: int = 0) -> int:
        return cast("int", as_type(self.values[name], int, self.at(name))) if self.has(name) else default

    def required_integer(self, name: str) -> int:
        if not self.has(name):
            raise unreadable(self.at(name), "it is missing")
        return self.integer(name)

    def maybe_integer(self, name: str) -> int | None:
        return self.integer(name) if self.has(name) else None

    def maybe_number(self, name: str) -> float | None:
        if not self.has(name):
            return None
        # JSON writes a whole one without a point.
        value = self.values[name]
        return float(value) if type(value) is int else cast("float", as_type(value, float, self.at(name)))

    def maybe_seconds(self, name: str) -> float | None:
        return float(self.integer(name)) if self.has(name) else None

    def flag(self, name: str, *, default: bool = False) -> bool:
        return cast("bool", as_type(self.values[name], bool, self.at(name))) if self.has(name) else default

    def choice(self, name: str, kind: type[E]) -> E | None:
        return as_choice(self.text(name), kind, self.at(name)) if self.has(name) else None

    def choices(self, name: str, kind: type[E]) -> tuple[E, ...]:
        return tuple(as_choice(cast("str", as_type(value, str, path)), kind, path) for value, path in self._list(name))

    def size(self, name: str, default: int = 0) -> int:
        """A quantity in bytes."""
        return parse_bytes(self.values[name], self.at(name)) if self.has(name) else default

    def cores(self, name: str, default: float = 0.0) -> float:
        return parse_cores(self.values[name], self.at(name)) if self.has(name) else default

    def time(self, name: str) -> float:
        """Seconds since the epoch; 0 where there is none."""
        return parse_time(self.text(name), self.at(name)) if self.has(name) else 0.0

    def inner(self, name: str) -> "Fields":
        """An object of its own; an absent one has no fields."""
        return Fields.of(self.values[name] if self.has(name) else {}, self.at(name))

    def items(self, name: str) -> "list[Fields]":
        return [Fields.of(value, path) for value, path in self._list(name)]

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(cast("str", as_type(value, str, path)) for value, path in self._list(name))

    def integers(self, name: str) -> tuple[int, ...]:
        return tuple(cast("int", as_type(value, int, path)) for value, path in self._list(name))

    def mapping(self, name: str) -> dict[str, str]:
        inner = self.inner(name)
        return {key: cast("str", as_type(value, str, inner.at(key))) for key, value in inner.values.items()}

    def _list(self, name: str) -> list[tuple[object, str]]:
        path = self.at(name)
        values = cast("list[object]", as_type(self.values[name], list, path)) if self.has(name) else []
        return [(value, f"{path}[{number}]") for number, value in enumerate(values)]


def as_choice(text: str, kind: type[E], path: str) -> E:
    try:
        return kind(text)
    except ValueError:
        words = ", ".join(str(one.value) for one in kind)
        raise unreadable(path, f"{text[:40]!r} is none of {words}") from None
