"""Objects as the store keeps them: they never change, so what is read from one is read once."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from sandfleet_operator.api.errors import FleetError

T = TypeVar("T")


class Kept(dict[str, Any]):
    """Never change it, nor what is in it."""

    __slots__ = ("_values",)

    def __init__(self, obj: dict[str, Any]) -> None:
        super().__init__(obj)
        # A reader, then what it has read or why it could not, and so on: there are one or two.
        self._values: tuple[object, ...] = ()

    def read_from(self, reader: Callable[[Any], object], whole: dict[str, Any]) -> None:
        """Keeps what `reader`, which `once` has made, makes of `whole`: this object keeps less of it."""
        read = getattr(reader, "__wrapped__")  # noqa: B009 - `wraps` has set it
        self._values = (*self._values, read, _read(read, Kept(whole)))

    def value(self, read: Callable[[Any], T]) -> T:
        """What `read` makes of the object. Raises FleetError as it does."""
        known = self._values
        for place in range(0, len(known), 2):
            if known[place] is read:
                return _told(read, known[place + 1])
        found = _read(read, self)
        self._values = (*known, read, found)
        return _told(read, found)


class _Unreadable:
    def __init__(self, error: FleetError) -> None:
        self.problem = error.problem


def _read(read: Callable[[Any], object], obj: Kept) -> object:
    try:
        return read(obj)
    except FleetError as error:
        return _Unreadable(error)


def _told(_read: Callable[[Any], T], found: object) -> T:
    if isinstance(found, _Unreadable):
        raise FleetError(found.problem)
    return cast("T", found)


def once(read: Callable[[Any], T]) -> Callable[[Any], T]:
    """A reader that reads a kept object once, and any other each time."""

    @wraps(read)
    def reader(obj: Any) -> T:
        return obj.value(read) if isinstance(obj, Kept) else read(obj)

    return reader
