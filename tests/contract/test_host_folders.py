"""A folder of the machine in a sandbox: it can be read, and nothing else; its links lead nowhere out of the sandbox."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandfleet import FileNotFound, FilePermission, InvalidArgument
from sandfleet._fleets.embedded import Options, Process
from sandfleet._fleets.fleet import AsyncFleet
from sandfleet.sandbox import AsyncSandbox
from support.client.served import served_fleet

WRITES = ("echo y > a.csv", "echo y > sub/new", "rm a.csv", "touch a.csv", "chmod 000 a.csv", "mkdir n", "ln a.csv b")


@pytest.fixture(scope="module")
def served() -> Iterator[Process]:
    with served_fleet(Options(pool_size=1)) as process:
        yield process


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Its modes alone would let anyone write there."""
    made = tmp_path / "big"
    (made / "sub").mkdir(parents=True)
    (made / "a.csv").write_text("1,2\n")
    secret = tmp_path / "secret"
    secret.write_text("secret")
    for path, mode in ((made, 0o777), (made / "sub", 0o777), (made / "a.csv", 0o666), (secret, 0o644)):
        path.chmod(mode)
    for name, target in (("out", secret), ("up", "../secret"), ("passwd", "/etc/passwd")):
        (made / name).symlink_to(target)
    return made


async def test_it_is_read_and_not_written(fleet: AsyncFleet, folder: Path) -> None:
    async with AsyncSandbox.create(fleet=fleet, mounts={"/data": str(folder), "/out": "out"}) as sandbox:
        assert (await sandbox.get_info()).mounts == {"/data": str(folder), "/out": "out"}
        assert await sandbox.files.read("/data/a.csv") == "1,2\n"
        assert (await sandbox.run_code("open('/data/a.csv').read()")).text == "'1,2\\n'"
        for line in WRITES:
            result = await sandbox.commands.run(line, cwd="/data")
            assert "Read-only file system" in result.stderr, line
            # Control: the same can be done to a copy.
            copied = await sandbox.commands.run(f"rm -rf /out/*; cp -r /data/a.csv /data/sub /out; cd /out; {line}")
            assert copied.exit_code == 0, line
        # Nor after it was made writable in a namespace of the code's own, which the filter of system calls refuses.
        anew = "unshare -Urm sh -c 'mount -o remount,bind,rw /data; echo y > /data/a.csv'"
        assert "Operation not permitted" in (await sandbox.commands.run(anew)).stderr
        for call in (sandbox.files.write("/data/a.csv", "z"), sandbox.files.remove("/data/a.csv")):
            with pytest.raises(FilePermission, match="can be written"):
                await call
        assert (folder / "a.csv").read_text() == "1,2\n"
        assert sorted(os.listdir(folder)) == ["a.csv", "out", "passwd", "sub", "up"]  # noqa: PTH208 - as the kernel says


async def test_links_in_it_lead_nowhere_out_of_the_sandbox(fleet: AsyncFleet, folder: Path) -> None:
    # Control: on the machine they lead there.
    assert (folder / "out").read_text() == (folder / "up").read_text() == "secret"
    async with AsyncSandbox.create(fleet=fleet, mounts={"/data": str(folder)}) as sandbox:
        for name in ("out", "up"):
            assert (await sandbox.commands.run(["cat", f"/data/{name}"])).exit_code == 1
            with pytest.raises(FileNotFound):
                await sandbox.files.read(f"/data/{name}")
        assert "sandbox:x:1000" in await sandbox.files.read("/data/passwd")


async def test_a_snapshot_does_not_have_it_and_says_so_and_a_copy_does(fleet: AsyncFleet, folder: Path) -> None:
    async with AsyncSandbox.create(fleet=fleet, mounts={"/data": str(folder)}) as sandbox:
        taken = await sandbox.snapshot()
        assert taken.contents is not None
        assert taken.contents.lost == ("/data (HostFolder)",)
        (copy,) = await sandbox.fork()
        async with copy:
            assert await copy.files.read("/data/a.csv") == "1,2\n"
    async with AsyncSandbox.create(fleet=fleet, snapshot=taken) as again:
        assert (await again.commands.run(["cat", "/data/a.csv"])).exit_code == 1
    await fleet.snapshots.delete(taken, now=True)


async def test_what_cannot_be_mounted_is_refused(
    fleet: AsyncFleet, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    for wish, why in (
        ("./none", "./none is no folder of this machine"),
        ("./secret", "./secret is no folder"),
        ("/etc", "programs of the machine hold open, as /etc"),
        ("/", "without empty names"),
    ):
        with pytest.raises(InvalidArgument, match=why):
            await AsyncSandbox.create(fleet=fleet, mounts={"/data": wish})
    folder.chmod(0o700 if os.geteuid() == 0 else 0)
    with pytest.raises(InvalidArgument, match=r"cannot read .*/big .*: chmod o\+rx"):
        await AsyncSandbox.create(fleet=fleet, mounts={"/data": "./big"})
    folder.chmod(0o755)
    async with AsyncSandbox.create(fleet=fleet, mounts={"/data": "./big"}) as sandbox:
        assert await sandbox.files.exists("/data/a.csv")
