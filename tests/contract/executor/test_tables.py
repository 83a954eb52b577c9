"""Tables in and out of contexts, and of files: as Arrow, bounded, each refusal with its reason."""

import asyncio

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import pytest_asyncio
from contract.executor.harness import until
from sandfleet._wire.convert import arrow
from sandfleet.errors import FileError, InvalidArgument, LimitReached, NotFoundError, PreconditionFailed, SandboxError
from sandfleet.resources.tables import put

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session", autouse=True)
async def equipped(sandbox):
    found = await sandbox.run_code("import pandas, pyarrow")
    if found.error:
        pytest.skip(f"the sandbox lacks a library: {found.error.value}")


ROWS = [{"id": 1, "name": "a", "share": 0.5}, {"id": 2, "name": None, "share": None}]
FRAMES = {"pandas": pd.DataFrame(ROWS), "polars": pl.DataFrame(ROWS), "pyarrow": pa.Table.from_pylist(ROWS)}
SAID = "print(type({0}).__module__.partition('.')[0], len({0}), list({0}.columns)[:1])"
# Arrow has no column of such values.
ODD = "import pandas; odd = pandas.DataFrame({'a': [1j]})"
# Takes for ever to say what is in it.
ENDLESS = """
class Endless:
    columns = []
    def __arrow_c_stream__(self, *_):
        while True: pass
endless = Endless()
"""


def rows(table):
    return pa.table(table).to_pylist() if not isinstance(table, pl.DataFrame) else table.to_dicts()


@pytest.mark.smoke
@pytest.mark.parametrize("kind", FRAMES)
async def test_a_table_goes_in_and_comes_out_in_its_library(sandbox, context, kind):
    await sandbox.tables.put("df", FRAMES[kind], context=context)
    said = (await sandbox.run_code(SAID.format("df"), context=context)).logs.stdout
    assert said.startswith((f"{kind} 2", "pyarrow 2"))
    got = await sandbox.tables.get("df", context=context)
    assert type(got).__module__.partition(".")[0] == said.split()[0]
    assert rows(got) == ROWS
    for library, frame in FRAMES.items():
        asked = await sandbox.tables.get("df", context=context, library=library)
        assert (type(asked), rows(asked)) == (type(frame), ROWS)


@pytest.mark.smoke
async def test_a_context_itself_gets_and_puts_however_it_was_come_by(sandbox, context):
    found = next(each for each in await sandbox.list_contexts() if each.context_id == context)
    await found.put("df", FRAMES["pandas"])
    (copy,) = await sandbox.fork_context(found)
    assert rows(await copy.get("df", library="polars")) == ROWS
    with pytest.raises(LimitReached):
        await copy.get("df", limit=1)
    await sandbox.delete_context(copy)
    again = await sandbox.restart_context(found)
    # It is another interpreter: what the handle says is of before, and what it asks for is of now.
    for each in (again, found):
        with pytest.raises(NotFoundError):
            await each.get("df")


@pytest.mark.smoke
async def test_types_of_columns_and_the_index_of_pandas_are_kept(sandbox, context):
    frame = pd.DataFrame(
        {
            "when": pd.to_datetime(["2026-01-01", "2026-01-02"], utc=True),
            "kind": pd.Categorical(["x", "y"]),
            "raw": [b"\0\xff", b""],
            "flag": [True, False],
        },
        index=[7, 9],
    )
    await sandbox.tables.put("df", frame, context=context)
    said = await sandbox.run_code("print(list(df.index), df.kind.dtype.name, df.when.dt.tz)", context=context)
    assert said.logs.stdout == "[7, 9] category UTC\n"
    pd.testing.assert_frame_equal(await sandbox.tables.get("df", context=context), frame)


async def test_a_million_rows_go_both_ways_and_the_context_can_be_copied_after_that(sandbox, context):
    frame = pd.DataFrame({"a": range(1_000_000), "b": [0.25] * 1_000_000})
    await sandbox.tables.put("df", frame, context=context)
    assert len(await sandbox.tables.get("df", context=context)) == 1_000_000
    # Control of the same: a thread that goes on would make it impossible.
    (copy,) = await sandbox.fork_context(context)
    assert (await sandbox.run_code("int(df.a.sum())", context=copy)).text == str(sum(range(1_000_000)))


@pytest.mark.parametrize(
    ("code", "name", "error", "reason"),
    [
        ("", "df", NotFoundError, "NoTable"),
        ("df = [1]", "df", PreconditionFailed, "NotATable"),
        (ODD, "odd", PreconditionFailed, "UnsupportedColumn"),
        ("", "df; import os", InvalidArgument, "InvalidArgument"),
        ("", "", InvalidArgument, "InvalidArgument"),
    ],
)
async def test_what_is_no_table_is_refused_with_the_reason(sandbox, context, code, name, error, reason):
    await sandbox.run_code(code, context=context)
    with pytest.raises(error, match="cannot get") as raised:
        await sandbox.tables.get(name, context=context)
    assert raised.value.reason == reason
    assert (await sandbox.run_code("'on'", context=context)).text == "'on'"


async def test_a_table_above_the_limit_is_refused_before_it_is_sent(sandbox, context):
    await sandbox.tables.put("df", pd.DataFrame({"a": range(10_000)}), context=context)
    with pytest.raises(LimitReached, match="the limit is 1000") as raised:
        await sandbox.tables.get("df", context=context, limit=1000)
    assert raised.value.reason == "TooLarge"
    assert len(await sandbox.tables.get("df", context=context, limit=100_000)) == 10_000


async def test_a_busy_context_and_one_without_tables_refuse(sandbox, context):
    cell = asyncio.create_task(sandbox.run_code("import time; time.sleep(60)", context=context))

    async def busy():
        return any(each.context_id == context and each.state == "busy" for each in await sandbox.list_contexts())

    await until(busy)
    with pytest.raises(PreconditionFailed) as raised:
        await sandbox.tables.put("df", FRAMES["pandas"], context=context)
    assert raised.value.reason == "ContextBusy"
    await sandbox.interrupt(context)
    await cell
    await sandbox.run_code("true", language="bash")
    with pytest.raises(PreconditionFailed, match="contexts of bash have no tables") as raised:
        await sandbox.tables.get("df", context="default-bash")
    assert raised.value.reason == "LanguageCannot"


@pytest.mark.smoke
async def test_objects_that_never_end_are_interrupted_and_the_variables_stay(sandbox, context):
    await sandbox.run_code(f"kept = 1\n{ENDLESS}", context=context)
    with pytest.raises(SandboxError) as raised:
        await sandbox.tables.get("endless", context=context, timeout=0.5)
    assert raised.value.reason == "NoAnswer"
    execution = await sandbox.run_code("kept", context=context)
    assert (execution.text, execution.lost) == ("1", ())


async def test_a_table_that_was_put_survives_a_cell_that_is_killed(fresh):
    sandbox = fresh.sandbox
    await sandbox.run_code("1")
    await sandbox.tables.put("df", FRAMES["pandas"])
    # It waits for the copy of what there is.
    await sandbox.run_code("raise ValueError", on_failure="rollback")
    execution = await sandbox.run_code("import os; os.kill(os.getpid(), 9)")
    assert execution.lost == ("processes",)
    assert (await sandbox.run_code("len(df)")).text == "2"


async def test_a_stream_that_breaks_or_is_no_arrow_makes_no_variable(sandbox, context):
    link = sandbox._link
    await sandbox.run_code("df = 'old'", context=context)
    with pytest.raises(InvalidArgument) as raised:
        await put(link, "df", b"no arrow", context_id=context, kind="pandas")
    assert raised.value.reason == "NotArrow"
    # Half of it, with the end of a whole one.
    whole = bytes(arrow.streamed(pa.table({"a": range(1_000_000)})))
    with pytest.raises(InvalidArgument):
        await put(link, "df", whole[: len(whole) // 2], context_id=context, kind="pandas")
    assert (await sandbox.run_code("df", context=context)).text == "'old'"


@pytest.mark.smoke
@pytest.mark.parametrize("suffix", [".arrow", ".csv", ".parquet"])
async def test_files_of_tables_are_written_for_the_code_to_read_and_read_back(sandbox, context, suffix):
    name = f"orders{suffix}"
    await sandbox.files.write_table(name, FRAMES["polars"])
    read = {".arrow": "feather", ".csv": "csv", ".parquet": "parquet"}[suffix]
    execution = await sandbox.run_code(f"import pandas as pd; len(pd.read_{read}('{name}'))", context=context)
    assert execution.text == "2"
    if suffix == ".parquet":
        with pytest.raises(InvalidArgument, match=r"sandbox\.tables\.get"):
            await sandbox.files.read_table(name)
    else:
        assert rows(await sandbox.files.read_table(name, library="polars")) == ROWS


@pytest.mark.smoke
async def test_a_file_that_holds_no_table_is_an_error_of_the_file(sandbox):
    await sandbox.files.write("bad.arrow", b"no table")
    with pytest.raises(FileError) as raised:
        await sandbox.files.read_table("bad.arrow")
    assert raised.value.reason == "NotATable"


async def test_a_reviewed_sandbox_takes_no_table_and_gives_what_approved_code_has_made(reviewed, reviewer):
    sandbox = reviewed.sandbox
    with pytest.raises(PreconditionFailed) as raised:
        await sandbox.tables.put("df", FRAMES["pandas"])
    assert raised.value.reason == "NotReviewable"
    cell = asyncio.create_task(sandbox.run_code("import pandas; df = pandas.DataFrame({'a': [1]})"))
    (one,) = await reviewer.waiting()
    await reviewer.approve(one)
    assert (await cell).ok
    assert len(await sandbox.tables.get("df")) == 1
