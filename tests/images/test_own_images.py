"""Executors in the root file systems of other images (scripts/own-images.sh), as docs/howto/own-image.md promises."""

import asyncio
import base64
import json
import os
import secrets
import subprocess
from pathlib import Path

import pytest
import pytest_asyncio
from contract.executor.harness import PATIENCE, ExecutorUnderTest, until
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sandfleet.errors import SandfleetError
from support.wheels import wheel

ROOTS = dict(pair.split("=", 1) for pair in os.environ.get("SANDFLEET_ROOTS", "").split())
# What Python each has, what of it is there beside the executor, and in which languages code runs.
OURS = {"python", "bash", "javascript", "typescript", "sql"}
EXPECTED = {
    "with-packages": ("3.11", "tabulate", OURS),
    "from-ours": ("3.11", "humanize", OURS),
    "with-kernel": ("3.11", "tabulate", OURS | {"jupyter-ir"}),
    "copied": ("3.11", "tabulate", OURS),
    # Debian 13 has Node 20.
    "made": ("3.13", "ipython", OURS - {"typescript"}),
}
TWO = {
    "python": "print(1 + 1)",
    "bash": "echo $((1 + 1))",
    "javascript": "console.log(1 + 1)",
    "typescript": "console.log((1 as number) + 1)",
    "sql": "COPY (SELECT 1 + 1) TO '/dev/stdout' (HEADER false);",
    "jupyter-ir": "cat(1 + 1, '\\n', sep = '')",
}
PROGRAM = [
    "/opt/sandfleet/venv/bin/python",
    "-m",
    "sandfleet_executor",
    "serve",
    "--config",
    "/run/sandfleet/config.json",
]
# As a container runtime does it: a root of its own, not chroot, below which no user namespace could be made.
ENTER = """
set -eu
cd "$1"
mount --bind "$2" workspace
mount --bind "$3" run/sandfleet
mount -t proc proc proc
mount -t tmpfs tmpfs tmp
mount --rbind /dev dev
mount -o remount,bind,ro .
shift 3
pivot_root . .
umount --lazy .
cd /run/sandfleet
exec setpriv --reuid 1000 --regid 1000 --clear-groups --no-new-privs --pdeathsig KILL env -i \\
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin PYTHONDONTWRITEBYTECODE=1 "$@"
"""

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(
        not ROOTS, reason="needs root file systems in SANDFLEET_ROOTS: scripts/own-images.sh makes them"
    ),
]


class Host:
    """Keys for one executor."""

    def __init__(self):
        self.key = Ed25519PrivateKey.generate()


class RootExecutor(ExecutorUnderTest):
    """One that was started in a root file system, as uid 1000 and with everything but its folders read-only."""

    process = None

    @property
    def address(self):
        return f"unix:{self.folder}/x.sock"

    @property
    def ended(self):
        return self.process.poll() is not None


async def start(root, folder, **config):
    host = Host()
    public = base64.urlsafe_b64encode(host.key.public_key().public_bytes_raw()).rstrip(b"=").decode()
    for name in ("workspace", "run", "run/private"):
        (folder / name).mkdir(mode=0o700)
    keys = {"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "k", "x": public}]}
    (folder / "run/keys.json").write_text(json.dumps(keys))
    said = {
        "sandbox_id": "own",
        "sandbox_uid": f"own-{secrets.token_hex(4)}",
        "workspace": "/workspace",
        "private_dir": "/run/sandfleet/private",
        "keys_file": "/run/sandfleet/keys.json",
        "socket": "/run/sandfleet/x.sock",
        **config,
    }
    (folder / "run/config.json").write_text(json.dumps(said))
    for each in (folder / "workspace", folder / "run", *(folder / "run").iterdir()):
        os.chown(each, 1000, 1000)
    own = ["unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "--propagation", "private"]
    command = [*own, "sh", "-c", ENTER, "enter", root, str(folder / "workspace"), str(folder / "run"), *PROGRAM]
    executor = RootExecutor(host, said)
    executor.folder = folder / "run"
    executor.process = await asyncio.to_thread(
        subprocess.Popen, command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    await until(lambda: (folder / "run/x.sock").exists() or executor.ended)
    assert not executor.ended, executor.process.stderr.read().decode()
    executor.sandbox = executor.client()
    return executor


@pytest_asyncio.fixture(params=sorted(ROOTS) or ["none"], loop_scope="session")
async def executor(request, tmp_path):
    packages = {
        "packages": ["own-package", "ipython"],
        "envs": {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/workspace/wheels"},
    }
    made = await start(ROOTS[request.param], tmp_path, **packages)
    made.name = request.param
    yield made
    for client in made.clients:
        await client.close()
    try:
        await made.close_session()
        assert await asyncio.to_thread(made.process.wait, PATIENCE) == 0
    finally:
        # Nothing to do where it has ended; else everything in its namespace ends with it.
        made.process.kill()
    made.process.stderr.close()


async def test_an_executor_in_the_image_runs_code_and_lists_its_packages(executor):
    sandbox = executor.sandbox
    await sandbox.files.write("wheels/own_package-1.0-py3-none-any.whl", wheel("own_package", "1.0", value="declared"))
    described = await executor.open("session")
    assert {"user", "pid", "mount", "network"} <= set(described.separations)
    assert (await sandbox.run_code("import own_package; own_package.VALUE")).text == "'declared'"
    assert (await sandbox.commands.run("id -u; touch /usr/x || echo read-only")).stdout == "1000\nread-only\n"
    python, package, languages = EXPECTED[executor.name]
    found = await sandbox.environment()
    assert found.python_version.startswith(f"{python}.")
    assert set(found.languages) == languages
    for language in sorted(languages):
        assert (await sandbox.run_code(TWO[language], language=language, timeout=120)).logs.stdout == "2\n"
    assert {each.name.lower(): each.origin for each in found.packages}[package] == "image"
    assert [(each.state, each.origin) for each in found.declared] == [
        ("installed", "workspace"),
        ("installed", "image"),
    ]
    assert found.missing == ()


async def test_searching_works_if_re2_is_installed(executor):
    await executor.open("session")
    await executor.sandbox.files.write("a.txt", b"one\ntwo\n")
    assert [match.line for match in await executor.sandbox.files.search("tw.", regex=True)] == [2]
    with pytest.raises(SandfleetError):
        await executor.sandbox.files.search("(", regex=True)


async def test_each_image_of_the_page_was_built():
    assert set(EXPECTED) == set(ROOTS)
    assert all((Path(root) / "opt/sandfleet/venv").is_dir() for root in ROOTS.values())
