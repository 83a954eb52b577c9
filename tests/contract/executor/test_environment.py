"""The environment manifest: what code finds in a sandbox, and that what it installs outlives the executor."""

import pytest
from sandfleet import Outcome
from sandfleet.errors import PreconditionFailed
from support.wheels import wheel

pytestmark = pytest.mark.asyncio(loop_scope="session")

MIB = 1 << 20


async def install(sandbox, name, version, *, value):
    path = f"wheels/{name}-{version}-py3-none-any.whl"
    await sandbox.files.write(path, wheel(name, version, value=value))
    execution = await sandbox.run_code(f"%pip install --quiet --no-index /workspace/{path}", timeout=120)
    assert execution.outcome is Outcome.OK, execution.logs.stderr


async def test_it_names_python_the_kernel_the_languages_and_what_is_the_same_in_each_run(sandbox):
    found = await sandbox.environment()
    said = await sandbox.run_code("import platform, os\nprint(platform.python_version(), os.uname().release)")
    python, release = said.logs.stdout.split()
    assert found.python_version == found.languages["python"] == python
    assert release in found.kernel
    bash = await sandbox.run_code("echo ${BASH_VERSION%%(*}", language="bash")
    assert found.languages["bash"] == bash.logs.stdout.strip()
    fixed = {name: found.fixed_envs[name] for name in ("PYTHONHASHSEED", "TZ", "LC_ALL")}
    assert fixed == {"PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C.UTF-8"}


async def test_the_variables_are_those_that_an_interpreter_really_has(starting):
    async with starting(envs={"TZ": "Europe/Berlin", "SECRET": "s"}) as executor:
        found = await executor.sandbox.environment()
        code = "import os; print(os.environ['TZ'], os.environ['PYTHONHASHSEED'])"
        said = (await executor.sandbox.run_code(code)).logs.stdout.split()
        assert [found.fixed_envs["TZ"], found.fixed_envs["PYTHONHASHSEED"]] == said == ["Europe/Berlin", "0"]
        assert "SECRET" not in found.fixed_envs


async def test_packages_of_the_image_are_listed_with_the_versions_that_import_finds(sandbox):
    found = await sandbox.environment()
    ours = {each.name.lower(): each for each in found.packages}
    assert ours["ipython"].origin == "image"
    assert (await sandbox.run_code("import IPython; print(IPython.__version__)")).logs.stdout.strip() == ours[
        "ipython"
    ].version
    assert found.version_of("IPython") == ours["ipython"].version
    assert found.version_of("not-there-at-all") is None


async def test_what_pip_installs_is_listed_and_outlives_the_executor(starting):
    async with starting(keeps_workspace=True) as first:
        await install(first.sandbox, "own_package", "1.2.3", value="installed")
        listed = [each for each in (await first.sandbox.environment()).packages if each.origin == "workspace"]
        assert [(each.name, each.version) for each in listed] == [("own-package", "1.2.3")]
        assert (await first.sandbox.run_code("import own_package; own_package.VALUE")).text == "'installed'"
        await first.close_session()
        await first.exit()
        kept = {name: first.config[name] for name in ("workspace", "user_id")}
        async with starting(**kept) as second:
            assert (await second.sandbox.run_code("import own_package; own_package.VALUE")).text == "'installed'"
            again = await second.sandbox.environment()
            assert again.version_of("own_package") == "1.2.3"


async def test_another_sandbox_does_not_have_it(sandbox):
    # Control: it was the workspace that kept it.
    assert (await sandbox.run_code("import own_package")).error.name == "ModuleNotFoundError"
    assert not [each for each in (await sandbox.environment()).packages if each.origin == "workspace"]


async def test_a_newer_version_takes_the_place_of_the_older(fresh):
    await install(fresh.sandbox, "own_package", "1.0", value="old")
    await install(fresh.sandbox, "own_package", "2.0", value="new")
    await fresh.sandbox.restart_context()
    assert (await fresh.sandbox.run_code("import own_package; own_package.VALUE")).text == "'new'"
    assert (await fresh.sandbox.environment()).version_of("own-package") == "2.0"


async def test_two_of_a_name_are_both_listed_and_the_image_s_is_what_import_finds(fresh):
    await install(fresh.sandbox, "ipython", "99.0", value="not mine")
    found = await fresh.sandbox.environment()
    origins = [each.origin for each in found.packages if each.name.lower() == "ipython"]
    assert sorted(origins) == ["image", "workspace"]
    assert found.version_of("ipython") != "99.0"


async def test_asking_changes_no_file_and_counts_as_no_execution(fresh):
    await fresh.sandbox.run_code("before = 1")
    await fresh.sandbox.environment()
    assert (await fresh.sandbox.run_code("import os; os.listdir('.')")).text == "[]"
    assert (await fresh.sandbox.usage()).running_executions == 0


PLANTED = {
    "garbage": b"\xff\x00\xfe" * 100,
    "no name": b"Metadata-Version: 2.1\nVersion: 1\n",
    "no version": b"Metadata-Version: 2.1\nName: evil\n",
    "a long name": b"Metadata-Version: 2.1\nName: " + b"n" * MIB + b"\nVersion: 1\n",
    "control characters": b"Metadata-Version: 2.1\nName: a\x1b[31m\nVersion: 1\n",
    "a header without an end": b"Name: " * 100_000,
}


@pytest.mark.parametrize("planted", PLANTED)
async def test_metadata_that_user_code_has_planted_breaks_nothing(fresh, planted):
    await fresh.sandbox.files.write(".sandfleet/packages/evil-1.dist-info/METADATA", PLANTED[planted])
    found = await fresh.sandbox.environment()
    assert found.version_of("ipython")
    assert all(len(each.name) <= 200 and len(each.version) <= 200 for each in found.packages)


@pytest.mark.parametrize(
    "code",
    [
        "import os; os.symlink('/', '/workspace/.sandfleet')",
        "import os; os.makedirs('/workspace/.sandfleet'); os.symlink('/proc', '/workspace/.sandfleet/packages')",
        "import os; os.makedirs('/workspace/.sandfleet/packages/a.dist-info'); os.mkfifo('/workspace/.sandfleet/packages/fifo')",
        "import os\nfor name in ('json', 'platform', 'subprocess', 'importlib'): open(f'/workspace/{name}.py', 'w').write('raise SystemExit')",
        "import os; os.makedirs('/workspace/.sandfleet/packages'); open('/workspace/.sandfleet/packages/sitecustomize.py', 'w').write('raise SystemExit')",
    ],
)
async def test_an_invalid_folder_of_packages_breaks_nothing(fresh, code):
    assert (await fresh.sandbox.run_code(code)).outcome is Outcome.OK
    assert (await fresh.sandbox.environment()).version_of("ipython")


async def test_modules_of_the_workspace_would_hide_the_real_ones_from_a_plain_python(fresh):
    # Control: what the program that looks is kept from.
    await fresh.sandbox.files.write("json.py", "raise SystemExit(7)")
    assert (await fresh.sandbox.commands.run("python3 -c 'import json'")).exit_code == 7
    assert (await fresh.sandbox.environment()).version_of("ipython")


async def test_a_folder_that_never_ends_to_be_read_is_an_error_in_time(fresh):
    code = "import os; os.makedirs('/workspace/.sandfleet/packages/a-1.dist-info'); os.mkfifo('/workspace/.sandfleet/packages/a-1.dist-info/METADATA')"
    await fresh.sandbox.run_code(code)
    with pytest.raises(PreconditionFailed, match="cannot look at what is installed"):
        await fresh.sandbox.environment()
    assert (await fresh.sandbox.run_code("1 + 1")).text == "2"


async def test_more_packages_than_a_manifest_holds_are_an_error(fresh):
    code = """
import os
for n in range(5001):
    folder = f'/workspace/.sandfleet/packages/p{n}-1.dist-info'
    os.makedirs(folder)
    open(f'{folder}/METADATA', 'w').write(f'Metadata-Version: 2.1\\nName: p{n}\\nVersion: 1\\n')
"""
    await fresh.sandbox.run_code(code, timeout=120)
    with pytest.raises(PreconditionFailed, match="more than 5000 packages"):
        await fresh.sandbox.environment()
