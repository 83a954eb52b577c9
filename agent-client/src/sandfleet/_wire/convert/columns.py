"""Bounds on what columns of Arrow unfold to: the bytes of a hostile table may be few."""

from __future__ import annotations

from typing import Any


def dictionary_values(table: Any) -> int:
    """How many values of dictionaries are looked at: a stream has a dictionary once for any number of batches."""
    from pyarrow import types

    return sum(
        len(chunk.dictionary) for column in table.columns if types.is_dictionary(column.type) for chunk in column.chunks
    )


def boxes(table: Any) -> int:
    """How many objects of Python pandas makes of a table."""
    return sum(_boxes(chunk, boxed=False) for column in table.columns for chunk in column.chunks)


def _boxes(array: Any, *, boxed: bool) -> int:
    """`boxed`: each value is in a list or dict."""
    from pyarrow import types

    kind = array.type
    if types.is_dictionary(kind):
        return _boxes(array.dictionary, boxed=True)
    if types.is_struct(kind):
        return len(array) + sum(_boxes(array.field(number), boxed=True) for number in range(kind.num_fields))
    if types.is_map(kind):
        entries = len(array.keys) + _boxes(array.keys, boxed=True) + _boxes(array.items, boxed=True)
        return len(array) + entries
    if types.is_nested(kind):
        return len(array) + _boxes(array.values, boxed=False)
    of_numpy = (types.is_integer, types.is_floating, types.is_boolean, types.is_timestamp, types.is_duration)
    has_pointers_only = types.is_null(kind) or any(is_one(kind) for is_one in of_numpy)
    return len(array) if boxed or not has_pointers_only else 0
