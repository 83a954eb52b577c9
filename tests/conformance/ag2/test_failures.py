"""AG2's rules of a sandbox, its adapters over ours, and failures of the platform."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import PurePosixPath

import pytest
from ag2.tools.sandbox import CodeAdapter, Sandbox, SandboxFactory
from ag2.tools.sandbox.adapter.shell import ShellAdapter
from sandfleet.errors import SandboxEnded
from sandfleet.integrations.ag2 import SandfleetEnvironment


@pytest.fixture
async def environment() -> AsyncIterator[SandfleetEnvironment]:
    async with SandfleetEnvironment() as made:
        yield made


async def test_it_is_what_the_tools_take(environment: SandfleetEnvironment) -> None:
    assert isinstance(environment, Sandbox)
    assert isinstance(environment, SandboxFactory)
    async with environment.open() as opened:
        assert opened is environment


async def test_both_adapters_run_on_it(environment: SandfleetEnvironment) -> None:
    assert await ShellAdapter(environment).run("echo a > f; pwd") == "/workspace"
    code = CodeAdapter(environment, languages=("python", "bash"))
    ended = await code.run("print(open('f').read())", "python")
    assert (ended.output, ended.exit_code) == ("a", 0)
    assert (await code.run("exit 3", "bash")).exit_code == 3


async def test_a_command_ends_as_a_shell_says(environment: SandfleetEnvironment) -> None:
    late = await environment.exec(["sh", "-c", "echo begun; sleep 60"], timeout=1)
    assert late.exit_code == 124
    assert late.output.startswith("begun")
    assert (await environment.exec(["absent-program"])).exit_code == 127


async def test_files_stay_in_the_workspace(environment: SandfleetEnvironment) -> None:
    await environment.put_file(PurePosixPath("a/b"), b"b")
    assert (await environment.exec(["cat", "a/b"])).output == "b"
    await environment.remove_file(PurePosixPath("a/b"))
    for outside in ("/tmp/b", "../b"):
        with pytest.raises(ValueError, match="it leads out of the workspace"):
            await environment.put_file(PurePosixPath(outside), b"b")


async def test_calls_at_a_time_make_one_sandbox(environment: SandfleetEnvironment) -> None:
    made = await asyncio.gather(*(environment.sandbox() for _ in range(5)))
    assert len({each.sandbox_id for each in made}) == 1


async def test_a_sandbox_that_has_ended_is_told(environment: SandfleetEnvironment) -> None:
    await (await environment.sandbox()).kill()
    with pytest.raises(SandboxEnded):
        await environment.exec(["true"])
