"""A sandbox with the root of another image: code has it as its own, and nothing of it runs under the executor."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandfleet import ClaimError, InvalidArgument, SandboxError
from sandfleet._fleets.embedded import Options, Process
from sandfleet._fleets.fleet import AsyncFleet
from sandfleet.sandbox import AsyncSandbox
from support.client.served import served_fleet
from support.roots import copy_program, make_root

# The libraries of an image that has none of them: each is one that the executor's Python loads.
POISONED = ("libm.so.6", "libz.so.1", "libcrypto.so.3", "libffi.so.8")


@pytest.fixture(scope="module")
def served() -> Iterator[Process]:
    with served_fleet(Options(pool_size=0)) as process:
        yield process


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = make_root(tmp_path_factory.mktemp("image") / "root")
    (made / "etc").mkdir()
    (made / "etc" / "os-release").write_text("NAME=Small\n")
    (made / "etc" / "passwd").write_text("root:x:0:0::/root:/bin/sh\nbuilder:x:1234:1234::/home/builder:/bin/sh\n")
    (made / "testbed").mkdir()
    (made / "testbed" / "greeting.txt").write_text("hello\n")
    return made


@pytest.mark.smoke
async def test_code_has_the_root_of_the_image_and_may_change_it(fleet: AsyncFleet, root: Path) -> None:
    async with AsyncSandbox.create(fleet=fleet, image=str(root)) as sandbox:
        run = sandbox.commands.run
        assert (await run("cat /etc/os-release /testbed/greeting.txt")).stdout == "NAME=Small\nhello\n"
        assert (await run("id -u; echo $HOME $USER")).stdout == "0\n/root root\n"
        changed = await run("echo changed > /testbed/greeting.txt; rm /etc/os-release; mkdir /srv2; echo a > a; ls")
        assert (changed.exit_code, changed.stdout) == (0, "a\n")
        # Cells run in the executor's Python, on the image's root.
        code = "import os, numpy; x = 6; print(open('/testbed/greeting.txt').read(), os.path.exists('/etc/os-release'))"
        assert (await sandbox.run_code(code)).logs.stdout == "changed\n False\n"
        killed = await sandbox.run_code("x = 7; os.kill(os.getpid(), 9)")
        assert (killed.outcome, (await sandbox.run_code("x")).text) == ("killed", "6")
        (copy,) = await sandbox.fork()
        async with copy:
            # A copy has the image and the workspace, and nothing of what was changed in the root.
            assert (await copy.commands.run("cat /testbed/greeting.txt a")).stdout == "hello\na\n"
            assert (await copy.run_code("x")).text == "6"
    assert (root / "testbed" / "greeting.txt").read_text() == "hello\n"
    assert not (root / "srv2").exists()


async def test_a_user_of_the_image_and_its_home(fleet: AsyncFleet, root: Path) -> None:
    for user in ("builder", 1234, "1234:1234"):
        async with AsyncSandbox.create(fleet=fleet, image=str(root), user=user) as sandbox:
            assert (await sandbox.commands.run("id -u; echo $HOME")).stdout == "1234\n/home/builder\n"
    with pytest.raises(InvalidArgument, match="has no such user"):
        await AsyncSandbox.create(fleet=fleet, image=str(root), user="nobody-there")
    with pytest.raises(InvalidArgument, match="only sandboxes with an image"):
        await AsyncSandbox.create(fleet=fleet, user="builder")


async def test_no_library_of_the_image_and_no_preload_comes_under_the_executor(
    fleet: AsyncFleet, tmp_path: Path
) -> None:
    root = make_root(tmp_path / "root")
    folders = {path.parent for path in root.rglob("libc.so.6")}
    for name in POISONED:
        for folder in (*folders, root / "lib", root / "usr" / "lib"):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(b"no library")
    (root / "etc").mkdir()
    (root / "etc" / "ld.so.preload").write_text("/lib/poison.so\n")
    shutil.copy(root / "bin" / "sh", root / "bin" / "python3")
    envs = {"LD_LIBRARY_PATH": "/lib", "PYTHONHOME": "/nowhere", "LD_PRELOAD": "/lib/poison.so"}
    async with AsyncSandbox.create(fleet=fleet, image=str(root)) as sandbox:
        code = "import ctypes, decimal, math, ssl, zlib; [line for line in open('/proc/self/maps') if '/opt/' not in line and '.so' in line]"
        assert (await sandbox.run_code(code)).text == "[]"
        assert "poison.so" in (await sandbox.commands.run("id -u")).stderr
    # The variables of an image do not reach the first process either.
    image = unpacked(tmp_path / "image", root, envs)
    async with AsyncSandbox.create(fleet=fleet, image=image) as sandbox:
        assert (await sandbox.run_code("import math; math.floor(1.5)")).text == "1"
    # Control: this machine's own Python, below that root, loads them.
    copy_program(root, os.path.realpath(sys.executable), root / "bin" / "python3.11")
    around = ["bwrap", "--bind", str(root), "/", "--proc", "/proc", "--dev", "/dev"]
    own = subprocess.run([*around, "/bin/python3.11", "-c", "1"], capture_output=True, text=True, check=False)
    assert own.returncode != 0
    assert "poison.so" in own.stderr


def unpacked(folder: Path, root: Path, envs: dict[str, str]) -> str:
    """An archive of the root as buildah makes it, with these variables."""
    if shutil.which("buildah") is None:
        pytest.skip("buildah is missing, which unpacks archives (Debian: apt-get install buildah)")
    folder.mkdir()
    kept = ["--root", str(folder / "s"), "--runroot", str(folder / "r"), "--storage-driver", "vfs"]
    said = " ".join(f"--env {name}={value}" for name, value in envs.items())
    script = f"""
    container=$(buildah {" ".join(kept)} from scratch)
    buildah {" ".join(kept)} copy --quiet $container {root} / > /dev/null
    buildah {" ".join(kept)} config {said} $container
    buildah {" ".join(kept)} commit --quiet $container docker-archive:{folder}/image.tar:localhost/small:1 > /dev/null
    """
    around = [] if os.geteuid() == 0 else ["buildah", "unshare"]
    subprocess.run([*around, "sh", "-euc", script], check=True, capture_output=True)
    return str(folder / "image.tar")


async def test_an_archive_is_unpacked_once_and_its_variables_hold(
    fleet: AsyncFleet, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    archive = unpacked(tmp_path / "image", root, {"GREETING": "hello", "PATH": "/bin:/tools"})
    for _ in range(2):
        async with AsyncSandbox.create(fleet=fleet, image=archive, envs={"OWN": "1"}) as sandbox:
            said = (await sandbox.commands.run("echo $GREETING $PATH $OWN")).stdout
            assert said == "hello /bin:/tools 1\n"
    roots = [path for path in (tmp_path / "cache" / "sandfleet" / "roots").iterdir() if path.is_dir()]
    assert len(roots) == 1
    assert json.loads((roots[0] / "image.json").read_text())["OCIv1"]["config"]["Env"] == [
        "GREETING=hello",
        "PATH=/bin:/tools",
    ]


async def test_links_of_an_image_lead_nowhere_out_of_it(fleet: AsyncFleet, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o777)
    root = make_root(tmp_path / "root")
    for name in ("etc", "tmp", "run", "workspace"):
        (root / name).symlink_to(f"/oldroot{outside}")
    (root / "opt").mkdir()
    (root / "opt" / "sandfleet").symlink_to(f"/oldroot{outside}")
    async with AsyncSandbox.create(fleet=fleet, image=str(root)) as sandbox:
        assert (
            await sandbox.run_code("open('/etc/new', 'w').write('x'); open('/tmp/new', 'w').write('x')")
        ).text == "1"
        assert (await sandbox.commands.run("echo 1 > /workspace/a; ls /etc")).stdout == "hosts\nnew\n"
    assert list(outside.iterdir()) == []
    # Control: bubblewrap itself follows such a link out of the new root.
    around = ["bwrap", "--bind", str(root), "/", "--dir", "/etc/made", "/bin/sh", "-c", ":"]
    subprocess.run(around, check=False, capture_output=True)
    assert [path.name for path in outside.iterdir()] == ["made"]


async def test_code_has_no_way_to_what_lies_under_its_root(fleet: AsyncFleet, root: Path) -> None:
    async with AsyncSandbox.create(fleet=fleet, image=str(root)) as sandbox:
        code = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
tried = [libc.umount2(path, 2) for path in (b"/", b"/opt/sandfleet", b"/etc/hosts")]
tried += [libc.unshare(0x10000000), libc.unshare(0x20000), os.access("/opt/sandfleet/bin", os.W_OK)]
tried
"""
        assert (await sandbox.run_code(code)).text == "[-1, -1, -1, -1, -1, False]"
        full = await sandbox.run_code("open('/big', 'wb').write(bytes(1 << 20) * 1100)")
        assert full.outcome in {"error", "memory"}
        assert (await sandbox.commands.run("rm -f /big; echo ok")).stdout == "ok\n"


async def test_it_sleeps_and_wakes_with_its_image_but_not_in_a_snapshot(fleet: AsyncFleet, root: Path) -> None:
    async with AsyncSandbox.create(fleet=fleet, image=str(root)) as sandbox:
        await sandbox.run_code("x = 6")
        with pytest.raises(SandboxError, match="a snapshot names no root"):
            await sandbox.suspend(to="snapshot")
        await sandbox.suspend()
        async with AsyncSandbox.resume(sandbox.sandbox_id, fleet=fleet) as woken:
            assert (await woken.run_code("x")).text == "6"
            assert (await woken.commands.run("cat /testbed/greeting.txt")).stdout == "hello\n"
    with pytest.raises(ClaimError, match="a snapshot names no root"):
        await AsyncSandbox.create(fleet=fleet, image=str(root), on_idle="snapshot", idle_timeout=5)


async def test_an_image_that_is_not_there_is_refused_in_words(fleet: AsyncFleet, tmp_path: Path) -> None:
    (tmp_path / "file.tar").write_bytes(b"no archive")
    for image, why in (
        (str(tmp_path / "none"), "there is no such folder or archive"),
        (str(tmp_path / "file.tar"), "cannot unpack the image|buildah is not installed"),
    ):
        with pytest.raises(InvalidArgument, match=why):
            await AsyncSandbox.create(fleet=fleet, image=image)
    empty = tmp_path / "empty"
    empty.mkdir()
    async with AsyncSandbox.create(fleet=fleet, image=str(empty)) as sandbox:
        # A root without any program: cells run, and a command says what is missing.
        assert (await sandbox.run_code("1 + 1")).text == "2"
        assert "/bin/sh" in (await sandbox.commands.run("true")).stderr
