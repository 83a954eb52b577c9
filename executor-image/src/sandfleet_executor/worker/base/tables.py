"""Tables as Arrow IPC, where code and host have pyarrow. No threads: a context with threads cannot be copied.

Between a context and the executor, or another context, a table goes over a stream socket: a frame that says what it is
({"event":"table","kind","rows","columns","bytes"}), then a stream of Arrow IPC up to the end of the socket. A refusal
({"event":"refused","reason","message"}) is a frame alone.
"""

import io
import socket
from functools import cache
from importlib.util import find_spec
from typing import Any

from . import frames

LIBRARIES = ("pandas", "polars", "pyarrow")
# Rows of one batch: what a reader has in memory beside the table.
BATCH_ROWS = 1 << 17
BUFFER_BYTES = 1 << 20


class RefusedError(Exception):
    """There is no such table, or it cannot be moved. `reason` is a word of the API."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


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


def as_arrow(value: Any) -> Any:
    """The table as one of pyarrow. Raises ValueError where Arrow has no such columns."""
    import pyarrow as pa

    try:
        # What polars gives by Arrow's interface has views, which not every reader knows.
        return value.to_arrow() if kind_of(value) == "polars" else pa.table(value, nthreads=1)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise ValueError(str(error)) from None


def written(value: Any) -> bytes | None:
    """The table as a stream of Arrow; None where Arrow has no such columns."""
    import pyarrow as pa

    try:
        table = as_arrow(value)
    except ValueError:
        return None
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def read(data: Any, kind: Any) -> Any:
    """The table of a stream of Arrow (bytes or a file), in the library that `kind` names. Raises ValueError."""
    return made(read_arrow(data), kind)


def read_arrow(data: Any) -> Any:
    """The table of a stream of Arrow (bytes or a file), as one of pyarrow. Raises ValueError."""
    import pyarrow as pa

    try:
        with pa.ipc.open_stream(data, options=pa.ipc.IpcReadOptions(use_threads=False)) as stream:
            return stream.read_all()
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"cannot read a table: {error}") from None


def made(table: Any, kind: Any) -> Any:
    """The table in the library that `kind` names where that is installed, or as one of pyarrow."""
    if kind == "pandas" and has("pandas"):
        return table.to_pandas(use_threads=False)
    if kind == "polars" and has("polars"):
        import polars as pl

        return pl.from_arrow(table)
    return table


# Over a socket


def send(sock: socket.socket, name: str, value: Any, most_bytes: int) -> None:
    """Sends a table to the end, or a refusal. Raises OSError where the other side has gone."""
    try:
        table = _checked(name, value, most_bytes)
    except RefusedError as error:
        refuse(sock, error)
        return
    import pyarrow as pa

    acknowledge(sock, table, kind_of(value))
    with pa.ipc.new_stream(pa.PythonFile(_Sink(sock), mode="w"), table.schema) as stream:
        stream.write_table(table, max_chunksize=BATCH_ROWS)


def acknowledge(sock: socket.socket, table: Any, kind: str) -> None:
    """Says what a table of pyarrow is. Raises OSError."""
    said = {"kind": kind, "rows": table.num_rows, "columns": table.num_columns, "bytes": table.nbytes}
    frames.send(sock, {"event": "table", **said})


def refuse(sock: socket.socket, error: RefusedError) -> None:
    """Raises OSError."""
    frames.send(sock, {"event": "refused", "reason": error.reason, "message": str(error)[:1000]})


def receive(sock: socket.socket) -> tuple[Any, str]:
    """The table as one of pyarrow, and the library that it is of. Raises RefusedError and ValueError."""
    frame = frames.receive(sock)
    if frame is None:
        raise ValueError("cannot read a table: nothing came")
    said = frame.header
    if said.get("event") == "refused":
        raise RefusedError(str(said.get("reason")), str(said.get("message")))
    check_library()
    with sock.makefile("rb", buffering=BUFFER_BYTES) as file:
        table = read_arrow(file)
    if "rows" in said and table.num_rows != said["rows"]:
        raise ValueError("cannot read a table: it ended too early")
    return table, str(said.get("kind"))


def check_library() -> None:
    """Raises RefusedError."""
    if not has("pyarrow"):
        raise RefusedError("LibraryMissing", "cannot move tables: the sandbox has no pyarrow; `pip install pyarrow`")


def _checked(name: str, value: Any, most_bytes: int) -> Any:
    check_library()
    if not kind_of(value):
        raise RefusedError("NotATable", f"cannot get {name}: it is no table, but a {type(value).__name__}")
    try:
        table = as_arrow(value)
    except ValueError as error:
        raise RefusedError("NotATable", f"cannot get {name}: Arrow has no such columns: {error}") from None
    if table.nbytes > most_bytes:
        raise RefusedError("TooLarge", f"cannot get {name}: it has {table.nbytes} bytes, and the limit is {most_bytes}")
    return table


class _Sink(io.RawIOBase):
    """All that is written to it is sent."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self._sock = sock

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._sock.sendall(data)
        return len(data)
