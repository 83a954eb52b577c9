"""A fleet on one machine that is killed between a tool's call and its answer: its sandboxes end with it."""

import asyncio
import shutil
import tempfile
from pathlib import Path

import pytest
from contract.executor.harness import until
from sandfleet import AsyncFleet, AsyncSandbox
from sandfleet.errors import SandboxEnded, SandfleetError
from support.fleet.process import FleetProcess


@pytest.fixture
def killable():
    # Short: a unix socket's path has to stay below 108 bytes.
    folder = Path(tempfile.mkdtemp(prefix="sft-"))
    made = FleetProcess(folder / "f")
    yield made
    made.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.asyncio
@pytest.mark.timeout(180)
async def test_a_call_whose_fleet_was_killed_is_cancelled_on_the_host_and_the_cell_ends_in_a_typed_way(killable):
    begun, ended = [], []

    async def hold() -> str:
        begun.append(1)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(1)

    async with await AsyncFleet.connect(f"unix:{killable.state_dir}/fleet.sock") as fleet:
        sandbox = await AsyncSandbox.create(fleet=fleet, contract="brokered", tools=[hold], rpc_timeout=5)
        running = asyncio.ensure_future(sandbox.run_code("tools.hold()"))
        await until(lambda: begun)
        killable.process.kill()
        [ending] = await asyncio.gather(running, return_exceptions=True)
        # The executor ends in order when its host has gone, unless it is cut off first.
        assert isinstance(ending, SandfleetError) or ending.outcome in {"lost", "interrupted"}, ending
        with pytest.raises(SandboxEnded, match="its fleet has ended"):
            while True:
                # The executor may be there for a moment, and end its cells in order.
                await sandbox.run_code("1")
        # The calls of an end that no executor comes from are given up when the host stops serving.
        await sandbox.close()
        await until(lambda: ended)
        assert len(begun) == 1
