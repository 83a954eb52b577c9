"""Tables as arguments and results of tools: as Arrow where the sandbox has pyarrow, and as rows where it has not."""

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import pytest_asyncio
from sandfleet import ToolLimits, tool

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROWS = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
FRAMES = {
    "pandas": pd.DataFrame(ROWS),
    "polars": pl.DataFrame(ROWS),
    "pyarrow": pa.Table.from_pylist(ROWS),
}
HAS = "import importlib.util\n[name for name in ('pandas', 'polars', 'pyarrow') if importlib.util.find_spec(name)]"
# The sandbox's own part believes that it has no pyarrow.
WITHOUT = "type(tools)._look.__globals__['line'].values.has = lambda name: False"
SAID = "(type(found).__module__.partition('.')[0], len(found))"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def executor(starting):
    async with starting(contract="brokered") as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def libraries(sandbox):
    """Those that the code in the sandbox has."""
    return eval((await sandbox.run_code(HAS)).text)


async def said(sandbox, code, context):
    execution = await sandbox.run_code(code, context=context)
    assert execution.outcome == "ok", execution
    return eval(execution.text)


@pytest.mark.parametrize("kind", FRAMES)
async def test_a_table_of_the_host_is_a_table_in_the_code(sandbox, context, libraries, kind):
    def table():
        return FRAMES[kind]

    def inside():
        return {"name": "b", "tables": [FRAMES[kind]], "raw": b"x"}

    made = kind if kind in libraries else "pyarrow"
    expected = (made if "pyarrow" in libraries else "builtins", 2)
    async with await sandbox.serve_tools([table, inside]):
        assert await said(sandbox, f"found = tools.table()\n{SAID}", context) == expected
        assert await said(sandbox, f"found = (await tools.inside.aio())['tables'][0]\n{SAID}", context) == expected
        ran = await sandbox.commands.run("tool table")
        assert eval(ran.stdout) == ROWS
        assert await said(sandbox, f"{WITHOUT}\ntools.table()", context) == ROWS


async def test_a_tool_gets_the_table_that_its_annotation_names(sandbox, context, libraries):
    got = []

    def take(frame: pd.DataFrame, rows: list[dict]) -> float:
        got.append((frame, rows))
        return float(frame["id"].sum())

    async with await sandbox.serve_tools([take]):
        made = "import pandas\nframe = pandas.DataFrame({'id': range(1000)})"
        assert await said(sandbox, f"{made}\ntools.take(frame, rows=frame[:2])", context) == 499_500
        # Control: rows do as well.
        assert await said(sandbox, f"{WITHOUT}\ntools.take(frame, rows=frame[:2])", context) == 499_500
        assert await said(sandbox, "tools.take([{'id': 7}], [])", context) == 7
    assert {type(frame) for frame, _ in got} == {pd.DataFrame}
    assert got[0][1] == got[1][1] == [{"id": 0}, {"id": 1}]


async def test_the_limits_of_a_tool_count_the_bytes_of_its_tables(sandbox, context):
    def give(frame: pd.DataFrame | None = None) -> pd.DataFrame:
        return pd.DataFrame({"a": range(10_000)})

    def take(frame: pd.DataFrame) -> int:
        return len(frame)

    code = """
import pandas
reasons = []
for call in (tools.give, lambda: tools.take(pandas.DataFrame({'a': range(10_000)}))):
    try:
        call()
    except tools.ToolDenied as error:
        reasons.append(error.reason)
reasons
"""
    limits = ToolLimits(argument_bytes=10_000, result_bytes=10_000)
    async with await sandbox.serve_tools([tool(give, limits=limits), tool(take, limits=limits)]):
        assert await said(sandbox, code, context) == ["ResultTooLarge", "ArgumentsTooLarge"]
