"""Enums of the API as values and words, matched by name: only the generated code has their numbers.

A number that is not in the results is of a newer API.
"""

from __future__ import annotations

from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.internal.enum_type_wrapper import _EnumTypeWrapper

    Wire = _EnumTypeWrapper[Any]

Member = TypeVar("Member", bound=Enum)


def names_of(wire: Wire) -> dict[int, str]:
    """Return the names of an enum's numbers, without the prefix that all of them have and without UNSPECIFIED."""
    prefix = wire.Name(0).removesuffix("UNSPECIFIED")
    return {number: name.removeprefix(prefix) for name, number in wire.items() if number}


def values_of(wire: Wire, values: type[Member]) -> Mapping[int, Member]:
    """Return the members of a Python enum by the numbers of the wire."""
    return _values_of(wire, values)


@cache
def _values_of(wire: Wire, values: Any) -> Mapping[int, Any]:  # the cache would forget the type of the members
    return {number: values[name] for number, name in names_of(wire).items() if name in values.__members__}


@cache
def words_of(wire: Wire) -> Mapping[int, str]:
    """Return an enum's names as words: NOT_NEEDED is "not-needed"."""
    return {number: name.lower().replace("_", "-") for number, name in names_of(wire).items()}


@cache
def reasons_of(wire: Wire) -> Mapping[int, str]:
    """Return an enum's names as reasons: NO_SPACE is "NoSpace"."""
    return {number: name.title().replace("_", "") for number, name in names_of(wire).items()}


@cache
def numbers_of(wire: Wire) -> Mapping[str, int]:
    """Return the numbers of an enum's words: the inverse of `words_of`."""
    return {word: number for number, word in words_of(wire).items()}
