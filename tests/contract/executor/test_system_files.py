"""Files outside of /workspace and /tmp: the files API reads what the user may read, and changes nothing."""

import importlib.util

import pytest
from sandfleet.errors import FileNotFound, FilePermission, InvalidPath, IsADirectory
from sandfleet_executor.effects.namespace.fonts import fonts

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_files_of_the_image_are_read_as_the_user_sees_them(sandbox):
    for path in ("/etc/os-release", "/etc/passwd", "/usr/lib/os-release", "/bin/../lib/os-release"):
        shown = await sandbox.commands.run(["cat", path])
        assert await sandbox.files.read(path) == shown.stdout != ""
    assert "sandbox:x:" in await sandbox.files.read("/etc/passwd")
    assert "env" in {entry.name for entry in await sandbox.files.list("/usr/bin")}
    assert await sandbox.files.exists("/usr/bin/env")
    assert not await sandbox.files.exists("/etc/shadow")
    with pytest.raises(IsADirectory):
        await sandbox.files.read("/etc")
    with pytest.raises(FileNotFound):
        await sandbox.files.read("/etc/nothing")
    assert [entry.path for entry in (await sandbox.files.glob("os-rel*", "/etc")).items] == ["/etc/os-release"]


@pytest.mark.parametrize(
    "path",
    ["/proc/1/environ", "/usr/../proc/1/environ", "/sys/kernel", "/dev/null", "/", "/usr/..", "to-proc/1/environ"],
)
async def test_the_kernel_s_own_trees_and_the_root_are_no_files(sandbox, path):
    await sandbox.commands.run(["ln", "-sfn", "/proc", "to-proc"])
    with pytest.raises(InvalidPath, match="outside"):
        await sandbox.files.read(path)


@pytest.mark.parametrize("path", ["/etc/os-release", "/new", "/usr/../etc/new", "to-usr/new"])
async def test_nothing_there_is_changed(sandbox, path):
    await sandbox.commands.run(["ln", "-sfn", "/usr", "to-usr"])
    files = sandbox.files
    changes = (
        lambda: files.write(path, "x"),
        lambda: files.make_dir(path),
        lambda: files.remove(path, recursive=True),
        lambda: files.rename(path, "/workspace/taken"),
        lambda: files.rename("/etc/hosts", "/workspace/taken"),
    )
    for change in changes:
        with pytest.raises(FilePermission, match="only /workspace and /tmp can be written"):
            await change()
    await files.write("/tmp/mine", "x")
    with pytest.raises(FilePermission):
        await files.rename("/tmp/mine", path)
    assert await files.read("/tmp/mine") == "x"


async def test_a_way_up_from_the_system_leads_to_the_writable_trees_again(sandbox):
    assert (await sandbox.files.write("/usr/../tmp/up", "x")).path == "/tmp/up"
    assert await sandbox.files.read("/etc/../usr/../tmp/up") == "x"


async def test_no_parent_is_made_there(sandbox):
    with pytest.raises(FilePermission, match="only /workspace and /tmp can be written"):
        await sandbox.files.write("/usr/new/file", "x")


async def test_the_first_plot_finds_a_list_of_fonts_instead_of_making_it(fresh, host):
    in_pods = "own network" not in host.traits
    if not in_pods and (fonts() is None or importlib.util.find_spec("matplotlib") is None):
        pytest.skip("needs a list of fonts: no program of this user has plotted with Matplotlib")
    # A list that is made, instead of read, would call this.
    code = "import matplotlib.font_manager as m\nm.FontManager.__init__ = None\n"
    made = await fresh.sandbox.run_code(f"{code}type(m._load_fontmanager()).__name__")
    assert (made.text, made.error) == ("'FontManager'", None)
    control = await fresh.sandbox.run_code("m._load_fontmanager(try_read_cache=False)")
    assert control.error.name == "TypeError"
