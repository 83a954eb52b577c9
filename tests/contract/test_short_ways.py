"""Names that users of other sandboxes type, and short ways: each does what its long form does."""

from collections.abc import Iterator

import pytest
from sandfleet import ExecutionFailed, FileError, FileNotFound, InvalidArgument, NotFoundError
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
        assert (await handle.wait()).signal == "SIGKILL"
        with pytest.raises(NotFoundError, match=str(running.pid)):
            await sandbox.commands.connect(running.pid)
        async with await sandbox.pty.create() as terminal:
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
