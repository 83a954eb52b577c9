"""What a session has received: between the API's numbers and the words of Python."""

from __future__ import annotations

from collections.abc import Iterable

from sandfleet._wire import api
from sandfleet._wire.convert.enums import numbers_of, words_of
from sandfleet.errors import InvalidArgument


def numbers(marks: Iterable[str]) -> list[int]:
    """Write marks. Raises InvalidArgument."""
    known = numbers_of(api.fleet.Mark)
    if unknown := sorted(set(marks) - known.keys()):
        raise InvalidArgument(f'cannot mark the session with {unknown[0]!r}: marks are "untrusted" and "secret"')
    return [known[mark] for mark in marks]


def words(marks: Iterable[int]) -> frozenset[str]:
    """Read marks. One of a newer release counts as all that this one knows."""
    known = words_of(api.fleet.Mark)
    found = [known.get(mark) for mark in marks]
    return frozenset(known.values()) if None in found else frozenset(word for word in found if word)
