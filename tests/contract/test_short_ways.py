"""Names that users of other sandboxes type, and short ways: each does what its long form does."""

import asyncio
from collections.abc import Iterator
from typing import Literal

import pytest
from sandfleet import (
    ExecutionFailed,
    FileError,
    FileNotFound,
    InvalidArgument,
    NotFoundError,
    PreconditionFailed,
    SandboxEnded,
)
from sandfleet._fleets.embedded import Options, Process
from sandfleet._fleets.fleet import AsyncFleet
from sandfleet.sandbox import AsyncSandbox
from support.client.served import served_fleet


@pytest.fixture(scope="module")
def served() -> Iterator[Process]:
    with served_fleet(Options(pool_size=1)) as process:
        yield process


async def test_a_sandbox_has_its_id_and_says_whether_it_runs(fleet: AsyncFleet) -> None:
    async with AsyncSandbox.create(fleet=fleet) as sandbox:
        assert sandbox.id == sandbox.sandbox_id
        assert await sandbox.is_running()
        await sandbox.suspend()
        assert not await sandbox.is_running()
        await fleet.release(sandbox.id)
        assert not await sandbox.is_running()


async def test_pause_is_a_suspension_into_a_snapshot(fleet: AsyncFleet) -> None:
    async with AsyncSandbox.create(fleet=fleet) as sandbox:
        kept = await sandbox.pause()
        assert kept.snapshot_id
        await fleet.snapshots.delete(kept.snapshot_id)


async def test_a_cell_says_what_it_printed_and_raises_if_asked_to(fleet: AsyncFleet) -> None:
    async with AsyncSandbox.create(
        fleet=fleet, env={"COLOUR": "red"}, envs={"TEAM": "blue"}, memory="512Mi", cpus=1.5
    ) as sandbox:
        code = "import os, sys; print(os.environ['COLOUR'], os.environ['TEAM']); print('no', file=sys.stderr)"
        execution = await sandbox.run_code(code, check=True)
        assert (execution.stdout, execution.stderr) == ("red blue\n", "no\n")
        limits = (await sandbox.get_info()).limits
        assert (limits.memory_bytes, limits.cpus) == (512 << 20, 1.5)
        with pytest.raises(ExecutionFailed, match="ZeroDivisionError"):
            await sandbox.run_code("1 / 0", check=True)
        assert (await sandbox.run_code("1 / 0")).error is not None
        assert (await sandbox.run_code("echo $COLOUR", language="sh")).stdout == "red\n"
        assert (await sandbox.create_context("other", language="py")).language == "python"


@pytest.mark.parametrize("memory", ["4Xi", "", "-1Gi", "Gi", 0])
async def test_memory_in_other_words_is_refused(fleet: AsyncFleet, memory: str | int) -> None:
    with pytest.raises(InvalidArgument, match="memory"):
        await AsyncSandbox.create(fleet=fleet, memory=memory)


async def test_a_command_is_found_by_its_process_and_ends_with_its_block(fleet: AsyncFleet) -> None:
    async with AsyncSandbox.create(fleet=fleet) as sandbox:
        async with await sandbox.commands.run("echo on; sleep 1000", background=True) as handle:
            (running,) = await sandbox.commands.list()
            again = await sandbox.commands.connect(running.pid)
            assert again.execution_id == handle.execution_id
            assert again.pid == handle.pid == running.pid
            assert (await sandbox.commands.connect(handle)).execution_id == handle.execution_id
        assert (await handle.wait()).signal == "SIGKILL"
        with pytest.raises(NotFoundError, match=str(running.pid)):
            await sandbox.commands.connect(running.pid)
        async with await sandbox.pty.create() as terminal:
            assert terminal.pid
            await terminal.send("echo $((6 * 7))\r")
            async for data in terminal:
                if b"42" in data:
                    break
        assert await sandbox.commands.list() == ()
        async with await sandbox.files.watch_dir(".") as watch:
            await sandbox.files.write("a.txt", "a")
            assert await watch.get_new_events(10.0)
        assert [event async for event in watch] == []


async def test_symlinks_are_followed_where_that_is_asked_for(fleet: AsyncFleet) -> None:
    async with AsyncSandbox.create(fleet=fleet) as sandbox:
        await sandbox.files.write("d/file", "text")
        await sandbox.commands.run("ln -s file d/one; ln -s $PWD/d/one two; ln -s loop loop; ln -s gone dead")
        assert (await sandbox.files.get_info("two")).symlink_target == "/workspace/d/one"
        found = await sandbox.files.get_info("two", follow_links=True)
        assert (found.path, found.size) == ("/workspace/d/file", 4)
        with pytest.raises(FileError, match="symlinks"):
            await sandbox.files.get_info("loop", follow_links=True)
        with pytest.raises(FileNotFound):
            await sandbox.files.get_info("dead", follow_links=True)


async def test_all_begins_in_the_folder_that_create_names(fleet: AsyncFleet) -> None:
    async with AsyncSandbox.create(fleet=fleet, cwd="project/src") as sandbox:
        there = "/workspace/project/src"
        assert (await sandbox.list_contexts())[0].cwd == there
        assert (await sandbox.run_code("import os; os.getcwd()")).text == repr(there)
        assert (await sandbox.run_code("pwd", language="bash")).stdout == f"{there}\n"
        assert (await sandbox.commands.run("pwd")).stdout == f"{there}\n"
        assert (await sandbox.commands.run("pwd", cwd="/tmp")).stdout == "/tmp\n"
        made = await sandbox.create_context("mine", cwd="/tmp")
        cwds = {each.context_id: each.cwd for each in await sandbox.list_contexts()}
        assert made.cwd == cwds.pop("mine") == "/tmp"
        assert set(cwds.values()) == {there}


async def test_files_have_owners_and_limits_are_in_plain_words(fleet: AsyncFleet) -> None:
    limits: dict[str, str | float] = {"memory": "512Mi", "disk": "1Gi", "processes": 64, "timeout": 60}
    async with AsyncSandbox.create(fleet=fleet, limits=limits, cpus=1.5) as sandbox:
        found = (await sandbox.get_info()).limits
        assert "memory 512 MiB" in repr(found)
        assert (found.memory_bytes, found.disk_bytes, found.processes, found.max_timeout) == (
            1 << 29,
            1 << 30,
            64,
            60.0,
        )
        assert (await sandbox.usage()).cpus == 1.5
        await sandbox.files.write("a.txt", "a")
        own, system = [await sandbox.files.get_info(path) for path in ("a.txt", "/usr/bin/env")]
        assert (own.owner, own.group, system.owner, system.group) == ("sandbox", "sandbox", "nobody", "nogroup")
        assert (await sandbox.commands.run("stat -c '%U %G' a.txt")).stdout == "sandbox sandbox\n"
    with pytest.raises(InvalidArgument, match="there are memory, disk"):
        await AsyncSandbox.create(fleet=fleet, limits={"ram": "1Gi"})
    with pytest.raises(InvalidArgument, match="processes '64': it has to be a number"):
        await AsyncSandbox.create(fleet=fleet, limits={"processes": "64"})


FRAMES = """
import pandas as pd, polars as pl, pyarrow as pa
rows = {"a": [1, None], "b": ["x", "y"]}
"""


async def test_rows_of_a_frame_come_where_they_are_asked_for(fleet: AsyncFleet) -> None:
    async with AsyncSandbox.create(fleet=fleet) as sandbox:
        await sandbox.run_code(FRAMES, check=True)
        wanted = [{"a": 1, "b": "x"}, {"a": None, "b": "y"}]
        for library in ("pd.DataFrame(rows)", "pl.DataFrame(rows)", "pa.table(rows)"):
            (result,) = (await sandbox.run_code(library, rows=5, check=True)).results
            assert result.rows == wanted, library
            (result,) = (await sandbox.run_code(library, check=True)).results
            assert result.rows is None
        (result,) = (await sandbox.run_code("pd.DataFrame(rows)", rows=1)).results
        assert result.rows == wanted[:1]
        (result,) = (await sandbox.run_code("SELECT 1 AS a, 2 AS a", language="sql")).results
        assert result.rows == [{"a": 1, "a.1": 2}]
        with pytest.raises(InvalidArgument, match="10000"):
            await sandbox.run_code("1", rows=10_001)


async def test_calls_by_id_need_no_object(fleet: AsyncFleet) -> None:
    async with AsyncSandbox.create(fleet=fleet, timeout=100) as sandbox:
        await sandbox.run_code("x = 42")
        before, after = (await sandbox.get_info()), await AsyncSandbox.set_timeout(sandbox.id, 1000, fleet=fleet)
        assert after.lease_expires is not None
        assert before.lease_expires is not None
        assert (after.lease_expires - before.lease_expires).total_seconds() > 800
        kept = await AsyncSandbox.snapshot(sandbox.id, "mine", fleet=fleet)
        assert kept.name == "mine"
        await fleet.snapshots.delete(kept, now=True)
        (copy,) = await AsyncSandbox.fork(sandbox.id, fleet=fleet)
        async with copy:
            assert (await copy.run_code("x")).text == "42"


@pytest.mark.parametrize("how", ["suspend", "snapshot"])
async def test_a_lease_may_end_in_a_suspension(fleet: AsyncFleet, how: Literal["suspend", "snapshot"]) -> None:
    sandbox = await AsyncSandbox.create(fleet=fleet, timeout=2, on_timeout=how, keep_alive=False)
    await sandbox.run_code("x = 42")
    while await sandbox.is_running():
        await asyncio.sleep(0.1)
    # What the object does not know as ended, it wakes.
    assert (await sandbox.run_code("x")).text == "42"
    await sandbox.kill()
    ended = await AsyncSandbox.create(fleet=fleet, timeout=1, keep_alive=False)
    while await ended.is_running():
        await asyncio.sleep(0.1)
    with pytest.raises(SandboxEnded):
        await ended.run_code("x")


async def test_what_is_of_tools_without_tools_is_refused_with_the_way_to_go(fleet: AsyncFleet) -> None:
    with pytest.raises(InvalidArgument, match="tool_policy is of tools, and there are no tools="):
        await AsyncSandbox.create(fleet=fleet, tool_policy=lambda call: True)
    async with AsyncSandbox.create(fleet=fleet) as sandbox:
        with pytest.raises(PreconditionFailed, match="create it with tools="):
            await sandbox.serve_tools([])
