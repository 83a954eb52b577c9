"""Completion and inspection of SQL, from DuckDB's own catalogue."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import duckdb

from ..base import answers
from .interrupts import within

# Names that one look reads of the catalogue.
MOST_NAMES = 5000
NAME = re.compile(r"[a-z_]\w*", re.ASCII | re.IGNORECASE)
# What stands before the cursor: the table of a column, if one is named, and the word that is begun.
BEFORE = re.compile(r'(?:(?:"([^"]+)"|([A-Za-z_]\w*))\.)?(\w*)$')
BEHIND = re.compile(r"\w*")
# `FROM sales AS s`: tables of a statement, and what else it calls them.
NAMED = re.compile(r'\b(?:from|join|into|update|table)\s+"?(\w+)"?(?:\s+(?:as\s+)?(\w+))?', re.IGNORECASE)

COLUMNS = "SELECT column_name, data_type FROM duckdb_columns() WHERE lower(table_name) = lower(?) ORDER BY column_index"
TABLES = (
    "SELECT table_name FROM duckdb_tables() WHERE NOT internal UNION "
    # Streams of the tables of SQLite files are read through views.
    "SELECT view_name FROM duckdb_views() WHERE NOT internal AND NOT starts_with(view_name, '_sqlite.') ORDER BY 1"
)
TABLES_OF = f"FROM ({TABLES.replace(' internal', ' internal AND lower(database_name) = lower($1)')})"
FUNCTIONS = "SELECT DISTINCT function_name FROM duckdb_functions() ORDER BY 1"
KEYWORDS = "SELECT upper(keyword_name) FROM duckdb_keywords() ORDER BY 1"
SIGNATURES = (
    "SELECT function_name, parameters, parameter_types, return_type, description FROM duckdb_functions() "
    "WHERE lower(function_name) = lower(?) LIMIT 20"
)


def quoted(name: str) -> str:
    """A name as SQL takes it, whatever it holds."""
    return '"' + name.replace('"', '""') + '"'


Rows = Callable[[str, list[Any]], list[tuple[Any, ...]]]


def look(con: Any, kind: str, code: str, cursor: int, seconds: float) -> bytes:
    """The answer. A catalogue that takes too long is interrupted; without an answer nothing is found."""

    def rows(query: str, given: list[Any]) -> list[tuple[Any, ...]]:
        try:
            return list(con.execute(query, given).fetchmany(MOST_NAMES))
        except duckdb.Error:
            # As in a transaction that has failed.
            return []

    with within(seconds, con.interrupt):
        return completed(rows, code, cursor) if kind == "complete" else inspected(rows, code, cursor)


def completed(rows: Rows, code: str, cursor: int) -> bytes:
    """Columns, tables, functions and words of the language that begin with what stands before the cursor."""
    found = BEFORE.search(code[:cursor])
    assert found is not None
    table, begun = found[1] or found[2], found[3].lower()
    named = {(alias or name).lower(): name for name, alias in NAMED.findall(code)}
    if table:
        columns = [name for name, _ in rows(COLUMNS, [named.get(table.lower(), table)])]
        names = iter(columns or [name for (name,) in rows(TABLES_OF, [table])])
    else:
        names = _names(rows, list(named.values()))
    matches = [each if NAME.fullmatch(each) else quoted(each) for each in names if each.lower().startswith(begun)]
    return answers.completed(matches, cursor - len(begun), cursor)


def _names(rows: Rows, named: list[str]) -> Iterator[str]:
    for table in named:
        yield from (name for name, _ in rows(COLUMNS, [table]))
    yield from (name for (name,) in rows(TABLES, []))
    yield from (name for (name,) in rows(FUNCTIONS, []) if NAME.fullmatch(name))
    yield from (name for (name,) in rows(KEYWORDS, []))


def inspected(rows: Rows, code: str, cursor: int) -> bytes:
    """The columns of a table, the signatures of a function, or the type of a column."""
    before, behind = BEFORE.search(code[:cursor]), BEHIND.match(code, cursor)
    assert before is not None
    assert behind is not None
    table, word = before[1] or before[2], before[3] + behind[0]
    lines = list(_described(rows, word, table, [name for name, _ in NAMED.findall(code)]) if word else ())
    return answers.inspected("\n".join(lines), found=bool(lines))


def _described(rows: Rows, word: str, table: str | None, named: list[str]) -> Iterator[str]:
    for each in [table] if table else named:
        for name, kind in rows(COLUMNS, [each]):
            if name.lower() == word.lower():
                yield f"{each}.{name} {kind}"
    if not table and (columns := rows(COLUMNS, [word])):
        yield f"table {word}"
        yield from (f"  {name} {kind}" for name, kind in columns)
    for name, parameters, types, returns, about in rows(SIGNATURES, [word]) if not table else ():
        given = ", ".join(f"{one} {kind}" for one, kind in zip(parameters or (), types or (), strict=False))
        yield f"{name}({given}) -> {returns}"
        if about:
            yield f"  {about}"
