"""pip in a session: one pip, however it is called, which says at once that there is no network."""

import pytest
from contract.executor.harness import until
from sandfleet import Outcome
from support.wheels import wheel

pytestmark = pytest.mark.asyncio(loop_scope="session")

REFUSED = 69


async def put(sandbox, name="own_package", version="1.0", **options):
    """A wheel in the workspace; its path."""
    path = f"wheels/{name}-{version}-py3-none-any.whl"
    await sandbox.files.write(path, wheel(name, version, **options))
    return path


async def value(sandbox, module="own_package"):
    """What a program in the session finds the module to say."""
    return (await sandbox.commands.run(f"python -c 'import {module}; print({module}.VALUE)'")).stdout.strip()


@pytest.mark.needs("own network")
@pytest.mark.parametrize(
    "command",
    [
        "pip install no-such-package",
        "pip3 install --upgrade no-such-package",
        "python -m pip install no-such-package",
        "python3 -m pip install --user no-such-package",
        "echo no-such-package > wanted.txt; pip install -r wanted.txt",
        "pip download no-such-package",
        "python -m venv --without-pip own; PATH=$PWD/own/bin:$PATH; python -m pip install no-such-package",
    ],
)
async def test_without_a_network_a_command_is_told_so_in_one_sentence(sandbox, command):
    result = await sandbox.commands.run(command)
    assert result.exit_code == REFUSED
    assert result.stdout == ""
    [sentence] = result.stderr.splitlines()
    assert "this session has no network" in sentence
    assert ("pip install --no-index --find-links /workspace/wheels" in sentence) == (" install " in command)


@pytest.mark.needs("own network")
@pytest.mark.parametrize("code", ["%pip install no-such-package", "pip install no-such-package"])
async def test_without_a_network_the_magic_raises_the_sentence_and_prints_nothing(sandbox, code):
    execution = await sandbox.run_code(code)
    assert execution.error.name == "CannotInstall"
    assert execution.error.value.startswith("cannot install no-such-package: this session has no network; put wheels")
    assert (execution.logs.stdout, execution.logs.stderr) == ("", "")


@pytest.mark.needs("own network")
async def test_without_a_network_a_shell_escape_is_told_the_same(sandbox):
    execution = await sandbox.run_code("!pip install no-such-package\n_exit_code")
    assert execution.text == str(REFUSED)
    assert "this session has no network" in execution.logs.stderr


@pytest.mark.needs("own network")
async def test_without_a_network_what_is_installed_already_satisfies(sandbox):
    result = await sandbox.commands.run("pip install 'ipython>1'; pip install -q -U ipython")
    assert (result.exit_code, result.stderr) == (0, "")
    [line] = result.stdout.splitlines()
    assert line.startswith("Requirement already satisfied: ipython (")
    # Control: a version that is not there is missing.
    assert (await sandbox.commands.run("pip install 'ipython>99'")).exit_code == REFUSED


@pytest.mark.parametrize("call", ["pip", "python -m pip"])
async def test_what_a_command_installs_is_imported_by_commands_and_cells(fresh, call):
    path = await put(fresh.sandbox, value="of a command")
    result = await fresh.sandbox.commands.run(f"{call} install --no-index {path}", timeout=120)
    assert result.exit_code == 0, result.stderr
    assert await value(fresh.sandbox) == "of a command"
    assert (await fresh.sandbox.run_code("import own_package; own_package.VALUE")).text == "'of a command'"
    assert (await fresh.sandbox.environment()).version_of("own-package") == "1.0"


async def test_a_file_is_installed_without_what_the_image_has(fresh):
    path = await put(fresh.sandbox, needs=["ipython>1"])
    result = await fresh.sandbox.commands.run(f"pip install {path}", timeout=120)
    assert result.exit_code == 0, result.stderr
    assert await value(fresh.sandbox) == "here"
    origins = {each.name for each in (await fresh.sandbox.environment()).packages if each.origin == "workspace"}
    assert origins == {"own-package"}


async def test_a_file_of_the_same_version_takes_the_place_of_the_one_before(fresh):
    for content in ("old", "new"):
        path = await put(fresh.sandbox, value=content, needs=["ipython>1"])
        assert (await fresh.sandbox.commands.run(f"pip install ./{path}", timeout=120)).exit_code == 0
        assert await value(fresh.sandbox) == content


@pytest.mark.needs("own network")
async def test_uploaded_wheels_are_found_and_what_they_lack_is_refused(fresh):
    await put(fresh.sandbox, needs=["needed"])
    lacking = await fresh.sandbox.commands.run("pip install --find-links wheels own-package", timeout=120)
    assert lacking.exit_code == REFUSED
    assert "needed" in lacking.stderr
    assert "this session has no network" in lacking.stderr
    await put(fresh.sandbox, "needed")
    found = await fresh.sandbox.commands.run("pip install --no-index --find-links wheels own-package", timeout=120)
    assert found.exit_code == 0, found.stderr
    assert await value(fresh.sandbox, "needed") == "here"


async def test_an_index_in_the_session_is_asked_as_any_index(fresh):
    path = await put(fresh.sandbox, value="of the index")
    await fresh.sandbox.files.write("simple/own-package/index.html", f'<a href="/{path}">{path.partition("/")[2]}</a>')
    await fresh.sandbox.commands.run("python3 -m http.server 8123", background=True)
    await until(lambda: reached(fresh.sandbox))
    result = await fresh.sandbox.commands.run("pip install -i http://127.0.0.1:8123/simple own-package", timeout=120)
    assert result.exit_code == 0, result.stderr
    assert await value(fresh.sandbox) == "of the index"


async def reached(sandbox):
    return (await sandbox.commands.run("bash -c 'exec 3<>/dev/tcp/127.0.0.1/8123'")).exit_code == 0


async def test_what_was_installed_is_listed_shown_frozen_and_uninstalled(fresh):
    path = await put(fresh.sandbox)
    assert (await fresh.sandbox.run_code(f"%pip install --no-index {path}", timeout=120)).ok
    shown = await fresh.sandbox.commands.run("pip list && pip show own-package && pip freeze", timeout=120)
    assert shown.stdout.count("own-package") >= 3
    assert "Location: /workspace/.sandfleet/packages" in shown.stdout
    gone = await fresh.sandbox.commands.run("pip uninstall own-package")
    assert gone.stdout == "Successfully uninstalled own-package-1.0\n"
    assert await value(fresh.sandbox) == ""
    assert (await fresh.sandbox.environment()).version_of("own-package") is None
    kept = await fresh.sandbox.commands.run("pip uninstall -y ipython")
    assert kept.exit_code == 1
    assert "cannot uninstall ipython: it is part of the sandbox's image" in kept.stderr


async def test_an_environment_of_the_user_s_has_its_own_pip_and_none_of_the_session_s_packages(fresh):
    await fresh.sandbox.commands.run(f"pip install --no-index {await put(fresh.sandbox)}", timeout=120)
    made = await fresh.sandbox.commands.run("python -m venv own && own/bin/python -m pip --version", timeout=120)
    assert "/workspace/own/lib" in made.stdout, made.stderr
    own = await fresh.sandbox.commands.run("own/bin/python -c 'import own_package'")
    assert "ModuleNotFoundError" in own.stderr


async def test_a_path_of_the_caller_s_comes_before_the_session_s(fresh):
    await fresh.sandbox.commands.run(f"pip install --no-index {await put(fresh.sandbox)}", timeout=120)
    await fresh.sandbox.files.write("mine/own_module.py", "VALUE = 'mine'")
    code = "import own_module, own_package; print(own_module.VALUE, own_package.VALUE)"
    result = await fresh.sandbox.commands.run(f'python -c "{code}"', envs={"PYTHONPATH": "/workspace/mine"})
    assert result.stdout == "mine here\n"


async def test_pip_without_an_executor_s_shims_is_what_the_image_has(sandbox):
    # Control: what the session's own pip comes before.
    result = await sandbox.commands.run("env -u PYTHONPATH python -m pip install no-such-package --retries 0")
    assert "this session has no network" not in result.stderr
    assert result.exit_code != 0


async def test_the_interpreter_of_the_executor_s_first_process_finds_nothing_of_the_workspace(fresh):
    await fresh.sandbox.files.write(".sandfleet/packages/planted.py", "")
    execution = await fresh.sandbox.run_code("print(open('/proc/1/environ').read())")
    assert execution.outcome is Outcome.ERROR or "PYTHONPATH" not in execution.logs.stdout
