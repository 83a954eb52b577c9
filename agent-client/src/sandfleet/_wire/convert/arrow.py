"""Tables as Arrow IPC, where both sides have pyarrow (the extra `sandfleet[arrow]`). What is read is hostile."""

from __future__ import annotations

import struct
import warnings
from typing import Any

from sandfleet_rules.tables import BATCH_ROWS, CHANGED, has, kind_of, of_polars, why_not

from sandfleet._wire.convert import columns

# What a file of tables is called. Parquet is written, and not read: its pages may hold far more than they say.
READ, WRITTEN = (".arrow", ".csv"), (".arrow", ".csv", ".parquet")
_MAGIC = b"ARROW1\0\0"
# The sandbox marks columns that it could not send as they are.
_CHANGES = {
    b"text": "it has values of several types, which came as text",
    b"renamed": "another column has its name, and this one got a number",
}
# Pandas' name for an index that has none.
_INDEX = "__index_level_0__"
# Each value of a column is at least a bit.
CELLS_PER_BYTE = 8
MAX_COLUMNS = 1 << 16
# Values of dictionaries that are looked at, and objects that pandas makes: so many anyway, and for each byte.
DICTIONARY_VALUES, DICTIONARY_VALUES_PER_BYTE = 1 << 28, 16
BOXES, BYTES_PER_BOX = 1 << 20, 4
# In the flatbuffers of Arrow's messages: MessageHeader, and places of fields.
_DICTIONARY, _RECORDS = 2, 3
_HEADER_TYPE, _HEADER, _DICTIONARY_DATA, _COMPRESSION = 1, 2, 1, 3


class TableError(ValueError):
    """It is no table that can be moved; `reason` is a word of the API."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def as_arrow(value: Any) -> Any:
    """The table as one of pyarrow. Raises TableError for what is no table, or has columns that Arrow has not."""
    if not has("pyarrow"):
        raise TableError("LibraryMissing", "pyarrow is not installed; it comes with the extra sandfleet[arrow]")
    if not (kind := kind_of(value)):
        raise TableError("NotATable", f"it is no table, but a {type(value).__name__}")
    import pyarrow as pa

    try:
        if kind == "polars":
            return of_polars(value)
        return pa.table(value)
    except MemoryError:
        raise
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        why = "; ".join(map(str, error.args)) or type(error).__name__
        raise TableError("UnsupportedColumn", f"Arrow has no such columns: {why}") from None


def streamed(table: Any) -> memoryview:
    """A table of pyarrow as a stream of Arrow."""
    import pyarrow as pa

    # What a sink that counts says of its size: one that grows copies what it has, again and again.
    counted = pa.MockOutputStream()
    _write(table, counted)
    data = pa.allocate_buffer(counted.size())
    _write(table, pa.FixedSizeBufferWriter(data))
    return memoryview(data)


def _write(table: Any, sink: Any) -> None:
    import pyarrow as pa

    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table, max_chunksize=BATCH_ROWS)


def written(value: Any) -> bytes | None:
    """The table as a stream of Arrow; None where Arrow has no such columns."""
    try:
        return bytes(streamed(as_arrow(value)))
    except ValueError:
        return None


def read(data: Any, kind: Any, rows: int | None = None) -> Any:
    """The table of a stream of Arrow, in the library that `kind` names where that is installed, or as one of pyarrow.

    `rows`: how many it is to have, where that is known. Raises TableError.
    """
    if not has("pyarrow"):
        raise _unreadable("pyarrow is not installed; it comes with the extra sandfleet[arrow]", "LibraryMissing")
    import pyarrow as pa

    try:
        if any(map(_is_compressed, pa.ipc.MessageReader.open_stream(data))):
            raise _unreadable("it is compressed")
        with pa.ipc.open_stream(data) as stream:
            _check_columns(stream.schema)
            table = stream.read_all()
        if columns.dictionary_values(table) > max(DICTIONARY_VALUES, DICTIONARY_VALUES_PER_BYTE * len(data)):
            raise _unreadable("it has too many batches for the size of its categories")
        table.validate(full=True)
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, struct.error) as error:
        raise _unreadable(str(error)) from None
    if rows is not None and table.num_rows != rows:
        raise _unreadable(f"{table.num_rows} rows came of {rows}")
    if table.num_rows * max(1, table.num_columns) > CELLS_PER_BYTE * len(data):
        raise _unreadable("it has more rows than its bytes can hold")
    if kind == "pandas" and has("pandas") and (boxes := columns.boxes(table)) > max(BOXES, len(data) // BYTES_PER_BOX):
        raise _unreadable(f"pandas makes {boxes} objects of it; polars and pyarrow make none", "TooLarge")
    return made(table, kind)


def _check_columns(schema: Any) -> None:
    """Raises TableError."""
    if len(schema) > MAX_COLUMNS:
        raise _unreadable(f"it has {len(schema)} columns, and the limit is {MAX_COLUMNS}", "TooLarge")
    for field in schema:
        if why := why_not(field):
            raise _unreadable(f"its column {field.name[:80]!r} {why}", "UnsupportedColumn")
        if change := _CHANGES.get((field.metadata or {}).get(CHANGED, b"")):
            warnings.warn(f"column {field.name[:80]!r}: {change}", stacklevel=2)


def _unreadable(why: str, reason: str = "NotArrow") -> TableError:
    return TableError(reason, f"cannot read a table: {why}")


def made(table: Any, kind: Any) -> Any:
    """The table in the library that `kind` names where that is installed, or as one of pyarrow. Raises TableError."""
    try:
        if kind == "pandas" and has("pandas"):
            # What the sandbox says of an index is not believed: one with a name is a column.
            frame = table.to_pandas(ignore_metadata=True)
            return frame.set_index(_INDEX).rename_axis(None) if _INDEX in frame.columns else frame
        if kind == "polars" and has("polars"):
            import polars as pl

            return pl.from_arrow(table)
    except Exception as error:  # noqa: BLE001  each library has its own
        raise _unreadable(f"{kind} cannot have it: {error}", "UnsupportedColumn") from None
    return table


def to_file(value: Any, suffix: str) -> memoryview:
    """The table as the contents of a file of that kind. Raises TableError."""
    table = as_arrow(value)
    import pyarrow as pa
    from pyarrow import csv, parquet

    sink = pa.BufferOutputStream()
    if suffix == ".csv":
        csv.write_csv(table, sink)
    elif suffix == ".parquet":
        parquet.write_table(table, sink)
    else:
        with pa.ipc.new_file(sink, table.schema) as file:
            file.write_table(table, max_chunksize=BATCH_ROWS)
    return memoryview(sink.getvalue())


def of_file(data: bytes, suffix: str, kind: str) -> Any:
    """The table in the contents of a file of that kind. Raises TableError."""
    if suffix != ".csv":
        # A file is a stream with a word before it, and a directory behind it.
        return read(data.removeprefix(_MAGIC), kind)
    if not has("pyarrow"):
        raise _unreadable("pyarrow is not installed; it comes with the extra sandfleet[arrow]", "LibraryMissing")
    import pyarrow as pa
    from pyarrow import csv

    try:
        options = csv.ConvertOptions(strings_can_be_null=True, null_values=[""], quoted_strings_can_be_null=False)
        return made(csv.read_csv(pa.BufferReader(data), convert_options=options), kind)
    except pa.ArrowException as error:
        raise _unreadable(str(error)) from None


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
