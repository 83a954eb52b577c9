"""Tables as Arrow IPC, where both sides have pyarrow (the extra `sandfleet[arrow]`). What is read is hostile."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

# Each value of a column is at least a bit.
CELLS_PER_BYTE = 8
MAX_DEPTH = 16
# In the flatbuffers of Arrow's messages: MessageHeader, and places of fields.
_DICTIONARY, _RECORDS = 2, 3
_HEADER_TYPE, _HEADER, _DICTIONARY_DATA, _COMPRESSION = 1, 2, 1, 3
_SCHEMA = {"type": "array", "items": {"type": "object"}, "format": "table"}


@cache
def has(library: str) -> bool:
    """Whether it can be imported."""
    return find_spec(library) is not None


def kind_of(value: Any) -> str:
    """Its library, "" for what is no table: pandas, polars and pyarrow have tables, and all that Arrow's interface."""
    if isinstance(value, type) or not hasattr(value, "__arrow_c_stream__") or not hasattr(value, "columns"):
        return ""
    library = type(value).__module__.partition(".")[0]
    return library if library in {"pandas", "polars"} else "pyarrow"


def written(value: Any) -> bytes | None:
    """The table as a stream of Arrow; None where Arrow has no such columns."""
    import pyarrow as pa

    try:
        # What polars gives by Arrow's interface has views, which not every reader knows.
        table = value.to_arrow() if kind_of(value) == "polars" else pa.table(value)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return None
    data: bytes = sink.getvalue().to_pybytes()
    return data


def read(data: bytes, kind: Any) -> Any:
    """The table, in the library that `kind` names where that is installed, or as one of pyarrow. Raises ValueError."""
    if not has("pyarrow"):
        raise ValueError("cannot read a table: pyarrow is not installed; it comes with the extra sandfleet[arrow]")
    import pyarrow as pa

    try:
        if any(map(_is_compressed, pa.ipc.MessageReader.open_stream(data))):
            raise ValueError("cannot read a table: it is compressed")
        with pa.ipc.open_stream(data) as stream:
            for field in stream.schema:
                _check(field.type, 0)
            table = stream.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, struct.error) as error:
        raise ValueError(f"cannot read a table: {error}") from None
    if table.num_rows * max(1, table.num_columns) > CELLS_PER_BYTE * len(data):
        raise ValueError("cannot read a table: it has more rows than its bytes can hold")
    return _as(table, kind)


def _as(table: Any, kind: Any) -> Any:
    """Raises ValueError."""
    try:
        if kind == "pandas" and has("pandas"):
            # What the sandbox says of an index is not believed: it is a column.
            return table.to_pandas(ignore_metadata=True)
        if kind == "polars" and has("polars"):
            import polars as pl

            return pl.from_arrow(table)
    except Exception as error:  # noqa: BLE001  each library has its own
        raise ValueError(f"cannot read a table with {kind}: {error}") from None
    return table


def _check(kind: Any, depth: int) -> None:
    """Raises ValueError for a type whose values may be larger than its bytes, or that another library reads."""
    from pyarrow import types

    if depth > MAX_DEPTH:
        raise ValueError("cannot read a table: its columns are nested too deeply")
    if types.is_dictionary(kind):
        _check(kind.value_type, depth + 1)
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind):
        _check(kind.key_type if types.is_map(kind) else kind.value_type, depth + 1)
        _check(kind.item_type if types.is_map(kind) else kind.value_type, depth + 1)
    elif types.is_struct(kind):
        for number in range(kind.num_fields):
            _check(kind.field(number).type, depth + 1)
    elif not (
        (types.is_null(kind) and depth == 0)
        or (types.is_primitive(kind) or types.is_decimal(kind) or types.is_fixed_size_binary(kind))
        or (
            types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind)
        )
    ):
        raise ValueError(f"cannot read a table: it has a column of type {str(kind)[:80]}")


def _is_compressed(message: Any) -> bool:
    """Whether a message has a compressed body: its size says nothing then. Raises struct.error."""
    data = bytes(message.metadata)
    root = struct.unpack_from("<I", data)[0]
    place = _field(data, root, _HEADER_TYPE)
    header = data[place] if place and place < len(data) else 0
    if header not in {_DICTIONARY, _RECORDS}:
        return False
    batch = _referred(data, _field(data, root, _HEADER))
    if header == _DICTIONARY:
        batch = _referred(data, _field(data, batch, _DICTIONARY_DATA))
    return _field(data, batch, _COMPRESSION) != 0


def _field(data: bytes, table: int, number: int) -> int:
    """Where a field of a table of flatbuffers begins; 0 where it is left out."""
    names = table - struct.unpack_from("<i", data, table)[0]
    size = struct.unpack_from("<H", data, names)[0]
    slot = 4 + 2 * number
    offset = struct.unpack_from("<H", data, names + slot)[0] if slot + 2 <= size else 0
    return table + offset if offset else 0


def _referred(data: bytes, place: int) -> int:
    return place + int(struct.unpack_from("<I", data, place)[0]) if place else place


# Parameters of tools


def annotated(hints: Mapping[str, Any]) -> dict[str, Any]:
    """Types of parameters as pydantic checks them: a parameter of a table's type takes rows, and any table."""
    return {name: _annotated(hint) for name, hint in hints.items()}


def _annotated(hint: Any) -> Any:
    is_union = get_origin(hint) in {Union, UnionType}
    kinds = set(get_args(hint)) if is_union else {hint}
    optional, kinds = NoneType in kinds, kinds - {NoneType}
    kind = kinds.pop() if len(kinds) == 1 else None
    if not isinstance(kind, type) or not hasattr(kind, "__arrow_c_stream__") or not hasattr(kind, "columns"):
        return hint
    from pydantic import BeforeValidator, WithJsonSchema

    library = kind.__module__.partition(".")[0]
    take = BeforeValidator(lambda value: None if optional and value is None else _taken(value, library))
    return Annotated[Any, take, WithJsonSchema(_SCHEMA)]


def _taken(value: Any, library: str) -> Any:
    """A table of the library that the tool wants. Raises ValueError."""
    if not has("pyarrow"):
        raise ValueError("it takes a table, and pyarrow is not installed on the host: sandfleet[arrow] brings it")
    import pyarrow as pa

    if kind_of(value) == library:
        return value
    try:
        table = pa.Table.from_pylist(value) if isinstance(value, list) else pa.table(value)
    except (pa.ArrowException, ValueError, TypeError, AttributeError):
        raise ValueError("Input should be a table, or a list of rows") from None
    return _as(table, library)
