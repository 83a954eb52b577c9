"""Installers of packages in a session without a network."""

import shutil

import pytest

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("npm install left-pad", 'egress=["registry.npmjs.org"]'),
        ("apt-get install left-pad", "put such packages into its image"),
        ("go install example.com/left@v1", 'egress=["proxy.golang.org"]'),
    ],
)
async def test_an_installer_says_that_there_is_no_network(sandbox, command, why):
    program = command.partition(" ")[0]
    if shutil.which(program, path="/usr/local/bin:/usr/bin:/bin") is None:
        pytest.skip(f"needs {program}")
    ended = await sandbox.commands.run(command)
    assert ended.exit_code != 0
    assert ended.stderr.splitlines()[-1].startswith(f"cannot {program} install")
    assert why in ended.stderr
    # What needs no registry is as ever, and a proxy is a way out.
    assert "cannot" not in (await sandbox.commands.run(f"{program} --version")).stderr
    there = await sandbox.commands.run(command, envs={"HTTPS_PROXY": "http://127.0.0.1:9"}, timeout=5)
    assert "this session has no network" not in there.stderr


async def test_programs_that_are_not_there_have_no_shim(sandbox):
    found = await sandbox.commands.run("for name in npm cargo go apt; do command -v $name; done; true")
    for path in found.stdout.split():
        assert shutil.which(path.rpartition("/")[2])
    assert (await sandbox.commands.run("echo $PAGER")).stdout == "cat\n"
