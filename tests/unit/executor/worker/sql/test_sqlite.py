"""SQLite files in a context of SQL: what is read, what is written, and what is refused."""

import sqlite3
from contextlib import closing

import pytest
from sandfleet_executor.worker.sql.database import Database

PEOPLE = """
CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT NOT NULL, born DATE, seen TIMESTAMP, score, ok BOOLEAN,
                     price DECIMAL(10, 2), data BLOB);
INSERT INTO people VALUES (1, 'ann', '2001-02-03', '2020-01-02 03:04:05', 1, 1, 3, x'00ff'),
                          (2, 'bob', NULL, NULL, 2.5, 0, 4.25, NULL);
CREATE VIEW doubled AS SELECT name, score * 2 AS twice FROM people;
CREATE TABLE "mixed ""up"" it" (a, b DATE, c BOOLEAN);
INSERT INTO "mixed ""up"" it" VALUES (1, '2020-01-01', 1), ('z', 'soon', 7), (x'61', '', 0);
CREATE TABLE empty (a INT, b VARCHAR(3), c REAL, d BLOB, e);
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with closing(sqlite3.connect("app.db")) as made:
        made.executescript(PEOPLE)
    return made


@pytest.fixture
def sql(file):
    database = Database(512 << 20)

    def run(source):
        database.begin_cell()
        shown = None
        for statement in database.statements(source):
            shown = database.run(statement, lambda: None)
        return list(zip(*shown.shown, strict=True)) if shown else None

    run.database = database
    return run


def in_file(query, path="app.db"):
    """As another program sees it."""
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as made:
        return made.execute(query).fetchall()


def types_of(sql, table):
    return " ".join(kind for (kind,) in sql(f"SELECT column_type FROM (DESCRIBE {table})"))


def test_tables_and_views_are_read_with_types_of_their_values(sql):
    sql("ATTACH 'app.db' AS lite (TYPE sqlite)")
    assert types_of(sql, "lite.people") == "BIGINT VARCHAR DATE TIMESTAMP DOUBLE BOOLEAN DOUBLE BLOB"
    assert types_of(sql, 'lite."mixed ""up"" it"') == "VARCHAR VARCHAR BIGINT"
    assert types_of(sql, "lite.empty") == "BIGINT VARCHAR DOUBLE BLOB VARCHAR"
    assert sql("SELECT name, year(born), minute(seen), score, ok, price, data FROM lite.main.people") == [
        ("ann", 2001, 4, 1.0, True, 3.0, b"\x00\xff"),
        ("bob", None, None, 2.5, False, 4.25, None),
    ]
    assert sql("FROM lite.doubled JOIN lite.people USING (name) SELECT id, twice") == [(1, 2.0), (2, 5.0)]
    assert sql('FROM lite."mixed ""up"" it"') == [("1", "2020-01-01", 1), ("z", "soon", 7), ("a", "", 0)]
    assert sql("SHOW TABLES FROM lite") == [("doubled",), ("empty",), ('mixed "up" it',), ("people",)]


def test_a_file_is_known_by_its_first_bytes_and_named_after_it(sql):
    sql("ATTACH 'app.db'; ATTACH IF NOT EXISTS 'app.db'")
    assert sql("SELECT count(*) FROM app.people") == [(2,)]
    sql("DETACH app")
    with pytest.raises(Exception, match="does not exist"):
        sql("FROM app.people")


def test_values_of_another_type_behind_the_first_rows_are_errors_with_a_way_out(sql):
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 12000) SELECT i AS a FROM n"
    in_file(f"CREATE TABLE late AS {numbers}")
    in_file("INSERT INTO late VALUES ('x')")
    sql("ATTACH 'app.db' AS lite")
    assert sql("FROM lite.late LIMIT 1") == [(1,)]
    with pytest.raises(Exception, match=r"cannot read lite\.late: column a is int64 .* type str; .* ALL_VARCHAR"):
        sql("SELECT count(*) FROM lite.late")
    sql("DETACH lite; ATTACH 'app.db' AS lite (TYPE sqlite, ALL_VARCHAR)")
    assert sql("SELECT max(a) FROM lite.late") == [("x",)]


def test_what_other_programs_change_is_seen_in_the_next_cell_and_a_read_holds_no_lock(sql):
    sql("ATTACH 'app.db' AS lite")
    assert sql("FROM lite.people SELECT id LIMIT 1") == [(1,)]
    in_file("INSERT INTO people (id, name) VALUES (3, 'cy')")
    in_file("CREATE TABLE late AS SELECT 7 AS a")
    assert sql("SELECT count(*), (FROM lite.late) FROM lite.people") == [(3, 7)]
    in_file("DROP TABLE late")
    with pytest.raises(Exception, match="does not exist"):
        sql("FROM lite.late")


def test_rows_of_duckdb_go_into_a_file(sql):
    sql("ATTACH 'new.db' AS lite (TYPE sqlite)")
    sql("""CREATE TABLE kinds AS SELECT 1 AS i, 'x' AS s, 1.5 AS d, true AS b, DATE '2020-01-02' AS day,
        TIMESTAMPTZ '2020-01-02 03:04:05+02' AS at, [1, NULL] AS l, {'a': 'q'} AS m, INTERVAL 1 DAY AS gap,
        9::HUGEINT AS h, 'z'::BLOB AS raw, NULL AS n""")
    sql("CREATE TABLE lite.kinds AS FROM kinds")
    assert in_file("SELECT * FROM kinds", "new.db") == [
        (
            1,
            "x",
            1.5,
            1,
            "2020-01-02",
            "2020-01-02 01:04:05.000000+00:00",
            "[1,null]",
            '{"a":"q"}',
            "1 day",
            9,
            b"z",
            None,
        )
    ]
    assert types_of(sql, "lite.kinds").startswith("BIGINT VARCHAR DOUBLE BOOLEAN DATE TIMESTAMP WITH TIME ZONE VARCHAR")
    sql("CREATE TABLE IF NOT EXISTS lite.kinds AS SELECT 2; INSERT INTO lite.kinds BY NAME SELECT 's' AS s, 5 AS i")
    assert in_file("SELECT i, s, d FROM kinds", "new.db") == [(1, "x", 1.5), (5, "s", None)]
    # What is read is from before.
    sql("INSERT INTO lite.kinds (i) SELECT i + 10 FROM lite.kinds; CREATE OR REPLACE TABLE lite.k AS FROM lite.kinds")
    assert sql("SELECT i FROM lite.k") == [(1,), (5,), (11,), (15,)]


def test_sqlite_runs_changes_with_its_constraints_and_conflicts(sql):
    sql("ATTACH 'app.db' AS lite")
    sql(
        "CREATE TABLE lite.made (id INTEGER PRIMARY KEY, x VARCHAR CHECK (length(x) < 3)); INSERT INTO lite.made "
        "VALUES (1, 'a'), (2, 'b')"
    )
    sql("INSERT INTO lite.made VALUES (1, 'c') ON CONFLICT (id) DO UPDATE SET x = excluded.x || '!'")
    sql("INSERT OR IGNORE INTO lite.made VALUES (2, 'd'); UPDATE lite.made SET x = 'e' WHERE id = 2")
    sql(
        "CREATE UNIQUE INDEX one ON lite.made(x); ALTER TABLE lite.made ADD COLUMN y INT; DELETE FROM lite.made WHERE id=2"
    )
    assert sql("FROM lite.made") == [(1, "c!", None)]
    for change in ("VALUES (3, 'long', 1)", "VALUES (3, 'f', 1), (4, 'c!', 1)"):
        with pytest.raises(sqlite3.IntegrityError, match=r"CHECK|UNIQUE"):
            sql(f"INSERT INTO lite.made {change}")
    # All rows of a statement, or none.
    assert in_file("SELECT id FROM made") == [(1,)]
    sql("DROP INDEX lite.one; DROP TABLE lite.made")
    assert in_file("SELECT name FROM sqlite_schema WHERE name IN ('made', 'one')") == []


def test_transactions_end_together(sql):
    sql("ATTACH 'app.db' AS lite")
    insertion = "INSERT INTO lite.people (id, name) VALUES (9, 'x')"
    sql(f"BEGIN; CREATE TABLE mine AS SELECT 1 AS a; {insertion}")
    assert sql("SELECT count(*) FROM lite.people") == [(3,)]
    assert in_file("SELECT count(*) FROM people") == [(2,)]
    sql("ROLLBACK")
    assert in_file("SELECT count(*) FROM people") == [(2,)]
    sql(f"BEGIN; CREATE TABLE mine AS SELECT 1 AS a; {insertion}; COMMIT")
    assert in_file("SELECT count(*) FROM people") == [(3,)]
    assert sql("FROM mine") == [(1,)]
    for statement in ("ATTACH 'app.db' AS other", "DETACH lite"):
        with pytest.raises(Exception, match="a transaction is active"):
            sql(f"BEGIN; {statement}")
        sql("ROLLBACK")


def test_a_change_that_fails_in_a_transaction_keeps_what_was_before_it(sql):
    sql("ATTACH 'app.db' AS lite; BEGIN; INSERT INTO lite.people (id, name) VALUES (9, 'x')")
    with pytest.raises(sqlite3.IntegrityError):
        sql("INSERT INTO lite.people (id, name) VALUES (10, 'y'), (9, 'z')")
    sql("COMMIT")
    assert in_file("SELECT id FROM people WHERE id > 2") == [(9,)]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("CREATE VIEW lite.v AS SELECT 1", "make it in memory"),
        ("UPDATE lite.people SET name = 'x' RETURNING id", "no RETURNING"),
        ("UPDATE lite.people SET name = (SELECT a FROM mine)", "no such table: mine; .* sees the file's tables alone"),
        ("MERGE INTO lite.people USING mine ON (id = a) WHEN MATCHED THEN DELETE", "base table"),
        ("COPY FROM DATABASE memory TO lite", r"write CREATE TABLE lite\.mine"),
        ("USE lite; CREATE TABLE stray AS SELECT 1", r"write CREATE TABLE lite\.stray"),
        ("USE lite; INSERT INTO people (id) VALUES (7)", "no|not"),
        ("ATTACH 'app.db' AS other (TYPE sqlite, BLOCK_SIZE 16384)", "options are TYPE, READ_ONLY and ALL_VARCHAR"),
        ("ATTACH 'text.db' AS other (TYPE sqlite)", "cannot attach text.db: file is not a database"),
        ("ATTACH 'no/where.db' AS other (TYPE sqlite)", "cannot attach no/where.db: unable to open"),
        ("DETACH lite; ATTACH 'app.db' AS lite (READ_ONLY); DELETE FROM lite.people", "readonly database"),
    ],
)
def test_what_cannot_be_done_says_why_and_leaves_the_file_as_it_was(sql, tmp_path, change, why):
    (tmp_path / "text.db").write_text("no database" * 100)
    sql("ATTACH 'app.db' AS lite; CREATE TABLE mine AS SELECT 1 AS a")
    before = (tmp_path / "app.db").read_bytes()
    with pytest.raises(Exception, match=why):
        sql(change)
    assert (tmp_path / "app.db").read_bytes() == before
    # Nothing is there that the file does not have.
    assert sql("USE memory; SELECT count(*) FROM duckdb_tables() WHERE database_name <> 'memory'") == [(0,)]
    assert sql("SELECT count(*) FROM duckdb_databases() WHERE database_name = 'other'") == [(0,)]


def test_control_a_database_of_duckdb_would_take_what_the_views_refuse(sql):
    sql("ATTACH ':memory:' AS lite; CREATE TABLE lite.people AS SELECT 1 AS id; INSERT INTO lite.people VALUES (7)")
    assert sql("FROM lite.people") == [(1,), (7,)]


def test_an_error_in_the_rows_of_an_insertion_names_its_line(sql):
    sql("ATTACH 'app.db' AS lite")
    with pytest.raises(Exception, match=r"(?s)nope.*LINE 3:"):
        sql("INSERT INTO lite.people\n  (id, name)\n  SELECT nope, 1 FROM range(3)")


def test_tables_of_a_file_are_completed(sql):
    sql("ATTACH 'app.db' AS lite")
    code = "SELECT * FROM lite.peo"
    assert b'"matches":["people"]' in sql.database.look("complete", code, len(code), 30.0)
