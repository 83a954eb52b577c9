"""Snapshots: the client on real fleets with real executors, and a store in a folder."""

import asyncio
import json
import os
import signal
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sandfleet import (
    Fleet,
    InvalidArgument,
    Limits,
    NotFoundError,
    Sandbox,
    SandboxEnded,
    SandboxSuspended,
    UnavailableError,
)
from sandfleet._fleets.embedded import Options, Process
from sandfleet._fleets.fleet import AsyncFleet
from sandfleet.cli import main
from sandfleet.errors import PreconditionFailed
from sandfleet.sandbox import AsyncSandbox
from sandfleet.values.execution import Outcome
from sandfleet.values.options import CreateOptions
from sandfleet.values.suspension import Snapshot
from support.client.executors import kill_executors
from support.client.served import served_fleet

Capture = pytest.CaptureFixture[str]
PATIENCE = 60.0
NOW = "import os; (x, sorted(os.listdir('.')))"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("snapshots")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SANDFLEET_SNAPSHOTS", f"file://{folder}/store")
        patch.setenv("SANDFLEET_SNAPSHOT_KEYS", str(folder / "keys.json"))
        yield folder


@pytest.fixture(scope="module")
def served(store: Path) -> Iterator[Process]:
    with served_fleet(Options(pool_size=1)) as process:
        yield process


async def test_a_session_that_was_parked_goes_on_in_another_fleet(fleet: AsyncFleet, store: Path) -> None:
    options = {"labels": {"run": "7"}, "envs": {"TEAM": "blue"}, "limits": Limits(memory_bytes=1 << 30)}
    async with AsyncSandbox.create(fleet=fleet, **options) as sandbox:
        await sandbox.files.write("orders.csv", "a,b\n")
        await sandbox.run_code("rows = open('orders.csv').read(); gen = (x for x in rows)")
        await fleet.note_received(sandbox.sandbox_id, ["secret"])
        kept = await sandbox.suspend(to="snapshot")
        assert kept.lost == ("default: gen (NotPicklable)",)
        with pytest.raises(SandboxSuspended):
            await sandbox.run_code("1")
    with pytest.raises(SandboxEnded):
        await fleet.get(sandbox.sandbox_id)
    with served_fleet(Options(pool_size=1)) as tomorrow:
        async with (
            await AsyncFleet.connect(tomorrow.address) as later,
            AsyncSandbox.resume(sandbox.sandbox_id, fleet=later) as again,
        ):
            assert again.sandbox_id == sandbox.sandbox_id
            assert again.resumption is not None
            assert again.resumption.lost == kept.lost
            assert (await again.run_code("import os; rows, os.environ['TEAM']")).text == "('a,b\\n', 'blue')"
            info = await again.get_info()
            assert (info.labels, info.limits.memory_bytes, info.state) == ({"run": "7"}, 1 << 30, "claimed")
            assert await later.note_received(sandbox.sandbox_id, []) == {"secret"}
            # Its sandbox has it now; the snapshot was only there to keep it.
            await until_none(later, sandbox.sandbox_id)
            # Another object of it goes on where this one was.
            kept = await AsyncSandbox.suspend(sandbox.sandbox_id, fleet=later, to="snapshot")
            assert kept.snapshot_id
            async with AsyncSandbox.connect(sandbox.sandbox_id, fleet=later) as third:
                assert (await third.run_code("rows")).text == "'a,b\\n'"
            # Its owner ends it: nothing keeps it any more.
            assert await again.kill()
            with pytest.raises(SandboxEnded):
                await AsyncSandbox.resume(sandbox.sandbox_id, fleet=later)


@pytest.mark.smoke
async def test_a_sandbox_is_saved_forked_and_rolled_back(fleet: AsyncFleet) -> None:
    async with AsyncSandbox.create(fleet=fleet, limits=Limits(memory_bytes=1 << 30)) as sandbox:
        await sandbox.run_code("x = 1; open('a', 'w').write('one'); import os, socket; os.mkfifo('pipe')")
        taken = await sandbox.snapshot("after-etl")
        assert taken.contents is not None
        assert taken.contents.lost == ("pipe (Pipe)",)
        assert taken.limits.memory_bytes == 1 << 30
        await sandbox.run_code("x = 2; open('b', 'w').close()")
        first, second = await sandbox.fork(2)
        assert len({sandbox.sandbox_id, first.sandbox_id, second.sandbox_id}) == 3
        assert (await first.run_code(NOW)).text == (await second.run_code(NOW)).text == "(2, ['a', 'b'])"
        await first.run_code("x = 3")
        assert (await second.run_code("x")).text == "2"
        await first.kill()
        await second.kill()
        back = await sandbox.rollback("after-etl")
        assert (back.snapshot.snapshot_id, back.lost) == (taken.snapshot_id, ())
        assert (await sandbox.run_code(NOW)).text == "(1, ['a'])"
    assert [one.name for one in await fleet.snapshots.list(sandbox.sandbox_id)] == ["after-etl"]
    async with AsyncSandbox.create(fleet=fleet, snapshot="after-etl") as begun:
        assert (await begun.run_code(NOW)).text == "(1, ['a'])"
        assert (await begun.get_info()).limits.memory_bytes == 1 << 30
    # A name means one snapshot of a session.
    async with AsyncSandbox.create(fleet=fleet) as named:
        other = await named.snapshot("after-etl")
        with pytest.raises(PreconditionFailed, match=other.snapshot_id) as caught:
            await named.snapshot("after-etl")
        assert caught.value.reason == "SnapshotNameTaken"
        with pytest.raises(PreconditionFailed, match=taken.snapshot_id) as caught:
            await fleet.snapshots.delete("after-etl")
        assert (await named.rollback("after-etl")).snapshot.snapshot_id == other.snapshot_id
        assert await fleet.snapshots.delete(other)
    # One that would allow more is refused, and stays as it is.
    async with AsyncSandbox.create(fleet=fleet) as wider:
        await wider.run_code("x = 5")
        with pytest.raises(PreconditionFailed, match="memory_bytes") as caught:
            await wider.rollback(taken)
        assert caught.value.reason == "SnapshotWidened"
        assert (await wider.run_code(NOW)).text == "(5, [])"
    assert await fleet.snapshots.delete("after-etl")
    assert not await fleet.snapshots.delete("after-etl")
    with pytest.raises(NotFoundError, match="after-etl"):
        await AsyncSandbox.create(fleet=fleet, snapshot="after-etl")


async def test_copies_have_the_environment_the_mounts_the_labels_and_the_lease_of_their_origin(
    fleet: AsyncFleet,
) -> None:
    options: CreateOptions = {"labels": {"run": "7"}, "envs": {"TEAM": "blue", "PHASE": "1"}, "mounts": {"/app": "src"}}
    async with AsyncSandbox.create(fleet=fleet, timeout=1000, **options) as sandbox:
        await sandbox.files.write("src/mine.py", "value = 5\n")
        context = await sandbox.create_context("below", cwd="/app")
        await sandbox.run_code("import mine", context=context)
        await sandbox.services.start("web", "cd /app && exec sleep 600")
        (copy,) = await sandbox.fork(envs={"PHASE": "2"}, labels={"copy": "1"})
        (short,) = await sandbox.fork(timeout=60)
        try:
            seen = await copy.run_code(
                "import os; mine.value, os.getcwd(), os.environ['TEAM'], os.environ['PHASE']", context="below"
            )
            assert seen.text == "(5, '/app', 'blue', '2')"
            assert (await copy.services.wait_ready("web")).is_ready
            info, briefly = await copy.get_info(), await short.get_info()
            assert info.labels == {"run": "7", "copy": "1"}
            assert info.lease_expires is not None
            assert briefly.lease_expires is not None
            # 1000 s as of the origin, not 300 by default.
            assert info.lease_expires - briefly.lease_expires > timedelta(seconds=600)
        finally:
            await copy.kill()
            await short.kill()


async def test_what_a_session_has_received_goes_with_its_snapshot(fleet: AsyncFleet) -> None:
    async with AsyncSandbox.create(fleet=fleet) as sandbox:
        await fleet.note_received(sandbox.sandbox_id, ["secret"])
        taken = await sandbox.snapshot()
        assert taken.received == ("secret",)
    async with AsyncSandbox.create(fleet=fleet, snapshot=taken) as begun, AsyncSandbox.create(fleet=fleet) as clean:
        assert await fleet.note_received(begun.sandbox_id, []) == {"secret"}
        assert await fleet.note_received(clean.sandbox_id, []) == set()


async def test_a_cell_that_runs_keeps_a_session_from_being_parked(fleet: AsyncFleet) -> None:
    async with AsyncSandbox.create(fleet=fleet) as sandbox:
        handle = await sandbox.commands.run("sleep 60", background=True)
        with pytest.raises(PreconditionFailed, match="running") as caught:
            await sandbox.suspend(to="snapshot")
        assert (caught.value.reason, caught.value.retryable) == ("ExecutionRunning", True)
        assert await fleet.snapshots.list(sandbox.sandbox_id) == ()
        # It goes on.
        assert (await sandbox.run_code("1")).text == "1"
        kept = await sandbox.suspend(to="snapshot", force=True)
        assert kept.ended_executions == (handle.execution_id,)
        assert await fleet.snapshots.delete(kept.snapshot_id)


async def test_a_lost_executor_goes_on_from_the_last_automatic_snapshot(fleet: AsyncFleet, served: Process) -> None:
    options = {"fleet": fleet, "recovery": "snapshot", "snapshot_period": 1.0}
    async with AsyncSandbox.create(**options) as sandbox:
        await sandbox.run_code("x = 1; open('a', 'w').write('one')")
        first = await automatic(fleet, sandbox.sandbox_id)
        # What is not used is not saved again: the next one comes after this cell.
        await sandbox.run_code("x = 2")
        second = await automatic(fleet, sandbox.sandbox_id, after=first)
        await sandbox.run_code("x = 3; open('b', 'w').close()")
        kill_executors(served)
        # A call may be on its way to the executor that is gone.
        while (back := await sandbox.run_code(NOW)).outcome is Outcome.LOST:
            pass
        assert back.text in {"(2, ['a'])", "(3, ['a', 'b'])"}
        if back.text == "(2, ['a'])":
            (notice,) = back.notices
            assert notice.reason == "WentBack"
            assert f"{second.created:%Y-%m-%d %H:%M:%S} UTC" in notice.message
        assert (await sandbox.run_code("1")).notices == ()
    await until_none(fleet, sandbox.sandbox_id)


async def automatic(fleet: AsyncFleet, sandbox_id: str, after: Snapshot | None = None) -> Snapshot:
    """The automatic snapshot of a session, once there is one that is not `after`."""
    async with asyncio.timeout(PATIENCE):
        while True:
            for one in await fleet.snapshots.list(sandbox_id):
                if after is None or one.snapshot_id != after.snapshot_id:
                    assert one.reason == "automatic"
                    return one
            await asyncio.sleep(0.1)


async def until_none(fleet: AsyncFleet, sandbox_id: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while await fleet.snapshots.list(sandbox_id):
            await asyncio.sleep(0.1)


async def test_a_session_goes_on_from_its_automatic_snapshot_when_its_fleet_is_lost(store: Path) -> None:
    # It leaves its directory behind, which the next fleet of a user removes.
    with tempfile.TemporaryDirectory(prefix="sf-", dir="/tmp", ignore_cleanup_errors=True) as base:
        lost = Process(Options(pool_size=0), state_dir=Path(base) / "f-1")
        fleet = await AsyncFleet.connect(lost.address)
        sandbox = await AsyncSandbox.create(fleet=fleet, recovery="snapshot", snapshot_period=1.0)
        await sandbox.run_code("x = 1")
        await automatic(fleet, sandbox.sandbox_id)
        os.kill(lost.pid, signal.SIGKILL)
        await sandbox.close()
        await fleet.close()
        lost.stop()
    with served_fleet(Options(pool_size=0)) as other:
        async with (
            await AsyncFleet.connect(other.address) as later,
            AsyncSandbox.resume(sandbox.sandbox_id, fleet=later) as again,
        ):
            back = await again.run_code("x")
            assert (back.text, [one.reason for one in back.notices]) == ("1", ["WentBack"])


@pytest.mark.smoke
@pytest.mark.parametrize("to", ["suspend", "snapshot"])
async def test_an_idle_session_falls_asleep_and_the_next_call_wakes_it(fleet: AsyncFleet, to: str) -> None:
    async with AsyncSandbox.create(fleet=fleet, idle_timeout=1.0, on_idle=to) as sandbox:
        await sandbox.run_code("x = 1")
        before = (await fleet.get(sandbox.sandbox_id)).sandbox_uid
        async with asyncio.timeout(PATIENCE):
            while await is_awake(fleet, sandbox.sandbox_id):
                await asyncio.sleep(0.1)
        assert not await sandbox.health()
        assert not await is_awake(fleet, sandbox.sandbox_id)
        assert (await sandbox.run_code("x")).text == "1"
        assert await sandbox.health()
        after = await fleet.get(sandbox.sandbox_id)
        assert (after.state, after.sandbox_uid != before) == ("claimed", True)


async def is_awake(fleet: AsyncFleet, sandbox_id: str) -> bool:
    try:
        return (await fleet.get(sandbox_id)).state == "claimed"
    except SandboxEnded:
        return False


async def test_a_snapshotter_that_dies_costs_its_jobs_only(fleet: AsyncFleet, served: Process) -> None:
    await fleet.snapshots.list()
    (worker,) = children_of(served.pid, "sandfleet_operator.snapshots.worker")
    async with AsyncSandbox.create(fleet=fleet) as sandbox:
        os.kill(worker, signal.SIGKILL)
        try:
            await sandbox.snapshot("lost")
        except UnavailableError as error:
            assert error.reason == "SnapshotStoreUnavailable"
        assert (await sandbox.snapshot("found")).name == "found"


def children_of(pid: int, program: str) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(one) for one in found if program in Path(f"/proc/{one}/cmdline").read_text()]


@pytest.mark.smoke
def test_a_snapshot_moves_as_a_file_by_the_command_line(
    served: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("SANDFLEET_ADDRESS", served.address)

    def say(*words: str) -> object:
        assert main(["snapshot", *words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    with Sandbox.create() as sandbox:
        sandbox.run_code("x = 1")
        made = say("create", sandbox.sandbox_id, "mine")
    file = tmp_path / "mine.snapshot"
    say("export", "mine", str(file))
    assert file.stat().st_mode & 0o077 == 0
    assert main(["snapshot", "export", "mine", str(file)]) != 0
    imported = say("import", str(file), "--name", "theirs")
    assert (imported["received"], imported["reason"]) == (["untrusted"], "import")
    assert imported["entries"] == made["entries"]
    with Sandbox.create(snapshot="theirs") as begun:
        assert begun.run_code("x").text == "1"
    assert {one["name"] for one in say("ls")} >= {"mine", "theirs"}
    capsys.readouterr()
    assert main(["snapshot", "show", "theirs"]) == 0
    assert "received: untrusted" in capsys.readouterr().out
    assert main(["snapshot", "ls"]) == 0
    assert "theirs" in capsys.readouterr().out
    say("delete", "mine")
    with Sandbox.create(contract="reviewed") as reviewed, pytest.raises(PreconditionFailed, match="approved"):
        reviewed.rollback("theirs")
    damaged = tmp_path / "damaged"
    damaged.write_bytes(file.read_bytes()[:-20])
    with Fleet.connect(served.address) as fleet:
        before = fleet.snapshots.list()
        with pytest.raises(InvalidArgument):
            fleet.snapshots.import_file(damaged)
        assert fleet.snapshots.list() == before
