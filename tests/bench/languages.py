"""Cells of each language beside Python's, in the same sandbox."""

import asyncio
import sys
import time
from collections.abc import Iterator

import duckdb
import pandas as pd
import pyarrow as pa
from cells import timed
from figures import Figure, progress, quantile
from sandfleet import AsyncSandbox

ROUNDS = 10
CELLS = 30
STARTS = 2
# A line in, a line out: what an interpreter takes for it by itself.
NODE = "require('readline').createInterface({input: process.stdin}).on('line', (line) => console.log(require('vm').runInThisContext(line)))"
DUCKDB = "import duckdb, sys\nfor line in sys.stdin: print(duckdb.sql(line).fetchall(), flush=True)"
FRAME = "import pandas as pd\ndf = pd.DataFrame({'a': range(1_000_000), 'b': 0.5})"
# Nothing, in each language beside Python.
NOTHING = {"bash": ":", "javascript": "1", "sql": "SELECT 1"}


def figures() -> Iterator[Figure]:
    yield from asyncio.run(measure())


async def measure() -> list[Figure]:
    async with await AsyncSandbox.create() as sandbox:
        has = (await sandbox.environment()).languages
        found = [figure for language in NOTHING if language in has for figure in await beside_python(sandbox, language)]
        if "javascript" in has:
            found.append(await beside_own("javascript", sandbox, ["node", "-e", NODE]))
        if "sql" in has:
            found.append(await beside_own("sql", sandbox, [sys.executable, "-c", DUCKDB]))
            found += await tables(sandbox)
        return found


async def beside_own(language: str, sandbox: AsyncSandbox, argv: list[str]) -> Figure:
    """A trivial cell beside the language's own evaluation of the same, in this run."""
    progress(f"cells of {language}, and its own interpreter's")
    own: list[float] = []
    process = await asyncio.create_subprocess_exec(*argv, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
    assert process.stdin
    assert process.stdout

    async def evaluate() -> None:
        process.stdin.write(f"{NOTHING[language]}\n".encode())
        await process.stdout.readline()

    mine: list[float] = []
    for _ in range(ROUNDS):
        own += await timed(evaluate, CELLS)
        mine += await timed(lambda: sandbox.run_code(NOTHING[language], language=language), CELLS)
    process.stdin.close()
    await process.wait()
    name = f"trivial cell of {language} through the client, p50"
    return Figure(name, quantile(mine, 0.5), "ms", quantile(own, 0.5), "beside its own evaluation over a pipe")


async def tables(sandbox: AsyncSandbox) -> list[Figure]:
    """A frame of a million rows: to SQL and back beside the same in one process, and in and out."""
    progress("tables of a million rows")
    assert (await sandbox.run_code(FRAME)).ok
    there, own, puts, gets, copies = ([] for _ in range(5))
    frame = await sandbox.tables.get("df")
    size = pa.table(frame).nbytes
    for _ in range(ROUNDS):
        there += await timed(lambda: there_and_back(sandbox), 1)
        own.append(in_one_process(frame))
        puts += await timed(lambda: sandbox.tables.put("df", frame), 1)
        gets += await timed(lambda: sandbox.tables.get("df"), 1)
        copies += await timed(lambda: copied(frame), 1)
    rate = size / 1e6 * 1e3
    beside, note = rate / quantile(copies, 0.5), "beside writing and reading the same Arrow in memory"
    return [
        Figure(
            "a million rows Python to SQL to Python, p50",
            quantile(there, 0.5),
            "ms",
            quantile(own, 0.5),
            "beside DuckDB and pandas in one process",
        ),
        Figure("put of a million rows", rate / quantile(puts, 0.5), "MB/s", beside, note),
        Figure("get of a million rows", rate / quantile(gets, 0.5), "MB/s", beside, note),
    ]


async def there_and_back(sandbox: AsyncSandbox) -> None:
    assert (await sandbox.run_code("SELECT a, b * 2 AS c FROM df", language="sql")).ok
    assert (await sandbox.run_code("len(sql.last)")).text == "1000000"


def in_one_process(df: pd.DataFrame) -> float:
    start = time.perf_counter()
    with duckdb.connect() as connection:
        connection.register("df", df)
        assert len(connection.execute("SELECT a, b * 2 AS c FROM df").df()) == 1_000_000
    return (time.perf_counter() - start) * 1e3


async def copied(frame: pd.DataFrame) -> None:
    sink = pa.BufferOutputStream()
    table = pa.table(frame)
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    pa.ipc.open_stream(sink.getvalue()).read_pandas()


async def beside_python(sandbox: AsyncSandbox, language: str, *, where: str = "") -> list[Figure]:
    progress(f"cells of {language}, and Python's{where}")
    cells = {
        "python": lambda: sandbox.run_code("1"),
        language: lambda: sandbox.run_code(NOTHING[language], language=language),
    }
    samples: dict[str, list[float]] = {each: [] for each in cells}
    starts: dict[str, list[float]] = {each: [] for each in cells}
    for run in cells.values():
        await timed(run, CELLS)
    # By turns, so that both see the same noise.
    for _ in range(ROUNDS):
        for each, run in cells.items():
            samples[each] += await timed(run, CELLS)
            starts[each] += [await first_cell(sandbox, each) for _ in range(STARTS)]
    python = {share: quantile(samples["python"], share) for share in (0.5, 0.99)}
    found = [
        Figure(
            f"trivial cell of {language}{where}, p{share * 100:g}",
            quantile(samples[language], share),
            "ms",
            beside,
            "beside Python's",
        )
        for share, beside in python.items()
    ]
    note = "beside Python's"
    name = f"new context of {language} and its first cell{where}, p50"
    return [*found, Figure(name, quantile(starts[language], 0.5), "ms", quantile(starts["python"], 0.5), note)]


async def first_cell(sandbox: AsyncSandbox, language: str) -> float:
    start = time.perf_counter()
    context = await sandbox.create_context(language=language)
    await sandbox.run_code("", context=context)
    taken = (time.perf_counter() - start) * 1e3
    await sandbox.delete_context(context)
    return taken
