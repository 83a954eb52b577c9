"""Tables as Arrow IPC, where code and host have pyarrow. No threads: a context with threads cannot be copied.

Between a context and the executor, or another context, a table goes over a stream socket: a frame that says what it is
({"event":"table","kind","rows","columns","bytes"}), then a stream of Arrow IPC up to the end of the socket. A refusal
({"event":"refused","reason","message"}) is a frame alone.
"""

import io
import socket
from collections.abc import Mapping
from typing import Any

from sandfleet_rules.tables import BATCH_ROWS, CHANGED, has, kind_of, of_polars, unique, why_not

from . import frames

# A table of smaller pieces is put together first: each costs a head.
SPLINTER_ROWS = 1 << 10
# How much larger than the table its stream may be before a larger buffer is needed.
BUFFER_BYTES = 1 << 18
# What a stream of Arrow ends with.
END = b"\xff\xff\xff\xff\0\0\0\0"


class RefusedError(Exception):
    """There is no such table, or it cannot be moved. `reason` is a word of the API."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def as_arrow(value: Any) -> Any:
    """The table as one of pyarrow. Raises ValueError where Arrow has no such columns, and MemoryError."""
    import pyarrow as pa

    try:
        return of_polars(value) if kind_of(value) == "polars" else pa.table(value, nthreads=1)
    except MemoryError:
        raise
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise ValueError("; ".join(map(str, error.args)) or type(error).__name__) from None


def carried(value: Any) -> Any:
    """As `as_arrow`; columns of pandas that have values of several types come as text, and each name is there once.

    The metadata of such a column says so. Raises ValueError and MemoryError.
    """
    try:
        return as_arrow(value)
    except ValueError:
        if kind_of(value) != "pandas":
            raise
    frame, own = value.copy(deep=False), [str(name) for name in value.columns]
    frame.columns = unique(own)
    changed = {new: b"renamed" for new, old in zip(frame.columns, own, strict=True) if new != old}
    for name in frame.columns:
        if frame[name].dtype == object and not _fits(frame[name]):
            frame[name] = [None if each is None or each != each else str(each) for each in frame[name]]  # noqa: PLR0124 - NaN
            changed[name] = b"text"
    table = as_arrow(frame)
    for name, how in changed.items():
        place = table.schema.get_field_index(name)
        table = table.set_column(place, table.field(place).with_metadata({CHANGED: how}), table.column(place))
    return table


def _fits(column: Any) -> bool:
    import pyarrow as pa

    try:
        pa.array(column, from_pandas=True)
    except MemoryError:
        raise
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return False
    return True


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
    """The table of a stream of Arrow (bytes or a file), as one of pyarrow. Raises ValueError and MemoryError."""
    import pyarrow as pa

    try:
        with pa.ipc.open_stream(data, options=pa.ipc.IpcReadOptions(use_threads=False)) as stream:
            return stream.read_all()
    except MemoryError:
        raise
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


def send(sock: socket.socket, header: Mapping[str, Any], value: Any) -> None:
    """Sends a table to the end, or a refusal, as the executor asks. Raises OSError where the other side has gone."""
    try:
        table = _checked(str(header["name"]), value, int(header["most_bytes"]), lent=bool(header.get("lent")))
    except RefusedError as error:
        refuse(sock, error)
        return
    import pyarrow as pa

    acknowledge(sock, table, kind_of(value))
    if (max((column.num_chunks for column in table.columns), default=0) - 1) * SPLINTER_ROWS > table.num_rows:
        table = table.combine_chunks()
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
    try:
        # The table is where its bytes have come to.
        table = read_arrow(data := _all_of(sock, int(said.get("size") or said.get("bytes") or 0)))
    except MemoryError:
        raise RefusedError("OutOfMemory", "cannot read a table: there is no memory for it") from None
    # A stream that has broken off between two batches reads like a shorter table.
    if bytes(data[-len(END) :]) != END or ("rows" in said and table.num_rows != said["rows"]):
        raise ValueError("cannot read a table: it ended too early")
    return table, str(said.get("kind"))


def _all_of(sock: socket.socket, about: int) -> Any:
    """All bytes that come, in one buffer of Arrow. `about`: how many there may be."""
    import pyarrow as pa

    buffer, size = pa.allocate_buffer(about + BUFFER_BYTES), 0
    while come := sock.recv_into(memoryview(buffer)[size:]):
        size += come
        if size == buffer.size:
            larger = pa.allocate_buffer(2 * size)
            memoryview(larger)[:size] = memoryview(buffer)
            buffer = larger
    return buffer.slice(0, size)


def take(sock: socket.socket, name: str, library: str = "") -> tuple[Any, Any]:
    """What comes, as one of pyarrow and as one of the library, or else of that it is for. Raises RefusedError."""
    try:
        table, wanted = receive(sock)
    except ValueError as error:
        raise RefusedError("NotArrow", f"cannot put {name}: {error}") from None
    kind = library or wanted
    try:
        return table, made(table, kind)
    except MemoryError:
        raise RefusedError("OutOfMemory", f"cannot put {name}: there is no memory for it as {kind}'s") from None
    except Exception as error:  # noqa: BLE001  each library has its own
        raise RefusedError("UnsupportedColumn", f"cannot put {name}: {kind} cannot have it: {error}") from None


def check_library() -> None:
    """Raises RefusedError."""
    if not has("pyarrow"):
        raise RefusedError("LibraryMissing", "cannot move tables: the sandbox has no pyarrow; `pip install pyarrow`")


def _checked(name: str, value: Any, most_bytes: int, *, lent: bool) -> Any:
    """`lent`: to another context, which is as little trusted as this one. A caller takes no columns that unfold."""
    check_library()
    if not kind_of(value):
        raise RefusedError("NotATable", f"cannot get {name}: it is no table, but a {type(value).__name__}")
    try:
        table = carried(value)
    except MemoryError:
        raise RefusedError("OutOfMemory", f"cannot get {name}: there is no memory for it as Arrow") from None
    except ValueError as error:
        raise RefusedError("UnsupportedColumn", f"cannot get {name}: Arrow has no such columns: {error}") from None
    for field in () if lent else table.schema:
        if why := why_not(field):
            raise RefusedError("UnsupportedColumn", f"cannot get {name}: its column {field.name[:80]!r} {why}")
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
