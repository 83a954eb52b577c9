"""Values of SQLite as columns of Arrow, and of Arrow as values of SQLite.

SQLite has types of values, and of columns only what was declared. A column has the type of the values in its first
rows; what is declared decides where these leave a choice.
"""

import re
import sqlite3
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from .looks import quoted

# Rows whose values say what a column is.
SAMPLE_ROWS = 10_000
# Rows that are read together: so many at first and at most, and about as many bytes as that.
FIRST_ROWS, MOST_ROWS, BATCH_BYTES = 16, 10_000, 16 << 20
# Of the first rows: which types of values there are, whether a text is no time, and whether a number is no truth.
LOOK = (
    "SELECT max(typeof(v) = 'integer'), max(typeof(v) = 'real'), max(typeof(v) = 'text'), max(typeof(v) = 'blob'), "
    "max(typeof(v) = 'text' AND julianday(v) IS NULL), max(v NOT IN (0, 1)) FROM (SELECT {} AS v FROM {} LIMIT {})"
)
# What Arrow raises of a value that is of another type.
UNFIT = (pa.ArrowException, TypeError, ValueError, OverflowError)
# In the declared types of numbers that may have fractions.
FRACTIONS = ("REAL", "FLOA", "DOUB", "DEC", "NUMERIC")
# What DuckDB declares that SQLite takes as it stands.
DECLARED = re.compile(r"[A-Z ]+(\(\d+(, ?\d+)?\))?")
# What goes from DuckDB to SQLite as it is.
STAYS = {"TINYINT", "UTINYINT", "SMALLINT", "USMALLINT", "INTEGER", "UINTEGER", "BIGINT", "FLOAT", "DOUBLE", "BLOB"}


class Column(NamedTuple):
    name: str
    type: Any
    # What DuckDB makes of it; empty if it stays as it is.
    cast: str = ""


class Seen(NamedTuple):
    """What LOOK has found in a column."""

    integers: bool = False
    reals: bool = False
    texts: bool = False
    blobs: bool = False
    timeless: bool = False
    numbers: bool = False


class Stream:
    """The rows of a table as a stream of Arrow, read from the file each time that one is asked for."""

    def __init__(self, lite: sqlite3.Connection, database: str, table: str, *, all_text: bool = False) -> None:
        """Raises sqlite3.Error."""
        self._lite = lite
        self._name = f"{database}.{table}"
        self._table = f"{quoted(database)}.{quoted(table)}"
        declared = lite.execute(f"PRAGMA {quoted(database)}.table_xinfo({quoted(table)})").fetchall()
        # Hidden columns are those of virtual tables.
        kinds = {name: kind for _, name, kind, *_, hidden in declared if hidden != 1}
        self._columns = [Column(name, pa.string()) if all_text else self._column(name, kinds[name]) for name in kinds]
        self._schema = pa.schema([(each.name, each.type) for each in self._columns])
        # Why it could not be read.
        self.failure = ""

    def _column(self, name: str, declared: str) -> Column:
        look = LOOK.format(quoted(name), self._table, SAMPLE_ROWS)
        return Column(name, *kind_of(declared.upper(), Seen(*map(bool, self._lite.execute(look).fetchone()))))

    @property
    def shown(self) -> str:
        """The columns, as DuckDB's view selects them."""
        names = [(quoted(each.name), each.cast) for each in self._columns]
        return ", ".join(f"CAST({name} AS {cast}) AS {name}" if cast else name for name, cast in names)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return pa.RecordBatchReader.from_batches(self._schema, self._batches()).__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[Any]:
        try:
            names = ", ".join(quoted(each.name) for each in self._columns)
            cursor = self._lite.execute(f"SELECT {names} FROM {self._table}")  # noqa: S608  the names are quoted
            size = FIRST_ROWS
            while rows := cursor.fetchmany(size):
                batch = self._batch(rows)
                yield batch
                most = len(rows) * BATCH_BYTES // max(batch.nbytes, 1)
                size = max(1, min(4 * size, MOST_ROWS, most))
        except (sqlite3.Error, ValueError) as error:
            self.failure = f"cannot read {self._name}: {error}"
            raise

    def _batch(self, rows: list[tuple[Any, ...]]) -> Any:
        columns = zip(self._columns, zip(*rows, strict=True), strict=True)
        return pa.record_batch([_array(column, found) for column, found in columns], schema=self._schema)


def _array(column: Column, found: tuple[Any, ...]) -> Any:
    """Raises ValueError."""
    try:
        return pa.array(found, column.type)
    except UNFIT:
        if column.type == pa.string():
            return pa.array(map(_text, found), column.type)
    other = next(value for value in found if not _fits(value, column.type))
    raise ValueError(
        f"column {column.name} is {column.type} in the first {SAMPLE_ROWS} rows, and then has a value of type "
        f"{type(other).__name__}; attach the file with (TYPE sqlite, ALL_VARCHAR)"
    )


def kind_of(declared: str, seen: Seen) -> tuple[Any, str]:
    """The Arrow type of a column, and what DuckDB makes of it."""
    if not (seen.integers or seen.reals or seen.texts or seen.blobs):
        return _of_declared(declared), ""
    others = seen.integers or seen.reals or seen.blobs
    if seen.texts or (seen.blobs and (seen.integers or seen.reals)):
        return pa.string(), "" if others or seen.timeless else _time_of(declared)
    if seen.blobs:
        return pa.binary(), ""
    if seen.reals or any(word in declared for word in FRACTIONS):
        return pa.float64(), ""
    return pa.int64(), "BOOLEAN" if "BOOL" in declared and not seen.numbers else ""


def _time_of(declared: str) -> str:
    if "DATETIME" in declared or "TIMESTAMP" in declared:
        return "TIMESTAMP WITH TIME ZONE" if "ZONE" in declared else "TIMESTAMP"
    return "DATE" if "DATE" in declared else ""


def _of_declared(declared: str) -> Any:
    """Of a column without values: the affinity that SQLite gives it."""
    if "INT" in declared:
        return pa.int64()
    if "BLOB" in declared:
        return pa.binary()
    if any(word in declared for word in FRACTIONS):
        return pa.float64()
    return pa.string()


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _fits(value: Any, kind: Any) -> bool:
    try:
        pa.array([value], kind)
    except UNFIT:
        return False
    return True


def declared(kind: str) -> str:
    """A type of DuckDB's for a table of SQLite."""
    return kind if DECLARED.fullmatch(kind) and "INTERVAL" not in kind else "TEXT"


def to_sqlite(name: str, kind: str) -> str:
    """What DuckDB makes of a column, so that SQLite has such values."""
    if kind.endswith("]") or kind.startswith(("STRUCT", "MAP", "UNION")):
        return f"CAST(to_json({name}) AS VARCHAR)"
    if kind == "BOOLEAN":
        return f"CAST({name} AS TINYINT)"
    if kind in ("HUGEINT", "UHUGEINT", "UBIGINT"):
        return f"CAST({name} AS BIGINT)"
    if kind.startswith("DECIMAL"):
        return f"CAST({name} AS DOUBLE)"
    if kind == "TIMESTAMP WITH TIME ZONE":
        # As functions of SQLite read it.
        return f"strftime(timezone('UTC', {name}), '%Y-%m-%d %H:%M:%S.%f+00:00')"
    return name if kind in STAYS else f"CAST({name} AS VARCHAR)"
