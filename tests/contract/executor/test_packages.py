"""Packages that a template declares: in the workspace when the session begins, before its first cell, and again after a
recreation.
"""

import asyncio

import pytest
from contract.executor.harness import until
from contract.executor.service_tools import gone
from sandfleet import Outcome, ServiceSpec
from sandfleet._wire.convert import common as convert
from support.wheels import hostile_sdist, wheel

pytestmark = pytest.mark.asyncio(loop_scope="session")

MIB = 1 << 20
WHEELS = "/workspace/wheels"
# Nothing is asked of anybody: what there is lies in the workspace.
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": WHEELS}
# A package whose installation waits for the test.
WAITS = "import os, time\nwhile not os.path.exists('/workspace/go'): time.sleep(0.05)"


async def put(executor, *files):
    """(name, bytes) into the folder that pip looks in; the session has not begun yet, and files do not wait for it."""
    for name, data in files:
        await executor.sandbox.files.write(f"wheels/{name}", data)


def own(version="1.0", **options):
    return f"own_package-{version}-py3-none-any.whl", wheel("own_package", version, **options)


def waiting():
    return "slow-1.0.tar.gz", hostile_sdist("slow", "1.0", WAITS)


async def described(executor):
    """What the description of the sandbox says of them; to open a session again is to be told."""
    return convert.installation((await executor.open("session")).packages)


async def ended(executor):
    """What the installation came to."""

    async def looked():
        said = await described(executor)
        return said if said.state in ("installed", "failed") else None

    return await until(looked)


@pytest.fixture
def declaring(starting):
    """A warm executor that declares packages, with files to install them from."""

    def start(*packages, envs=OFFLINE, **options):
        return starting(session=None, packages=list(packages), envs=envs, **options)

    return start


async def test_what_is_declared_is_there_before_the_first_cell_and_listed(declaring):
    async with declaring("own-package>=1,<2") as executor:
        await put(executor, own(value="of the template"), own("2.0"))
        await executor.open("session")
        assert (await executor.sandbox.run_code("import own_package; own_package.VALUE")).text == "'of the template'"
        found = await executor.sandbox.environment()
        assert found.installation.state == "installed"
        assert [(each.requirement, each.state, each.version, each.origin) for each in found.declared] == [
            ("own-package>=1,<2", "installed", "1.0", "workspace")
        ]
        assert [each.name for each in found.packages if each.origin == "workspace"] == ["own-package"]
        # Nothing is left of what it was installed with.
        assert not await executor.sandbox.files.exists(".sandfleet/installing")


async def test_nothing_is_installed_while_the_sandbox_is_warm(declaring):
    async with declaring("own-package") as executor:
        await put(executor, own())
        found = await executor.sandbox.environment()
        assert (found.installation.state, found.declared[0].state) == ("waiting", "waiting")
        assert not await executor.sandbox.files.exists(".sandfleet/packages")
        # Control: the session is what begins it.
        await executor.open("session")
        assert (await ended(executor)).state == "installed"


async def test_without_a_declaration_nothing_is_said_of_any(sandbox):
    found = await sandbox.environment()
    assert (found.installation, found.declared) == (None, ())


async def test_with_it_comes_what_it_needs_and_what_the_image_has_stays(declaring):
    async with declaring("own-package") as executor:
        needed = wheel("needed", "3.0")
        await put(executor, own(needs=["needed>=3", "ipython>=1"]), ("needed-3.0-py3-none-any.whl", needed))
        await executor.open("session")
        assert (await ended(executor)).state == "installed"
        found = await executor.sandbox.environment()
        assert sorted(each.name for each in found.packages if each.origin == "workspace") == ["needed", "own-package"]


async def test_what_the_image_has_needs_no_installation(declaring):
    async with declaring("ipython>=8", "own-package; python_version<'3'") as executor:
        await executor.open("session")
        assert (await ended(executor)).state == "installed"
        said = [(each.state, each.origin) for each in (await executor.sandbox.environment()).declared]
        assert said == [("installed", "image"), ("not-needed", "")]
        assert not await executor.sandbox.files.exists(".sandfleet/packages")


async def test_after_a_recreation_it_is_there_without_anything_to_install_it_from(declaring):
    async with declaring("own-package", keeps_workspace=True) as first:
        await put(first, own(value="kept"))
        await first.open("session")
        assert (await ended(first)).state == "installed"
        await first.sandbox.files.remove("wheels", recursive=True)
        await first.close_session()
        await first.exit()
        async with declaring("own-package", **first.kept) as second:
            await second.open("session")
            assert (await second.sandbox.run_code("import own_package; own_package.VALUE")).text == "'kept'"
            assert (await described(second)).state == "installed"


async def test_a_template_that_asks_for_another_version_gets_it(declaring):
    async with declaring("own-package==1.0", keeps_workspace=True) as first:
        await put(first, own(value="one"), own("2.0", value="two"))
        await first.open("session")
        assert (await ended(first)).state == "installed"
        await first.close_session()
        await first.exit()
        async with declaring("own-package==2.0", **first.kept) as second:
            await second.open("session")
            assert (await second.sandbox.run_code("import own_package; own_package.VALUE")).text == "'two'"
            versions = [
                each.version for each in (await second.sandbox.environment()).packages if each.name == "own-package"
            ]
            assert versions == ["2.0"]


async def test_cells_commands_and_services_wait_and_files_do_not(declaring):
    service = {"name": "web", "command": ["python", "-c", "import own_package, time; time.sleep(3600)"]}
    async with declaring("own-package", "slow", services=[service]) as executor:
        await put(executor, own(), waiting())
        await executor.open("session")
        cell = asyncio.create_task(executor.sandbox.run_code("import own_package; 'ran'", timeout=10))
        command = asyncio.create_task(executor.sandbox.commands.run("ls wheels", timeout=10))
        await until(lambda: running(executor, 3))
        [web] = await executor.sandbox.services.list()
        assert (web.state, web.restarts) == ("waiting", 0)
        assert "being installed" in web.message
        assert (await executor.sandbox.environment()).declared[0].state == "installing"
        # The gate itself is a file: if RPCs on files waited as well, the test could never go on.
        assert not cell.done() and not command.done()
        await executor.sandbox.files.write("go", b"")
        # The one that can only be built fails, so none is installed; whatever has waited runs.
        assert (await cell).error.name == "ModuleNotFoundError"
        assert (await command).ok
        assert (await ended(executor)).reason == "BuildFailed"
        assert await until(lambda: begun(executor, "web"))


async def running(executor, count):
    return (await executor.sandbox.usage()).running_executions >= count - 1


async def begun(executor, name):
    return any(each.name == name and each.state != "waiting" for each in await executor.sandbox.services.list())


async def test_what_waits_can_be_stopped(declaring):
    async with declaring("slow") as executor:
        await put(executor, waiting())
        await executor.open("session")
        cell = asyncio.create_task(executor.sandbox.run_code("1"))
        await until(lambda: running(executor, 2))
        await until(executor.sandbox.interrupt)
        assert (await cell).outcome is Outcome.INTERRUPTED
        assert (await described(executor)).state == "installing"


async def test_a_service_that_waits_can_be_stopped(declaring):
    async with declaring("slow") as executor:
        await put(executor, waiting())
        await executor.open("session")
        await executor.sandbox.services.apply([ServiceSpec(name="web", cmd="sleep 3600")])
        await executor.sandbox.services.stop("web")
        assert [each.state for each in await executor.sandbox.services.list()] == ["stopped"]


async def test_a_sandbox_that_is_closed_meanwhile_ends(declaring):
    async with declaring("slow") as executor:
        await put(executor, waiting())
        await executor.open("session")
        cell = asyncio.create_task(executor.sandbox.run_code("1"))
        await until(lambda: running(executor, 2))
        await executor.close_session()
        assert (await executor.exit()).code == 0
        assert not (await cell).ok


# What cannot be installed

REASONS = {
    "NotFound": (["no-such-package-anywhere"], []),
    "Conflict": (
        ["ipython==0.0.1", "own-package"],
        [own(), ("ipython-0.0.1-py3-none-any.whl", wheel("ipython", "0.0.1"))],
    ),
    "BuildFailed": (["broken"], [("broken-1.0.tar.gz", hostile_sdist("broken", "1.0", "raise OSError('cannot')"))]),
}


@pytest.mark.parametrize("reason", REASONS)
async def test_a_failure_has_a_reason_and_the_end_of_the_log_and_code_runs(declaring, reason):
    packages, files = REASONS[reason]
    async with declaring(*packages) as executor:
        await put(executor, *files)
        await executor.open("session")
        said = await ended(executor)
        assert (said.state, said.reason, said.log) == ("failed", reason, "")
        assert packages[0] in said.message
        found = await executor.sandbox.environment()
        assert found.installation.reason == reason
        assert "error" in found.installation.log.lower()
        assert found.missing == tuple(packages)
        assert (await executor.sandbox.run_code("1 + 1")).text == "2"


async def test_the_first_result_of_each_context_and_the_first_command_say_it_once(declaring):
    async with declaring("no-such-package-anywhere") as executor:
        await executor.open("session")
        sandbox = executor.sandbox
        other = await sandbox.create_context("other")
        answers = [
            await sandbox.run_code("1"),
            await sandbox.run_code("1"),
            await sandbox.run_code("1", context=other),
            await sandbox.commands.run("true"),
            await sandbox.commands.run("true"),
        ]
        said = [[each.reason for each in answer.notices] for answer in answers]
        assert said == [["PackagesNotInstalled"], [], ["PackagesNotInstalled"], ["PackagesNotInstalled"], []]
        assert "no-such-package-anywhere" in answers[0].notices[0].message


async def test_where_all_is_well_nothing_is_said(declaring):
    async with declaring("ipython") as executor:
        await executor.open("session")
        assert (await executor.sandbox.run_code("1")).notices == ()


@pytest.mark.smoke
async def test_what_code_installs_afterwards_counts(declaring):
    async with declaring("own-package") as executor:
        await executor.open("session")
        assert (await ended(executor)).reason == "NotFound"
        await put(executor, own())
        assert (await executor.sandbox.run_code("%pip install own-package", timeout=120)).ok
        found = await executor.sandbox.environment()
        assert (found.declared[0].state, found.declared[0].version, found.missing) == ("installed", "1.0", ())


async def test_an_installation_has_a_deadline_and_leaves_nothing(declaring):
    async with declaring("slow", packages_timeout=1.0) as executor:
        await put(executor, waiting())
        await executor.open("session")
        assert (await ended(executor)).reason == "InstallTimeout"
        assert not await executor.sandbox.files.exists(".sandfleet/installing")
        assert await until(lambda: gone(executor.sandbox))


# What is bounded by the limits of the session

FLOODS = {
    "MemoryLimit": "held = [b'x' * (1 << 24) for _ in range(1 << 10)]",
    "DiskLimit": "open('/workspace/flood', 'wb').write(b'')\nfor n in range(1 << 12): open(f'/workspace/flood{n}', 'wb').write(b'x' * (1 << 20))",
    # Its processes go on, so that pip waits for them.
    "InstallTimeout": "import os, time\nfor _ in range(10_000):\n    if os.fork() == 0: time.sleep(3600)",
}


@pytest.mark.parametrize("reason", FLOODS)
async def test_a_package_that_takes_everything_is_ended_and_the_sandbox_goes_on(declaring, reason):
    limits = {"memory_bytes": 512 * MIB, "disk_bytes": 64 * MIB, "processes": 64}
    patience = {"packages_timeout": 5.0} if reason == "InstallTimeout" else {}
    async with declaring("evil", limits=limits, **patience) as executor:
        await put(executor, ("evil-1.0.tar.gz", hostile_sdist("evil", "1.0", FLOODS[reason])))
        await executor.open("session")
        assert (await ended(executor)).reason == reason
        await executor.sandbox.files.remove("wheels", recursive=True)
        names = [each.path for each in await executor.sandbox.files.list(".") if "flood" in each.path]
        for name in names:
            await executor.sandbox.files.remove(name)
        assert (await executor.sandbox.run_code("1 + 1")).text == "2"


async def test_what_is_installed_runs_with_the_rights_of_user_code(declaring):
    spies = (
        "import os\nopen('/workspace/seen', 'w').write(str((os.getuid(), sorted(os.listdir('/')), sorted(os.environ))))"
    )
    async with declaring("spy") as executor:
        await put(executor, ("spy-1.0.tar.gz", hostile_sdist("spy", "1.0", spies)))
        await executor.open("session")
        await ended(executor)
        code = "import os; print((os.getuid(), sorted(os.listdir('/'))))"
        own_view = (await executor.sandbox.run_code(code)).logs.stdout.strip()
        seen = await executor.sandbox.files.read("seen")
        assert own_view.rstrip(")") in seen
        assert "SANDFLEET_TEST_SECRET" not in seen


# An executor that is killed on the way


async def test_an_installation_that_was_cut_off_is_begun_anew(declaring):
    async with declaring("own-package", "slow", keeps_workspace=True) as first:
        await put(first, own(), waiting())
        await first.open("session")
        await until(lambda: first.sandbox.files.exists(".sandfleet/installing/tmp"))
        first.kill()
        await first.exit()
        async with declaring("own-package", **first.kept) as second:
            await second.open("session")
            assert (await second.sandbox.run_code("import own_package; own_package.VALUE")).text == "'here'"
            assert not await second.sandbox.files.exists(".sandfleet/installing")


async def test_what_was_half_in_place_does_not_count_as_installed(declaring):
    async with declaring("own-package") as executor:
        # As it is where pip was killed between the two: what the package says of itself, without the package.
        folder = ".sandfleet/packages/own_package-1.0.dist-info"
        await executor.sandbox.files.write(
            f"{folder}/METADATA", b"Metadata-Version: 2.1\nName: own-package\nVersion: 1.0\n"
        )
        await executor.sandbox.files.write(".sandfleet/installing/pending.json", b'["own-package"]')
        await put(executor, own(value="whole"))
        await executor.open("session")
        assert (await executor.sandbox.run_code("import own_package; own_package.VALUE")).text == "'whole'"


async def test_control_what_says_that_it_is_installed_is_believed(declaring):
    async with declaring("own-package") as executor:
        folder = ".sandfleet/packages/own_package-1.0.dist-info"
        await executor.sandbox.files.write(
            f"{folder}/METADATA", b"Metadata-Version: 2.1\nName: own-package\nVersion: 1.0\n"
        )
        await put(executor, own(value="whole"))
        await executor.open("session")
        assert (await executor.sandbox.run_code("import own_package")).error.name == "ModuleNotFoundError"


PLANTED = (
    "import os; os.symlink('/', '/workspace/.sandfleet/installing')",
    "import os; os.symlink('/nowhere', '/workspace/.sandfleet/packages')",
    "open('/workspace/.sandfleet/installing', 'w').write('no folder')",
    "import os; os.mkfifo('/workspace/.sandfleet/packages')",
)


@pytest.mark.parametrize("planted", PLANTED)
async def test_what_an_earlier_session_has_planted_breaks_nothing(declaring, planted):
    async with declaring(keeps_workspace=True) as first:
        await put(first, own())
        await first.open("session")
        assert (await first.sandbox.run_code(f"import os; os.makedirs('/workspace/.sandfleet')\n{planted}")).ok
        await first.close_session()
        await first.exit()
        async with declaring("own-package", **first.kept) as second:
            await second.open("session")
            # A cell waits for the installation, however long that takes.
            assert (await second.sandbox.run_code("1 + 1")).text == "2"
            assert (await described(second)).state in ("installed", "failed")


@pytest.mark.parametrize(
    "packages", [["--index-url=https://x"], ["a @ https://x/a.whl"], ["../a"], ["a" * 201], ["a"] * 65, "a"]
)
async def test_an_invalid_requirement_is_a_bad_configuration(host, packages):
    paths = {"workspace": "/w", "private_dir": "/p", "keys_file": "/k"}
    config = {"sandbox_id": "s", "listen": "127.0.0.1:1", "keys_authority": "any", **paths}
    assert "cannot declare package" in await host.refusal({**config, "packages": packages})
