"""Which statements change a table of an attached database, and what they attach, read from their text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_executor.worker.sql import targets

PIECES = ("'", '"', "(", ")", "--", "\n", "/*", "*/", "$$", "a", " ", ";")


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_an_outline_is_as_long_as_its_statement(text):
    assert len(targets.outline(text)) == len(text)


def test_an_outline_hides_strings_comments_and_brackets():
    query = "INSERT /* ( */ INTO t (a, (b) 'c)') VALUES (';') -- z\n, ('it''s'), $x$ ) $x$"
    assert targets.outline(query) == ("INSERT         INTO t (           ) VALUES (   )     \n, (       ), " + "'" * 9)


@pytest.mark.parametrize(
    ("query", "path", "name", "options"),
    [
        ("ATTACH 'd/app.v1.db'", "d/app.v1.db", "app", {}),
        ("attach if not exists 'it''s.db' AS \"x y\" (TYPE sqlite, READ_ONLY);", "it's.db", "x y", "type read_only"),
        ("ATTACH DATABASE 'a.db' AS b (TYPE 'SQLITE', READ_ONLY true)", "a.db", "b", "type read_only"),
    ],
)
def test_what_is_attached(query, path, name, options):
    found = targets.attach(query)
    assert (found.path, found.name, " ".join(found.options)) == (path, name, options or "")
    assert found.says("read_only") == ("READ_ONLY" in query)
    assert found.options.get("type", "sqlite") == "sqlite"


@pytest.mark.parametrize("query", ["ATTACH", "ATTACH 'a' || 'b'", "SELECT 'ATTACH'"])
def test_what_is_no_attach(query):
    assert targets.attach(query) is None


@pytest.mark.parametrize(
    ("query", "kind", "head", "table", "rest"),
    [
        ("UPDATE lite.t SET a = 1", "", "UPDATE ", "t", " SET a = 1"),
        ('delete from "lite"."T x" where true;', "", "delete from ", "T x", " where true"),
        ("DROP TABLE IF EXISTS lite.main.t", "", "DROP TABLE IF EXISTS ", "t", ""),
        ("/* lite.u */ ALTER TABLE lite.t ADD b", "", "/* lite.u */ ALTER TABLE ", "t", " ADD b"),
        ("CREATE UNIQUE INDEX i ON lite.t(a)", "index", "CREATE UNIQUE INDEX ", "t", "(a)"),
        ("CREATE OR REPLACE TABLE lite.t (a INT)", "table", "CREATE OR REPLACE TABLE ", "t", " (a INT)"),
        ("CREATE VIEW lite.t AS SELECT 1", "view", "CREATE VIEW ", "t", " AS SELECT 1"),
    ],
)
def test_what_is_changed(query, kind, head, table, rest):
    found = targets.change(query)
    assert (found.kind, found.head, found.database, found.table, found.rest) == (kind, head, "lite", table, rest)
    assert (found.query, found.index) == ("", "i" if kind == "index" else "")


@pytest.mark.parametrize(
    ("query", "columns", "rows", "conflict"),
    [
        ("INSERT INTO lite.t VALUES (1)", "", " VALUES (1)", ""),
        ("INSERT INTO lite.t (a, b) FROM df", "(a, b)", " FROM df", ""),
        ("INSERT INTO lite.t (SELECT 1)", "", " (SELECT 1)", ""),
        ("INSERT OR IGNORE INTO lite.t BY POSITION SELECT 1", "", " SELECT 1", ""),
        ("INSERT INTO lite.t SELECT 1 ON CONFLICT (a) DO NOTHING", "", " SELECT 1 ", "ON CONFLICT (a) DO NOTHING"),
        ("CREATE TABLE lite.t AS\nSELECT ') AS (' ", "", "\nSELECT ') AS ('", ""),
    ],
)
def test_the_rows_that_are_inserted(query, columns, rows, conflict):
    found = targets.change(query)
    assert (found.columns, found.query, found.conflict, found.by_name) == (columns, rows, conflict, False)
    assert query[found.query_at :].startswith(rows)


def test_more_of_a_change():
    assert targets.change("INSERT INTO lite.t BY NAME FROM df").by_name
    assert targets.change("UPDATE lite.t SET a = 1 RETURNING a").returning
    assert not targets.change("UPDATE lite.t SET a = (SELECT 'RETURNING')").returning
    assert targets.change("CREATE TABLE IF NOT EXISTS lite.t AS SELECT 1").unless_there


@pytest.mark.parametrize(
    "query",
    ["INSERT INTO t SELECT * FROM lite.t", "UPDATE t SET a = lite.a", "-- UPDATE lite.t\nSELECT 1", "'UPDATE lite.t'"],
)
def test_what_changes_no_table_of_a_database_that_it_names(query):
    assert targets.change(query) is None
