"""Folders of the workspace at other paths: /app, /logs, /home/user. They are one thing with their folders.

A session without them, and one whose folder is something else, are beside them as controls.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
from contract.executor.harness import PATIENCE, until
from sandfleet import FileEventType, Outcome
from sandfleet.errors import FileNotFound, FilePermission, NotADirectory
from sandfleet_executor.core.config import ExecutorConfig
from sandfleet_executor.core.files.mounts import Mount
from sandfleet_executor.effects.namespace.cgroup import Groups
from sandfleet_executor.effects.namespace.children import NamespaceError
from sandfleet_executor.effects.namespace.namespace import Namespace

pytestmark = pytest.mark.asyncio(loop_scope="session")

MIB = 1 << 20
MOUNTS = {"/app": "", "/home/user": "home", "/var/log": "logs/inner", "/srv/all": "."}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def mounted(starting):
    """The claim asks for the mounts, and the template for one more."""
    async with starting(session=None, mounts={"/template": "of template"}) as made:
        await made.open("session", mounts=MOUNTS)
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def sandbox(mounted):
    return mounted.sandbox


@contextlib.asynccontextmanager
async def refused(executor):
    with pytest.raises(grpc.aio.AioRpcError) as found:
        yield found
    assert found.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    # The sandbox is still free, and what was refused is forgotten.
    assert (await executor.open("another")).session_id == "another"


# What a mount is


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("/app", "app"),
        ("/home/user", "home"),
        ("/var/log", "logs/inner"),
        ("/srv/all", "."),
        ("/template", "of template"),
    ],
)
async def test_a_mounted_folder_is_the_folder_itself_to_code_commands_and_the_files_api(sandbox, path, folder):
    files, below = sandbox.files, f"{folder}/{path[1:].replace('/', '-')}"
    name = below.rpartition("/")[2]
    assert (await sandbox.run_code(f"open('{path}/{name}', 'w').write('by code')")).ok
    assert await files.read(below) == await files.read(f"{path}/{name}") == "by code"
    assert (await files.write(f"{path}/{name}", "by the API")).path == f"{path}/{name}"
    assert (await sandbox.commands.run(["cat", name], cwd=path)).stdout == "by the API"
    assert (await sandbox.commands.run(["cat", below])).stdout == "by the API"
    assert (await sandbox.commands.run(["stat", "-c", "%U", f"{path}/{name}"])).stdout == "sandbox\n"


@pytest.mark.smoke
async def test_every_operation_of_the_files_api_works_below_a_mount(sandbox, tmp_path):
    files = sandbox.files
    await files.make_dir("/app/ops/inner")
    await files.write("/app/ops/inner/a.txt", "needle")
    assert [entry.path for entry in await files.list("/app/ops", depth=2)] == ["/app/ops/inner", "/app/ops/inner/a.txt"]
    assert [entry.path for entry in await files.list("/home")] == ["/home/user"]
    assert [entry.path for entry in (await files.glob("**/*.txt", "/app/ops")).items] == ["/app/ops/inner/a.txt"]
    assert [one.path for one in (await files.search("needle", "/app/ops")).items] == ["/app/ops/inner/a.txt"]
    await files.rename("/app/ops/inner/a.txt", "/workspace/moved.txt")
    await files.rename("moved.txt", "/home/user/b.txt")
    assert await files.read("home/b.txt") == "needle"
    (tmp_path / "up").mkdir()
    (tmp_path / "up/c.txt").write_text("c")
    await files.upload(tmp_path / "up", "/app/ops/up")
    assert await files.read("app/ops/up/c.txt") == "c"
    await files.download("/app/ops", tmp_path / "down")
    assert (tmp_path / "down/up/c.txt").read_text() == "c"
    await files.remove("/app/ops", recursive=True)
    assert not await files.exists("app/ops")
    assert await files.make_dir("/app") is False
    with pytest.raises(FilePermission):
        await files.remove("/app", recursive=True)


@pytest.mark.parametrize(
    ("path", "is_at"),
    [
        ("/home/user/../user/way", "/home/user/way"),
        ("/home/user/../../app/way", "/app/way"),
        ("/app/../home/user/way", "/home/user/way"),
        ("/usr/../home/user/way", "/home/user/way"),
        ("to-home/way", "/home/user/way"),
        ("/app/up/user/way", "/home/user/way"),
    ],
)
async def test_ways_up_and_links_lead_into_a_mount(sandbox, path, is_at):
    await sandbox.commands.run("ln -sfn /home/user to-home; ln -sfn ../home /app/up")
    assert (await sandbox.files.write(path, path)).path == is_at
    assert (await sandbox.commands.run(["cat", path])).stdout == path


@pytest.mark.smoke
async def test_beside_a_mount_nothing_can_be_written(sandbox):
    for path in ("/home/x", "/home/other/x", "/var/x", "/new/x"):
        with pytest.raises(FilePermission, match=r"only /workspace, /tmp, /app, .* can be written"):
            await sandbox.files.write(path, "x")
        assert not (await sandbox.commands.run(f"mkdir -p {path}")).ok


@pytest.mark.smoke
async def test_what_changes_below_a_mount_is_told_as_changes_of_the_workspace(sandbox):
    execution = await sandbox.run_code("open('/app/told', 'w').write('x'); open('/home/user/told', 'w').write('x')")
    assert (execution.files.created, execution.files.complete) == (("app/told", "home/told"), True)
    # Of three ways to one folder, one is told.
    assert (await sandbox.commands.run("echo 1 > /srv/all/app/thrice")).files.created == ("app/thrice",)


@pytest.mark.smoke
async def test_a_watch_of_a_mount_tells_of_its_own_paths(sandbox):
    watch = await sandbox.files.watch_dir("/home/user", recursive=True)
    assert watch.path == "/home/user"
    await sandbox.commands.run("mkdir -p /home/user/deep home/deeper && echo 1 > home/deep/end")
    seen = []
    async with asyncio.timeout(PATIENCE):
        async for event in watch:
            seen.append(event.path)
            if event.path == "/home/user/deep/end":
                break
    await watch.stop()
    assert seen == ["/home/user/deep", "/home/user/deeper", "/home/user/deep/end"]
    assert event.type is FileEventType.CREATED


@pytest.mark.smoke
async def test_what_is_written_below_a_mount_counts_against_the_disk_limit(starting):
    async with starting(session=None, limits={"disk_bytes": 16 * MIB}) as executor:
        await executor.open("session", mounts={"/app": ""})
        written = await executor.sandbox.commands.run(f"exec head -c {64 * MIB} /dev/zero > /app/huge")
        assert (written.outcome, written.reason) == (Outcome.KILLED, "DiskLimit")


@pytest.mark.smoke
async def test_paths_of_the_machine_are_hidden_by_a_mount_and_untouched(executor, sandbox):
    """Both sandboxes come from one image, or one machine, which has a /var/log."""
    assert (await sandbox.commands.run("ls -A /var/log")).stdout.split() in ([], ["var-log"])
    assert not await executor.sandbox.files.exists("/var/log/var-log")


# How long it lasts


async def test_what_is_mounted_stays_with_the_workspace(starting):
    async with starting(session=None, keeps_workspace=True) as first:
        await first.open("session", mounts={"/app": "project"})
        await first.sandbox.commands.run("echo kept > /app/file")
        await first.close_session()
        await first.exit()
        async with starting(session=None, **first.kept) as second:
            await second.open("session", mounts={"/elsewhere": "project"})
            assert await second.sandbox.files.read("/elsewhere/file") == "kept\n"
            assert not await second.sandbox.files.exists("/app")


async def test_a_new_namespace_has_the_same_mounts_and_makes_folders_again(starting, host):
    async with starting(session=None) as executor:
        await executor.open("session", mounts={"/app": "", "/logs": ""})
        sandbox = executor.sandbox
        await sandbox.commands.run("echo kept > /app/file; rmdir logs")
        await end_namespace(executor, host)
        # While no namespace is there, too.
        assert await sandbox.files.read("/app/file") == "kept\n"
        assert (
            await sandbox.commands.run("cat /app/file && echo new > /logs/file && cat logs/file")
        ).stdout == "kept\nnew\n"


async def end_namespace(executor, host):
    """Kills PID 1 of the session: user code can under gVisor only, and the machine everywhere else."""
    if "a PID 1 that cannot be killed from below" not in host.traits:
        await executor.sandbox.commands.run("kill -9 1")
        return
    (first,) = (pid for pid in executor.processes() if _is_living_init(pid))
    os.kill(first, signal.SIGKILL)
    await until(lambda: not _is_living_init(first))


def _is_living_init(pid):
    """Whether it is PID 1 of a session; a dead one may wait for this machine's init."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        status = {name: value.split() for name, value in (line.split(":", 1) for line in lines)}
        return status["NSpid"][1:] == ["1"] and status["State"][0] != "Z"
    return False


async def test_an_executor_that_was_started_again_has_the_mounts_when_its_session_is_opened_again(restarting):
    """The fleet opens the session once more, from the claim's record."""
    await restarting.open("session")
    await restarting.sandbox.files.write("project/file", "kept")
    restarting.kill()
    await restarting.back()
    await restarting.open("session", mounts={"/app": "project"})
    assert (await restarting.sandbox.commands.run("cat /app/file")).stdout == "kept"


@pytest.mark.smoke
async def test_control_without_mounts_the_paths_are_not_there(executor):
    sandbox = executor.sandbox
    assert not (await sandbox.commands.run("echo 1 > /app/x || mkdir -p /home/user")).ok
    assert not await sandbox.files.exists("/app")
    with pytest.raises(FilePermission):
        await sandbox.files.write("/app/x", "x")


# What is refused


@pytest.mark.parametrize(
    "mounts",
    [
        {"app": ""},
        {"/usr/local/x": ""},
        {"/app/../etc": ""},
        {"/app": "../x"},
        {"/app": "/etc"},
        {"/opt": ""},
        {"/a": "", "/a/b": ""},
    ],
)
async def test_mounts_that_cannot_be_are_refused_and_the_sandbox_stays_free(starting, mounts):
    async with starting(session=None) as executor:
        async with refused(executor) as said:
            await executor.open("session", mounts=mounts)
        assert said.value.details().startswith("cannot mount ")
        assert not (await executor.sandbox.commands.run("ls /workspace")).stdout


async def test_a_mount_over_the_interpreter_is_refused(starting):
    async with starting(session=None) as executor:
        prefix = (await executor.sandbox.run_code("import sys; sys.base_prefix")).text.strip("'")
        async with refused(executor) as said:
            await executor.open("session", mounts={f"{prefix}/lib": ""})
        assert "belongs to" in said.value.details()


@pytest.mark.smoke
async def test_an_executor_tells_its_mounts(mounted):
    said = {"/app": "app", "/home/user": "home", "/srv/all": ".", "/template": "of template", "/var/log": "logs/inner"}
    assert (await mounted.open("session")).mounts == said


async def test_a_renewal_changes_no_mounts(starting):
    async with starting() as executor:
        await executor.sandbox.run_code("x = 1")
        await executor.open("session", mounts={"/app": ""})
        assert (await executor.sandbox.run_code("x")).text == "1"
        assert not await executor.sandbox.files.exists("/app")


async def test_without_a_session_namespace_nothing_can_be_mounted(starting):
    async with starting(session=None, isolation="none", cgroup=False) as executor:
        async with refused(executor) as said:
            await executor.open("session", mounts={"/app": ""})
        assert "without a session namespace" in said.value.details()


# What user code puts in the place of a folder

PLANTED = {
    "a link to a secret": "ln -s {secret} app",
    "a link to the root": "ln -s / app",
    "a link inside": "mkdir other && ln -s other app",
    "a file": "echo 1 > app",
}
# Under gVisor it is the pod's alone.
PIPE = pytest.param("mkfifo app", id="a pipe", marks=pytest.mark.needs("pipes that outlive the sandbox"))


@pytest.mark.parametrize("plant", [*(pytest.param(plant, id=name) for name, plant in PLANTED.items()), PIPE])
@pytest.mark.attack("puts a link in the place of a mounted folder", "refused, or left out")
async def test_what_stands_in_the_place_of_a_folder_is_refused_at_the_claim_and_left_out_later(starting, plant):
    async with starting(keeps_workspace=True) as first:
        secret = str(Path(first.hidden["readable by everybody"]).parent) if hasattr(first, "hidden") else "/etc"
        await first.sandbox.commands.run(plant.format(secret=secret), check=True)
        await first.close_session()
        await first.exit()
        kept = first.kept
        async with starting(session=None, **kept) as second:
            async with refused(second) as said:
                await second.open("session", mounts={"/app": ""})
            assert "cannot mount /app: /workspace/app cannot be opened as a folder" in said.value.details()
        # A pod that is made again for a session whose code did this: it has to start, so that it can be mended.
        async with starting(**kept, mounts={"/app": "", "/fine": ""}) as third:
            sandbox = third.sandbox
            result = await sandbox.commands.run("ls /app; echo 1 > /fine/x")
            assert [each.reason for each in result.notices] == ["FolderNotMounted"]
            assert "/workspace/app cannot be opened as a folder" in result.notices[0].message
            assert result.stdout == ""
            with pytest.raises((FileNotFound, NotADirectory, FilePermission)):
                await sandbox.files.write("/app/x", "x")


@pytest.mark.needs("own uid")
@pytest.mark.control("puts a link in the place of a mounted folder", "exchanges a folder while it is mounted")
async def test_control_bubblewrap_itself_follows_a_link_in_the_place_of_a_folder(executor, tmp_path):
    """Why folders are opened without following links, and compared with what was mounted."""
    (tmp_path / "app").symlink_to(Path(executor.hidden["of root alone"]).parent)
    around = ["bwrap", "--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"]
    found = subprocess.run(
        [*around, "--bind", f"{tmp_path}/app", "/app", "/usr/bin/cat", "/app/private"], capture_output=True, check=True
    )
    assert found.stdout.decode() == executor.secret


@pytest.mark.needs("own network")
@pytest.mark.attack("exchanges a folder while it is mounted", "no namespace")
async def test_a_folder_that_is_exchanged_while_it_is_mounted_makes_no_namespace(tmp_path):
    """As by an extracted link, between the look of the executor and that of bubblewrap."""
    for name in ("w/app", "w/other"):
        (tmp_path / name).mkdir(parents=True)
    config = ExecutorConfig("s", "u", str(tmp_path / "w"), str(tmp_path), "/k", socket="/x")
    mount = Mount.of("/app", "")
    with (
        open_folder(tmp_path / "w/other") as other,
        pytest.raises(NamespaceError, match="/app: its folder was exchanged"),
    ):
        await Namespace.start(config, Groups(), folders={mount: other})
    with open_folder(tmp_path / "w/app") as same:
        await (await Namespace.start(config, Groups(), folders={mount: same})).close()


@contextlib.contextmanager
def open_folder(path):
    fd = os.open(path, os.O_PATH)
    yield fd
    os.close(fd)
