"""Tables as Arrow IPC, where code and host have pyarrow. No threads: a context with threads cannot be copied."""

from functools import cache
from importlib.util import find_spec
from typing import Any


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
    import pyarrow as pa

    try:
        with pa.ipc.open_stream(data, options=pa.ipc.IpcReadOptions(use_threads=False)) as stream:
            table = stream.read_all()
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"cannot read a table: {error}") from None
    if kind == "pandas" and has("pandas"):
        return table.to_pandas(use_threads=False)
    if kind == "polars" and has("polars"):
        import polars as pl

        return pl.from_arrow(table)
    return table
