"""What contexts of SQL alone have: statements and their tables, files, frames of Python, and what they cannot reach."""

import asyncio
import json

import pandas as pd
import pytest
import pytest_asyncio
from contract.executor.harness import until

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session", autouse=True)
async def spoken(sandbox):
    if "sql" not in (await sandbox.environment()).languages:
        pytest.skip("the sandbox has no DuckDB")


@pytest.fixture
def sql(sandbox):
    async def run(code, **options):
        return await sandbox.run_code(code, language="sql", **{"timeout": 60, **options})

    return run


async def test_each_statement_shows_its_rows_and_the_last_one_is_the_result(sql):
    execution = await sql("CREATE OR REPLACE TABLE t AS SELECT 1 AS a; SELECT 'x;' AS b, NULL AS b; FROM t")
    assert [json.loads(each.json) for each in execution.results] == [
        {"columns": ["b", "b"], "types": ["VARCHAR", "NULL"], "rows": [["x;", None]], "total_rows": 1},
        {"columns": ["a"], "types": ["INTEGER"], "rows": [[1]], "total_rows": 1},
    ]
    assert execution.text == "a\n-\n1\n(1 row)"


async def test_rows_are_bounded_and_counted(sql):
    execution = await sql("SELECT range AS n, '<b>' AS tag FROM range(300000)")
    assert execution.text.endswith("(300,000 rows, 299,950 not shown)")
    assert execution.text.count("\n") == 52
    assert "&lt;b&gt;" in execution.results[0].html
    assert (await sql("SELECT repeat('x', 100000) AS long")).text.count("x") == 199


@pytest.mark.parametrize(
    ("code", "name", "line"),
    [
        ("SELECT 1;\nSELECT nope FROM range(3)", "BinderException", 2),
        ("SELECT 1;\n\n  SELECT 'a'\n  + 1 FROM nope", "CatalogException", 4),
        ("SELECT 1;\n\nCREATE TABLE q AS\nSELECT nope", "BinderException", 4),
        ("SELECT 1;\n\nSELEC", "SyntaxError", 3),
    ],
)
async def test_an_error_names_its_line_in_the_cell(sql, code, name, line):
    execution = await sql(code)
    assert (execution.outcome, execution.blame, execution.error.name) == ("error", "code", name)
    assert [(frame.line, frame.file.startswith("cell-")) for frame in execution.error.frames] == [(line, True)]


async def test_files_of_the_workspace_are_read_and_written(sandbox, sql):
    await sandbox.files.write_table("in.parquet", pd.DataFrame({"a": [1, 2]}))
    await sandbox.files.write("in.csv", "a\n3\n")
    await sandbox.files.write("in.json", '[{"a": 4}]')
    execution = await sql("SELECT sum(a) AS a FROM (FROM 'in.parquet' UNION FROM 'in.csv' UNION FROM 'in.json')")
    assert json.loads(execution.results[0].json)["rows"] == [[10]]
    assert (await sql("COPY (SELECT 5 AS a) TO 'out.csv'")).files.created == ("out.csv",)
    assert await sandbox.files.read("out.csv") == "a\n5\n"


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
async def test_frames_of_python_are_tables_and_results_are_frames(sandbox, sql, library):
    await sandbox.tables.put("df", pd.DataFrame({"a": range(200_000)}), library=library)
    execution = await sql(
        "CREATE OR REPLACE VIEW v AS SELECT a + 1 AS b FROM df; SELECT sum(b) FROM v JOIN df ON a = b"
    )
    assert json.loads(execution.results[0].json)["rows"] == [[sum(range(1, 200_000))]]
    await sql("SELECT b FROM v")
    assert (await sandbox.run_code("int(sql.last.b.sum()), len(sql.last)")).text == f"({sum(range(200_001))}, 200000)"
    # What the variable holds is read in each cell.
    await sandbox.run_code("df = df[:1]")
    assert (await sql("SELECT count(*) FROM v")).text.splitlines()[2] == "1"
    await sql("CREATE OR REPLACE TABLE kept AS FROM v")
    assert (await sandbox.run_code("sql['kept'].b[0]")).ok
    assert len(await sandbox.tables.get("kept", context="default-sql")) == 1


async def test_a_table_of_the_same_name_comes_before_a_frame(sandbox, sql):
    await sandbox.run_code("import pandas; mine = pandas.DataFrame({'a': [1, 2]})")
    await sql("CREATE OR REPLACE TABLE mine AS SELECT 7 AS a")
    assert (await sql("SELECT * FROM mine")).text.splitlines()[2] == "7"


async def test_what_is_no_frame_and_a_busy_context_are_errors_that_say_so(sandbox, sql):
    await sandbox.run_code("number = 1")
    assert "no table, but a int" in (await sql("FROM number")).error.value
    assert (await sql("FROM nothing_of_this_name")).error.name == "CatalogException"
    assert "no table of that name" in (await sandbox.run_code("sql['nothing']")).error.value
    cell = asyncio.create_task(sandbox.run_code("import time; time.sleep(60)"))

    async def busy():
        return any(each.context_id == "default" and each.state == "busy" for each in await sandbox.list_contexts())

    await until(busy)
    execution = await sql("FROM df")
    assert "context default is busy" in execution.error.value
    await sandbox.interrupt()
    await cell


SQLITE = """
import sqlite3
file = sqlite3.connect("app.db", isolation_level=None, timeout=0)
file.executescript("CREATE TABLE t AS SELECT 1 AS a; CREATE TABLE many (a)")
file.executemany("INSERT INTO many VALUES (?)", [(each,) for each in range(2000)])
"""


async def test_sqlite_files_are_read_and_written(sandbox, sql):
    await sandbox.run_code(SQLITE)
    assert (await sql("ATTACH 'app.db' AS lite; FROM lite.t")).text == "a\n-\n1\n(1 row)"
    await sandbox.run_code("import pandas; frame = pandas.DataFrame({'a': range(2, 5)})")
    execution = await sql("INSERT INTO lite.t FROM frame; CREATE TABLE lite.sums AS SELECT sum(a) AS s FROM lite.t")
    assert execution.files.modified == ("app.db",)
    assert (await sandbox.run_code("file.execute('SELECT s, (SELECT count(*) FROM t) FROM sums').fetchall()")).text == (
        "[(10, 4)]"
    )
    assert "readonly" in (await sql("ATTACH 'app.db' AS ro (READ_ONLY); DELETE FROM ro.t")).error.value


@pytest.mark.parametrize(
    "endless",
    [
        "UPDATE lite.many SET a = (SELECT sum(x.a + y.a + z.a) FROM lite.many x, lite.many y, lite.many z)",
        "INSERT INTO lite.t SELECT x.a FROM lite.many x, lite.many y, range(5)",
    ],
)
async def test_a_deadline_ends_a_change_of_a_sqlite_file_and_leaves_it_as_it_was(fresh, endless):
    sandbox = fresh.sandbox
    await sandbox.run_code(SQLITE)
    await sandbox.run_code("ATTACH 'app.db' AS lite", language="sql")
    execution = await sandbox.run_code(endless, language="sql", timeout=4)
    assert (execution.outcome, execution.lost) == ("timeout", ())
    # It is not locked.
    assert (
        await sandbox.run_code(
            "file.execute('INSERT INTO t VALUES (7)'); file.execute('SELECT max(many.a) FROM many, t "
            "WHERE t.a = 1').fetchall()"
        )
    ).text == "[(1999,)]"
    assert (await sandbox.run_code("SELECT count(*) FROM lite.t", language="sql")).text.splitlines()[2] == "2"


@pytest.mark.parametrize(
    "code",
    [
        "INSTALL httpfs",
        "LOAD httpfs",
        "FROM 'https://example.com/a.csv'",
        "SET memory_limit = '100GB'",
        "SET enable_external_access = true",
        "ATTACH 'https://example.com/a.db'",
        "ATTACH 'https://example.com/a.db' (TYPE sqlite)",
        "FROM sqlite_scan('app.db', 't')",
    ],
)
async def test_extensions_the_network_and_settings_are_out_of_reach(sql, code):
    execution = await sql(code)
    assert (execution.outcome, execution.blame) == ("error", "code")
    assert (await sql("SELECT 1")).ok


async def test_too_much_memory_is_an_outcome_and_the_tables_stay(starting):
    async with starting(limits={"memory_bytes": 512 << 20, "tmp_bytes": 64 << 20}) as executor:
        sandbox = executor.sandbox
        await sandbox.run_code("CREATE TABLE kept AS SELECT 1 AS a", language="sql")
        code = "CREATE TABLE hoard AS SELECT repeat('x', 1000) || i || random() FROM range(10000000) t(i)"
        execution = await sandbox.run_code(code, language="sql", timeout=100)
        assert (execution.outcome, execution.lost) == ("memory", ())
        assert (await sandbox.run_code("FROM kept", language="sql")).ok


async def test_an_interrupt_and_a_deadline_do_not_reach_the_next_cell(sql):
    """The next one comes at once, and takes longer than it takes to repeat an interrupt."""
    endless = "SELECT sum(a.range + b.range) FROM range(1000000) a, range(1000000) b"
    long = "SELECT sum(a.range + b.range) AS s FROM range(20000) a, range(20000) b"
    for _ in range(3):
        first, second = await asyncio.gather(sql(endless, timeout=0.3), sql(long))
        assert first.outcome == "timeout"
        assert (second.outcome, second.error) == ("ok", None)
