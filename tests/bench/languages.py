"""Cells of each language beside Python's, in the same sandbox."""

import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
from cells import timed
from figures import Figure, progress, quantile
from sandfleet import AsyncSandbox
from sandfleet._wire.channel import open_channel
from sandfleet._wire.convert import arrow
from sandfleet_api.executor.v1 import interpreter_pb2 as pb
from sandfleet_api.executor.v1.interpreter_pb2_grpc import InterpreterServiceStub

ROUNDS = 10
CELLS = 30
STARTS = 2
# Of a table on its way, in bytes.
PIECE = 1 << 20
# A line in, a line out: what an interpreter takes for it by itself.
NODE = "require('readline').createInterface({input: process.stdin}).on('line', (line) => console.log(require('vm').runInThisContext(line)))"
DUCKDB = "import duckdb, sys\nfor line in sys.stdin: print(duckdb.sql(line).fetchall(), flush=True)"
OWN = {"javascript": ["node", "-e", NODE], "sql": ["python3", "-c", DUCKDB]}
OVER_A_PIPE = """
import json, subprocess, sys, time
line, count, *argv = sys.argv[1:]
process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
taken = []
for _ in range(int(count) + 3):
    start = time.perf_counter()
    process.stdin.write(line.encode() + b"\\n")
    process.stdin.flush()
    process.stdout.readline()
    taken.append((time.perf_counter() - start) * 1e3)
# The first ones start the interpreter.
print(json.dumps(taken[3:]))
"""
FRAME = "import pandas as pd\ndf = pd.DataFrame({'a': range(1_000_000), 'b': 0.5})"
# Nothing, in each language beside Python.
NOTHING = {"bash": ":", "javascript": "1", "sql": "SELECT 1"}


def figures() -> Iterator[Figure]:
    yield from asyncio.run(measure())


async def measure() -> list[Figure]:
    async with await AsyncSandbox.create() as sandbox:
        found = await cells(sandbox)
        return [*found, *await tables(sandbox)] if "sql" in (await sandbox.environment()).languages else found


async def cells(sandbox: AsyncSandbox, *, where: str = "") -> list[Figure]:
    has = (await sandbox.environment()).languages
    found = [
        figure
        for language in NOTHING
        if language in has
        for figure in await beside_python(sandbox, language, where=where)
    ]
    return [*found, *[await beside_own(sandbox, language, where=where) for language in OWN if language in has]]


async def beside_own(sandbox: AsyncSandbox, language: str, *, where: str = "") -> Figure:
    """A trivial cell beside the language's own evaluation of the same, by a program in the same sandbox."""
    progress(f"cells of {language}, and its own interpreter's{where}")
    own, mine = [], []
    for _ in range(ROUNDS):
        said = await sandbox.commands.run(["python3", "-c", OVER_A_PIPE, NOTHING[language], str(CELLS), *OWN[language]])
        own += json.loads(said.stdout)
        mine += await timed(lambda: sandbox.run_code(NOTHING[language], language=language), CELLS)
    name = f"trivial cell of {language} through the client{where}, p50"
    return Figure(name, quantile(mine, 0.5), "ms", quantile(own, 0.5), "beside its own evaluation over a pipe")


async def tables(sandbox: AsyncSandbox) -> list[Figure]:
    """A frame of a million rows: to SQL and back beside the same in one process, and in and out."""
    progress("tables of a million rows")
    assert (await sandbox.run_code(FRAME)).ok
    there, own = [], []
    frame = await sandbox.tables.get("df")
    for _ in range(ROUNDS):
        there += await timed(lambda: there_and_back(sandbox), 1)
        own.append(in_one_process(frame))
    note = "beside DuckDB and pandas in one process"
    name = "a million rows Python to SQL to Python, p50"
    return [
        Figure(name, quantile(there, 0.5), "ms", quantile(own, 0.5), note),
        *await moved(sandbox, frame, "default", "a million rows of pandas"),
        *await moved(sandbox, pa.table(frame), "default-sql", "a million rows of SQL"),
        *await moved(
            sandbox, pa.table({"a": np.random.default_rng(1).random(16_000_000)}), "default", "128 MB of Arrow"
        ),
    ]


async def moved(sandbox: AsyncSandbox, table: Any, context: str, what: str) -> list[Figure]:
    """Puts and gets, by turns with the same bytes over a bare stream of gRPC to a process that drops and makes them."""
    progress(f"{what} in and out")
    samples: dict[str, list[float]] = {each: [] for each in ("put", "get", "bare put", "bare get")}
    data = bytes(arrow.streamed(arrow.as_arrow(table)))
    async with bare_server(len(data)) as stub:
        for turn in range(ROUNDS + 1):
            took = {
                "put": await timed(lambda: sandbox.tables.put("df", table, context=context), 1),
                "bare put": await timed(lambda: bare_put(stub, data), 1),
                "get": await timed(lambda: sandbox.tables.get("df", context=context), 1),
                "bare get": await timed(lambda: bare_get(stub), 1),
            }
            # The first is not counted: libraries are imported in it.
            for each in took if turn else ():
                samples[each] += took[each]
    rates = {each: len(data) / 1e3 / quantile(some, 0.5) for each, some in samples.items()}
    note = "beside the same bytes over a bare stream of gRPC; ≥ 200 MB/s"
    return [Figure(f"{each} of {what}", rates[each], "MB/s", rates[f"bare {each}"], note) for each in ("put", "get")]


@contextlib.asynccontextmanager
async def bare_server(size: int) -> AsyncIterator[InterpreterServiceStub]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "support.bare_tables", f"{folder}/s", str(size)]
        server = await asyncio.create_subprocess_exec(*command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE)
        assert server.stdout
        try:
            assert await server.stdout.readline()
            async with open_channel(f"unix:{folder}/s") as channel:
                yield InterpreterServiceStub(channel)
        finally:
            server.kill()
            await server.wait()


async def bare_put(stub: InterpreterServiceStub, data: bytes) -> None:
    call = stub.PutTable(None)
    for start in range(0, len(data), PIECE):
        await call.write(pb.PutTableRequest(data=data[start : start + PIECE]))
    await call.done_writing()
    assert (await call).info.size_bytes == len(data)


async def bare_get(stub: InterpreterServiceStub) -> None:
    data = bytearray()
    async for part in stub.GetTable(pb.GetTableRequest()):
        data += part.data


async def there_and_back(sandbox: AsyncSandbox) -> None:
    assert (await sandbox.run_code("SELECT a, b * 2 AS c FROM df", language="sql")).ok
    assert (await sandbox.run_code("len(sql.last)")).text == "1000000"


def in_one_process(df: pd.DataFrame) -> float:
    start = time.perf_counter()
    with duckdb.connect() as connection:
        connection.register("df", df)
        assert len(connection.execute("SELECT a, b * 2 AS c FROM df").df()) == 1_000_000
    return (time.perf_counter() - start) * 1e3


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
