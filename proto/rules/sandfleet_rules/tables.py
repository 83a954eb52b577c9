"""Which objects are tables, and which columns of Arrow may come out of a sandbox.

The session refuses other columns with kind words; the client checks again, since a hostile session refuses nothing.
"""

import sys
from importlib.util import find_spec
from typing import Any

LIBRARIES = ("pandas", "polars", "pyarrow")
# Rows of one batch: what a reader has in memory beside the table.
BATCH_ROWS = 1 << 17
MAX_DEPTH = 16
# Where Arrow names the type of an extension that no library of this process has registered.
EXTENSION = b"ARROW:extension:name"
# In the metadata of a column that is not as it was: "text" or "renamed".
CHANGED = b"sandfleet:changed"


def has(library: str) -> bool:
    """Whether it can be imported. It may be installed, or removed, from one call to the next."""
    return sys.modules.get(library) is not None or find_spec(library) is not None


def kind_of(value: Any) -> str:
    """Its library, "" for what is no table: pandas, polars and pyarrow have tables, and all that Arrow's interface."""
    if isinstance(value, type) or not hasattr(value, "__arrow_c_stream__") or not hasattr(value, "columns"):
        return ""
    library = type(value).__module__.partition(".")[0]
    return library if library in {"pandas", "polars"} else "pyarrow"


def unique(names: list[str]) -> list[str]:
    """The names, of which each is there once: the second "a" is "a.1", as pandas reads files."""
    found: dict[str, None] = {}
    for name in names:
        numbers = (f"{name}.{number}" for number in range(1, len(names) + len(found) + 1))
        found[name if name not in found else next(each for each in numbers if each not in found)] = None
    return list(found)


def of_polars(frame: Any) -> Any:
    """The frame as a table of pyarrow. Raises ValueError."""
    if objects := [name for name, dtype in frame.schema.items() if _objects_within(dtype)]:
        raise ValueError(f"column {objects[0]!r} has objects of Python")
    # What polars gives by Arrow's interface has views, which not every reader knows.
    return frame.to_arrow()


def _objects_within(dtype: Any) -> bool:
    """Whether a column of polars has objects of Python. As Arrow they would be their addresses in this process."""
    import polars as pl

    inner = [dtype.inner] if hasattr(dtype, "inner") else [each.dtype for each in getattr(dtype, "fields", ())]
    return dtype == pl.Object or any(map(_objects_within, inner))


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
