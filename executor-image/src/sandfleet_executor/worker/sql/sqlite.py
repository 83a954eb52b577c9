"""SQLite files: `ATTACH 'app.db' AS app (TYPE sqlite)`, as with DuckDB's own extension, which is not built in.

DuckDB has a database in memory of the name, with a view for each table of the file. A view reads a stream of Arrow,
which begins anew with each statement. What changes a table of the file is run by SQLite; the rows of an insertion are
DuckDB's. DuckDB itself can change nothing in these databases: they hold views.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import duckdb

from . import sqlite_values as values
from . import targets
from .looks import quoted
from .targets import Refused

MAGIC = b"SQLite format 3\0"
OPTIONS = {"type", "read_only", "all_varchar"}
# Tables of one file.
MAX_TABLES = 1000
# How long a statement waits for another program that has locked the file, in seconds.
LOCKED_SECONDS = 5.0
# Rows of an insertion that go to SQLite together.
BATCH_ROWS = 10_000
# Of DuckDB's: the rows of an insertion; and the streams of a file's tables.
ROWS, STREAM = "_rows", "_sqlite.{}.{}"
TABLES = "SELECT name FROM {}.sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite@_%' ESCAPE '@'"
STRAYS = "SELECT database_name, table_name FROM duckdb_tables() WHERE lower(database_name) IN (FROM (SELECT unnest(?)))"
ALONE = "; a change of a SQLite file is run by SQLite, which sees the file's tables alone"


class File:
    """An attached file, and the streams of its tables."""

    def __init__(self, name: str, *, all_text: bool) -> None:
        self.name = name
        # All columns are read as text.
        self.all_text = all_text
        # Its schema as of the views.
        self.version = -1
        self.streams: dict[str, values.Stream] = {}


class SqliteFiles:
    """The attached SQLite files of one context."""

    def __init__(self, duck: Any) -> None:
        self._duck = duck
        # It makes the views: a transaction of the user's has nothing to do with them.
        self._maker = duck.cursor()
        self._lite = sqlite3.connect(
            ":memory:", timeout=LOCKED_SECONDS, isolation_level=None, check_same_thread=False, uri=True
        )
        self._files: dict[str, File] = {}
        self._in_transaction = False

    def interrupt(self) -> None:
        """From another thread."""
        self._lite.interrupt()

    def refresh(self) -> None:
        """Before a cell: other programs may have made tables."""
        for file in self._files.values() if not self._in_transaction else ():
            # A file that is locked, or no database any more: what reads it says so.
            with suppress(sqlite3.Error, Refused):
                self._show(file)

    def failure(self) -> Refused | None:
        """Why the last stream that failed did, in words."""
        for file in self._files.values():
            for stream in file.streams.values():
                if stream.failure:
                    failure, stream.failure = stream.failure, ""
                    return Refused(failure)
        return None

    def run(self, kind: Any, query: str, check: Callable[[], None]) -> bool:
        """Whether the statement was one for SQLite, and was run. `check` is called now and then, and may raise."""
        match kind:
            case duckdb.StatementType.ATTACH:
                wish = targets.attach(query)
                return wish is not None and self._attach(wish)
            case duckdb.StatementType.DETACH:
                return self._detach(targets.detach(query))
            case duckdb.StatementType.TRANSACTION:
                self._transaction(query)
                return True
        change = targets.change(query) if self._files and kind != duckdb.StatementType.SELECT else None
        file = self._files.get(change.database.lower()) if change else None
        if change is None or file is None:
            return False
        self._change(file, change, query, check)
        return True

    # Files

    def _attach(self, wish: targets.Attach) -> bool:
        if wish.options.get("type") != "sqlite" and ("type" in wish.options or not _is_sqlite(wish.path)):
            return False
        if wish.options.keys() - OPTIONS:
            raise Refused(f"cannot attach {wish.path}: options are TYPE, READ_ONLY and ALL_VARCHAR")
        if self._in_transaction:
            raise Refused(f"cannot attach {wish.path}: a transaction is active")
        if wish.unless_there and wish.name.lower() in self._files:
            return True
        self._maker.execute(f"ATTACH ':memory:' AS {quoted(wish.name)}")
        file = File(wish.name, all_text=wish.says("all_varchar"))
        try:
            address = f"file:{quote(wish.path)}?mode={'ro' if wish.says('read_only') else 'rwc'}"
            self._lite.execute(f"ATTACH ? AS {quoted(wish.name)}", [address])
            self._files[wish.name.lower()] = file
            self._show(file)
        except (sqlite3.Error, duckdb.Error, Refused) as error:
            self._forget(file)
            raise Refused(f"cannot attach {wish.path}: {error}") from None
        return True

    def _detach(self, name: str) -> bool:
        file = self._files.get(name.lower())
        if file is None:
            return False
        if self._in_transaction:
            raise Refused(f"cannot detach {name}: a transaction is active")
        self._duck.execute(f"DETACH {quoted(file.name)}")
        self._forget(file)
        return True

    def _forget(self, file: File) -> None:
        """Removes what there is of it."""
        self._files.pop(file.name.lower(), None)
        for table in file.streams:
            self._register(file, table, None)
        with suppress(duckdb.Error):
            self._maker.execute(f"DETACH DATABASE IF EXISTS {quoted(file.name)}")
        with suppress(sqlite3.Error):
            self._lite.execute(f"DETACH {quoted(file.name)}")

    def _show(self, file: File) -> None:
        """Makes the views, where the file has other tables than before. Raises Refused and sqlite3.Error."""
        name = quoted(file.name)
        (version,) = self._lite.execute(f"PRAGMA {name}.schema_version").fetchone()
        if version == file.version:
            return
        tables = [table for (table,) in self._lite.execute(f"{TABLES.format(name)} LIMIT {MAX_TABLES + 1}")]
        if len(tables) > MAX_TABLES:
            raise Refused(f"it has more than {MAX_TABLES} tables")
        for gone in file.streams.keys() - set(tables):
            self._maker.execute(f"DROP VIEW IF EXISTS {name}.{quoted(gone)}")
            self._register(file, gone, None)
            del file.streams[gone]
        for table in tables:
            stream = values.Stream(self._lite, file.name, table, all_text=file.all_text)
            self._register(file, table, stream)
            file.streams[table] = stream
            source = f"SELECT {stream.shown} FROM temp.main.{quoted(STREAM.format(file.name, table))}"  # noqa: S608
            self._maker.execute(f"CREATE OR REPLACE VIEW {name}.{quoted(table)} AS {source}")
        file.version = version

    def _register(self, file: File, table: str, stream: values.Stream | None) -> None:
        for connection in (self._maker, self._duck):
            if stream:
                connection.register(STREAM.format(file.name, table), stream)
            else:
                connection.unregister(STREAM.format(file.name, table))

    # Changes

    def _transaction(self, query: str) -> None:
        """One of DuckDB's and one of SQLite's, which end together."""
        word = targets.outline(query).split(maxsplit=1)[0].strip(";").upper()
        if word in ("BEGIN", "START"):
            self._duck.execute(query)
            self._in_transaction = True
            return
        end = "ROLLBACK"
        try:
            self._duck.execute(query)
            end = "COMMIT" if word in ("COMMIT", "END") else end
        finally:
            self._in_transaction = False
            if self._lite.in_transaction:
                self._end(end)

    def _end(self, word: str) -> None:
        """Ends SQLite's transaction."""
        for file in self._files.values():
            file.version = -1
        try:
            self._lite.execute(word)
        finally:
            if self._lite.in_transaction:
                # The file was locked: the transaction has no effect there.
                self._lite.execute("ROLLBACK")

    @contextmanager
    def _step(self) -> Iterator[None]:
        """All of a change, or nothing of it."""
        if self._in_transaction and not self._lite.in_transaction:
            self._lite.execute("BEGIN")
        self._lite.execute("SAVEPOINT step")
        try:
            yield
            self._lite.execute("RELEASE step")
        except BaseException as error:
            if self._lite.in_transaction:
                self._lite.execute("ROLLBACK TO step")
                self._lite.execute("RELEASE step")
            if isinstance(error, sqlite3.OperationalError) and str(error).startswith("no such"):
                raise sqlite3.OperationalError(f"{error}{ALONE}") from None
            raise

    def _change(self, file: File, change: targets.Change, query: str, check: Callable[[], None]) -> None:
        target = f"{quoted(file.name)}.{quoted(change.table)}"
        if change.returning:
            raise Refused(f"cannot change {file.name}.{change.table}: tables of SQLite files have no RETURNING")
        if change.query.strip() and not change.query.strip().upper().startswith("DEFAULT"):
            self._fill(file, change, query, check)
        elif change.kind == "view":
            # It would name the database as it is called here, and others could not read the file.
            raise Refused(f"cannot make view {file.name}.{change.table}: make it in memory, without {file.name}")
        else:
            with self._step():
                if change.replaces:
                    self._lite.execute(f"DROP TABLE IF EXISTS {target}")
                self._lite.execute(_for_sqlite(change, target, quoted(file.name)))
        self._show(file)

    def _fill(self, file: File, change: targets.Change, query: str, check: Callable[[], None]) -> None:
        """Inserts rows that DuckDB has made before: they may be read from the same table."""
        lines = "\n" * query.count("\n", 0, change.query_at)
        self._duck.execute(f"CREATE OR REPLACE TEMP TABLE {ROWS} AS{lines} {change.query}")
        try:
            rows = self._duck.table(f"temp.main.{ROWS}")
            names, kinds = list(rows.columns), [str(each) for each in rows.types]
            with self._step():
                if (into := self._into(file, change, names, kinds)) is None:
                    return
                shown = ", ".join(values.to_sqlite(quoted(name), kind) for name, kind in zip(names, kinds, strict=True))
                for batch in rows.project(shown).to_arrow_reader(BATCH_ROWS):
                    check()
                    self._lite.executemany(into, zip(*(each.to_pylist() for each in batch.columns), strict=True))
        finally:
            # Not in a transaction that has failed.
            with suppress(duckdb.Error):
                self._duck.execute(f"DROP TABLE IF EXISTS temp.main.{ROWS}")

    def _into(self, file: File, change: targets.Change, names: list[str], kinds: list[str]) -> str | None:
        """The insertion of a row; makes its table where that is asked for. None where that is there already."""
        target = f"{quoted(file.name)}.{quoted(change.table)}"
        head, columns = change.head, change.columns
        if change.kind == "table":
            if change.unless_there and change.table.lower() in map(str.lower, file.streams):
                return None
            if change.replaces:
                self._lite.execute(f"DROP TABLE IF EXISTS {target}")
            declared = [f"{quoted(name)} {values.declared(kind)}" for name, kind in zip(names, kinds, strict=True)]
            self._lite.execute(f"CREATE TABLE {target} ({', '.join(declared)})")
            head = "INSERT INTO "
        elif change.by_name:
            columns = f"({', '.join(map(quoted, names))})"
        return f"{head}{target} {columns} VALUES ({', '.join('?' * len(names))}) {change.conflict}"

    def check_strays(self) -> None:
        """DuckDB has made a table beside the views, where the file does not have it. Raises Refused."""
        if not self._files:
            return
        found = self._duck.execute(STRAYS, [list(self._files)]).fetchall()
        for database, table in found:
            self._duck.execute(f"DROP TABLE {quoted(database)}.main.{quoted(table)}")
        if found:
            raise Refused(f"cannot make a table in {found[0][0]} so: write CREATE TABLE {'.'.join(found[0])}")


def _for_sqlite(change: targets.Change, target: str, database: str) -> str:
    """The statement with its table as SQLite takes it."""
    match change.kind:
        case "index":
            return f"{change.head}{database}.{quoted(change.index)} ON {quoted(change.table)}{change.rest}"
        case "table":
            return f"CREATE TABLE {'IF NOT EXISTS ' if change.unless_there else ''}{target}{change.rest}"
    return f"{change.head}{target}{change.rest}"


def _is_sqlite(path: str) -> bool:
    try:
        if Path(path).is_file():
            with Path(path).open("rb") as file:
                return file.read(len(MAGIC)) == MAGIC
    except OSError:
        pass
    return False
