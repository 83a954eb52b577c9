"""A client that is killed with -9 while it exports, and one that exports much: the file is whole, the memory flat."""

import asyncio
import resource
import shutil
import signal
import subprocess
import sys

import pytest
from sandfleet import AsyncFleet, AsyncSandbox
from sandfleet.journal import headfile
from sandfleet.journal.verify import verify
from support.fleet.process import a_fleet

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
CLIENT = """
import asyncio, sys
from sandfleet import AsyncFleet, AsyncSandbox

async def main(address, sandbox_id, path):
    async with await AsyncFleet.connect(address) as fleet, AsyncSandbox.connect(sandbox_id, fleet=fleet) as sandbox:
        for number in range(1000):
            await sandbox.run_code(f"print({number})")
            await sandbox.journal.export(path)
            print(sandbox.journal.kept_head.head, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with a_fleet(tmp_path_factory.mktemp("fleet") / "f") as process:
        yield process


@pytest.fixture
async def fleet(served):
    async with await AsyncFleet.connect(f"unix:{served.state_dir}/fleet.sock") as connected:
        yield connected


def killed_after(heads, pause, address, sandbox_id, path):
    """The last head that a client has acknowledged before it was killed."""
    with subprocess.Popen(
        [sys.executable, "-c", CLIENT, address, sandbox_id, str(path)], stdout=subprocess.PIPE, text=True
    ) as client:
        last = [client.stdout.readline().strip() for _ in range(heads)][-1]
        try:
            client.wait(pause)
        except subprocess.TimeoutExpired:
            client.send_signal(signal.SIGKILL)
        rest = client.stdout.read().split("\n")
    assert client.returncode == -signal.SIGKILL
    # The last line may be a part of one.
    return [last, *rest[:-1]][-1]


async def test_after_kill_9_of_the_client_its_export_verifies_up_to_what_it_acknowledged(fleet, served, tmp_path):
    path, address = tmp_path / "one.journal", f"unix:{served.state_dir}/fleet.sock"
    async with AsyncSandbox.create(fleet=fleet) as sandbox:
        for heads, pause in ((1, 0.0), (2, 0.013), (3, 0.029), (1, 0.047)):
            told = await asyncio.to_thread(killed_after, heads, pause, address, sandbox.sandbox_id, path)
            found = verify([path.read_bytes()])
            assert found.ok
            assert found.head.number >= int(told.partition(":")[0])
            lines = path.read_bytes().splitlines()
            number, _, digest = told.partition(":")
            assert verify([b"\n".join(lines[: int(number)]) + b"\n"]).head.hash == digest
        # The session is what it was: another client goes on with it and its journal.
        await sandbox.run_code("1")
        exported = await sandbox.journal.export(path)
        assert exported.verification.ok
        assert exported.verification.kept == exported.verification.head.number


async def test_a_large_journal_is_exported_with_flat_memory(fleet, tmp_path):
    """The control is an export of the first part, after which the process has all that an export needs."""
    async with AsyncSandbox.create(fleet=fleet) as sandbox:
        await asyncio.gather(*(many_files(sandbox, part, 20) for part in range(8)))
        small = await sandbox.journal.export(tmp_path / "small.journal")
        await asyncio.gather(*(many_files(sandbox, part, 180) for part in range(8)))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        exported = await sandbox.journal.export(tmp_path / "large.journal")
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert exported.verification.count > 1600
    assert exported.size > max(32 << 20, 9 * small.size)
    # What is on its way is bounded, however long the journal is; make bench has the figure.
    assert grown < 8 << 20
    heads = headfile.load(exported.heads_path.read_bytes())
    with (tmp_path / "large.journal").open("rb") as file:
        assert verify(iter(lambda: file.read(1 << 18), b""), heads).signed == exported.verification.count


async def many_files(sandbox, part, count):
    for number in range(count):
        await sandbox.files.write(f"{part}.txt", f"{number}" + "x" * 20_000)
