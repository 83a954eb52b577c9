"""Which columns of Arrow may come out of a sandbox, and what they unfold to: the bytes of a hostile one may be few."""

from __future__ import annotations

from typing import Any

MAX_DEPTH = 16
# Where Arrow names the type of an extension that no library of this process has registered.
EXTENSION = b"ARROW:extension:name"


def objects_within(dtype: Any) -> bool:
    """Whether a column of polars has objects of Python. As Arrow they would be their addresses in this process."""
    import polars as pl

    inner = [dtype.inner] if hasattr(dtype, "inner") else [each.dtype for each in getattr(dtype, "fields", ())]
    return dtype == pl.Object or any(map(objects_within, inner))


def why_not(field: Any) -> str:
    """Why a column (a field of pyarrow) cannot come; empty if it can.

    Each value of one that can come has a bit at least, and no value is twice in memory that is once in the bytes.
    """
    return _why_not(field, 0)


def _why_not(field: Any, depth: int) -> str:
    import pyarrow as pa
    from pyarrow import types

    kind = field.type
    if isinstance(kind, pa.BaseExtensionType):
        return f"has the extension type {str(kind)[:80]}"
    if name := (field.metadata or {}).get(EXTENSION):
        # Other libraries, as polars, make a type of it.
        return f"has the extension type {name[:80].decode(errors='replace')}"
    if depth > MAX_DEPTH:
        return "is nested too deeply"
    if types.is_dictionary(kind):
        return "" if depth == 0 and _is_plain(kind.value_type) else "has categories within lists or of lists"
    if types.is_nested(kind):
        if not _is_folded(kind):
            return f"has the type {str(kind)[:80]}"
        return next(filter(None, (_why_not(kind.field(number), depth + 1) for number in range(kind.num_fields))), "")
    if _is_plain(kind) or (types.is_null(kind) and depth == 0):
        return ""
    return f"has the type {str(kind)[:80]}"


def _is_folded(kind: Any) -> bool:
    """Whether it is of lists or fields whose values follow each other, at least one for each of its own."""
    from pyarrow import types

    if types.is_struct(kind):
        return bool(kind.num_fields > 0)
    if types.is_fixed_size_list(kind):
        return bool(kind.list_size > 0)
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind))


def _is_plain(kind: Any) -> bool:
    from pyarrow import types

    if types.is_fixed_size_binary(kind):
        return bool(kind.byte_width > 0)
    texts = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    return bool(types.is_primitive(kind) or types.is_decimal(kind) or any(is_one(kind) for is_one in texts))


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
