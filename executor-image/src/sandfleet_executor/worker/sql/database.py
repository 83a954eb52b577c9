"""DuckDB: how it is opened, statements and their rows, tables in and out, errors with their places."""

import contextlib
import os
import re
import shutil
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa
from duckdb import CatalogException

from ..base import tables
from . import looks
from .looks import quoted

__all__ = ["CatalogException", "Database", "Refused", "Result", "described"]
SPILL = "/tmp/.sql"  # noqa: S108 the session's own /tmp
MIB = 1 << 20
# DuckDB's share of the sandbox's memory, and of what is free in /tmp.
MEMORY_SHARE, SPILL_SHARE = 2, 2
MAX_THREADS = 4
# Rows that are shown of one statement; the others are counted.
SHOWN_ROWS = 50
BATCH_ROWS = 1 << 17
# What `last` may hold, in bytes, at most and of the sandbox's memory.
LAST_BYTES, LAST_SHARE = 256 * MIB, 8
LINE = re.compile(r"^LINE (\d+):", re.MULTILINE)
HUGEINT = pa.decimal128(38, 0)
# Its names for what the contexts of all languages call alike.
NAMES = {"ParserException": "SyntaxError", "OutOfMemoryException": "MemoryError"}


class Refused(Exception):
    """A statement that is not run."""


@dataclass
class Result:
    """The rows of one statement: the first ones, and how many there are."""

    names: list[str]
    types: list[str]
    # By column.
    shown: list[list[Any]] = field(default_factory=list)
    rows: int = 0

    @property
    def left_out(self) -> int:
        return self.rows - (len(self.shown[0]) if self.shown else 0)


class Database:
    """One connection to a database in memory."""

    def __init__(self, memory_bytes: int) -> None:
        """`memory_bytes`: the sandbox's limit; 0: not known."""
        spill = f"{SPILL}-{os.getpid()}"
        limit = {"memory_limit": f"{max(64, memory_bytes // MEMORY_SHARE // MIB)}MiB"} if memory_bytes else {}
        config = {
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
            "custom_extension_repository": "/dev/null",
            "python_enable_replacements": "false",
            "threads": str(min(MAX_THREADS, len(os.sched_getaffinity(0)))),
            "temp_directory": spill,
            "max_temp_directory_size": f"{max(16, shutil.disk_usage('/tmp').free // SPILL_SHARE // MIB)}MiB",  # noqa: S108
            **limit,
        }
        self._con = duckdb.connect(":memory:", config=config)
        # All files of the sandbox, with its user's rights, and nothing that would be fetched or loaded.
        for setting in (
            "allowed_directories=['/']",
            "enable_external_access=false",
            # It would be in the output of the cell.
            "enable_progress_bar=false",
            "lock_configuration=true",
        ):
            self._con.execute(f"SET {setting}")
        self._last_bytes = min(LAST_BYTES, memory_bytes // LAST_SHARE) if memory_bytes else LAST_BYTES
        self._last: Any = tables.RefusedError("NoTable", "cannot get last: no statement has had rows yet")
        # Frames of the Python context that this cell has named.
        self._lent: set[str] = set()

    def interrupt(self) -> None:
        """From another thread."""
        self._con.interrupt()

    def statements(self, source: str) -> list[Any]:
        """Raises duckdb.ParserException."""
        return list(self._con.extract_statements(source))

    def run(self, statement: Any, check: Callable[[], None]) -> Result | None:
        """Runs a statement; its rows, if it is one that has rows. `check` is called now and then, and may raise."""
        if statement.type == duckdb.StatementType.LOAD:
            raise Refused("cannot install or load an extension: a sandbox has those that are built in")
        query = statement.query.strip()
        if statement.expected_result_type != [duckdb.ExpectedResultType.QUERY_RESULT]:
            self._con.execute(query)
            return None
        try:
            relation = self._con.sql(query)
        except (duckdb.BinderException, CatalogException) as error:
            raise self._placed(query) or error from None
        if relation is None:
            return None
        reader = relation.to_arrow_reader(BATCH_ROWS)
        schema = reader.schema
        result = Result(
            list(schema.names), [str(each).strip('"') for each in relation.types], [[] for _ in schema.names]
        )
        kept: list[Any] | None = []
        size = 0
        for batch in reader:
            check()
            if (room := SHOWN_ROWS - (result.rows)) > 0:
                for shown, values in zip(result.shown, batch.slice(0, room).columns, strict=True):
                    shown.extend(values.to_pylist())
            result.rows += batch.num_rows
            size += batch.nbytes
            if kept is not None:
                kept = [*kept, batch] if size <= self._last_bytes else None
        self._keep(schema, kept)
        return result

    def _placed(self, query: str) -> Exception | None:
        """The same error with its line, which a relation's lacks. EXPLAIN runs nothing."""
        try:
            self._con.execute(f"EXPLAIN\n{query}").fetchall()
        except (duckdb.BinderException, CatalogException) as error:
            return type(error)(LINE.sub(lambda found: f"LINE {int(found[1]) - 1}:", str(error), count=1))
        except duckdb.Error:
            # What cannot be explained, as EXPLAIN itself.
            pass
        return None

    def _keep(self, schema: Any, batches: list[Any] | None) -> None:
        if batches is None:
            why = f"cannot get last: it has more than {self._last_bytes} bytes; make a table of it, or fewer rows"
            self._last = tables.RefusedError("TooLarge", why)
        else:
            self._last = fitted(pa.Table.from_batches(batches, schema))

    def look(self, kind: str, code: str, cursor: int, seconds: float) -> bytes:
        """A completion or an inspection, as the packet that answers."""
        return looks.look(self._con, kind, code, cursor, seconds)

    # Tables in and out

    def lend(self, name: str, table: Any) -> None:
        """A frame of the Python context, for this cell."""
        self._con.register(name, table)
        self._lent.add(name)

    def forget_frames(self) -> None:
        for name in self._lent:
            self._con.unregister(name)
        self._lent.clear()

    def give(self, header: Mapping[str, Any], sock: socket.socket) -> None:
        """Sends a table by its name, or what the last statement with rows has shown, as `last`."""
        name = str(header["name"])
        try:
            tables.send(sock, header, self._table(name, int(header["most_bytes"])))
        except tables.RefusedError as error:
            tables.refuse(sock, error)

    def _table(self, name: str, most: int) -> Any:
        """Raises RefusedError."""
        batches, size = [], 0
        try:
            reader = self._con.table(quoted(name)).to_arrow_reader(BATCH_ROWS)
            for batch in reader:
                batches.append(batch)
                size += batch.nbytes
                if size > most:
                    why = f"cannot get {name}: it has more than the limit of {most} bytes"
                    raise tables.RefusedError("TooLarge", why)
        except duckdb.CatalogException:
            if name == "last" and isinstance(self._last, pa.Table):
                return self._last
            if name == "last":
                raise self._last from None
            raise tables.RefusedError("NoTable", f"cannot get {name}: there is no table of that name") from None
        except (duckdb.Error, MemoryError) as error:
            # A view reads its rows now.
            raise _refused(error, f"cannot get {name}", "NotATable") from None
        return fitted(pa.Table.from_batches(batches, reader.schema))

    def take(self, header: Mapping[str, Any], sock: socket.socket) -> None:
        """Makes a table of what comes."""
        name = str(header["name"])
        try:
            table, _ = tables.take(sock, name, "pyarrow")
            self._make(name, table)
        except tables.RefusedError as error:
            tables.refuse(sock, error)
        else:
            tables.acknowledge(sock, table, "pyarrow")

    def _make(self, name: str, table: Any) -> None:
        """Raises RefusedError, where everything is as it was."""
        try:
            self._con.register("_came", table)
            self._con.execute(f"CREATE OR REPLACE TABLE {quoted(name)} AS SELECT * FROM _came")  # noqa: S608  the name is quoted
        except (duckdb.Error, MemoryError) as error:
            if isinstance(error, duckdb.NotImplementedException) and (culprit := self._untakable(table)):
                why = f"cannot put {name}: SQL has no column {culprit.name[:80]!r} of {str(culprit.type)[:80]}"
                raise tables.RefusedError("UnsupportedColumn", why) from None
            raise _refused(error, f"cannot put {name}", "NotTaken") from None
        finally:
            # In a transaction that has failed nothing can be done; the next table takes the name.
            with contextlib.suppress(duckdb.Error):
                self._con.unregister("_came")

    def _untakable(self, table: Any) -> Any:
        """The first column of which DuckDB can make none, if there is one."""
        for number, column in enumerate(table.schema):
            try:
                self._con.register("_came", table.slice(0, 0).select([number]))
            except duckdb.NotImplementedException:
                return column
            except duckdb.Error:
                return None
        return None


def _refused(error: duckdb.Error | MemoryError, what: str, reason: str) -> Exception:
    if isinstance(error, duckdb.InterruptException):
        return error
    if isinstance(error, (duckdb.OutOfMemoryException, MemoryError)):
        return tables.RefusedError("OutOfMemory", f"{what}: there is no memory for it: {error}")
    return tables.RefusedError(reason, f"{what}: {error}")


def fitted(table: Any) -> Any:
    """Sums of integers (HUGEINT) come as decimals of 38 digits: they are integers again, or floats above 64 bits."""
    for number, field_ in enumerate(table.schema):
        if field_.type == HUGEINT:
            try:
                column = table.column(number).cast(pa.int64())
            except pa.ArrowInvalid:
                column = table.column(number).cast(pa.float64())
            table = table.set_column(number, field_.name, column)
    return table


def described(error: Exception, source: str, at: int, number: int) -> dict[str, Any]:
    """The report of an error. `at`: where its statement begins in the cell."""
    name = NAMES.get(type(error).__name__, type(error).__name__)
    text = str(error)
    found = LINE.search(text)
    first = 0 if name == "SyntaxError" else source.count("\n", 0, at)
    line = first + (int(found[1]) if found else 1)
    if found and first:
        text = f"{text[: found.start(1)]}{line}{text[found.end(1) :]}"
    lines = source.splitlines()
    place = {"file": f"cell-{number}.sql", "line": line, "function": ""}
    frame = {**place, "source": lines[line - 1][:1000] if 0 < line <= len(lines) else ""}
    return {"name": name, "value": text, "traceback": "", "frames": [frame]}
