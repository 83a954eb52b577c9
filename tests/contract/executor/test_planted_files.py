"""Files in the workspace that programs take for their own: they must not keep anything from working."""

import json

import pytest
from sandfleet import Outcome

pytestmark = pytest.mark.asyncio(loop_scope="session")

POISON = "raise SystemExit('poisoned')\n"
MODULES = [
    "sitecustomize.py",
    "usercustomize.py",
    "conftest.py",
    "json.py",
    "asyncio.py",
    "os.py",
    "sys.py",
    "re.py",
    "signal.py",
    "socket.py",
    "traceback.py",
    "IPython/__init__.py",
    "traitlets/__init__.py",
    "encodings/__init__.py",
    "_sandfleet_worker/__init__.py",
    "sandfleet_rules/__init__.py",
    "sandfleet_rules/tables.py",
    "matplotlib_inline/__init__.py",
    "pkg_resources.py",
    "readline.py",
]
OTHERS = {
    ".bashrc": "exit 9\n",
    ".profile": "exit 9\n",
    ".bash_profile": "exit 9\n",
    ".bash_env": "exit 9\n",
    ".inputrc": "$bad",
    "pyvenv.cfg": "home = /nowhere\n",
    "python3._pth": "nothing\n",
    ".pythonrc.py": POISON,
    ".pdbrc": POISON,
    ".ipython/profile_default/startup/00.py": POISON,
    ".ipython/profile_default/ipython_config.py": POISON,
    "ipython_config.py": POISON,
    "matplotlibrc": "backend: nonsense\n",
    ".config/matplotlib/matplotlibrc": "backend: nonsense\n",
    ".local/lib/python3.11/site-packages/evil.pth": "import sys; sys.exit('poisoned')\n",
    ".local/lib/python3.11/site-packages/sitecustomize.py": POISON,
    ".local/lib/python3.11/site-packages/usercustomize.py": POISON,
    ".sandfleet/packages/sitecustomize.py": POISON,
    ".sandfleet/packages/json.py": POISON,
    ".sandfleet/packages/evil.pth": "import sys; sys.exit('poisoned')\n",
    ".sandfleet/packages/bin/sh": "#!/bin/false\n",
    "bash": "#!/bin/false\n",
    "python3": "#!/bin/false\n",
}
USE_ALL = "import json, asyncio, os, re, signal, socket, traceback, IPython\nawait asyncio.sleep(0)\nprint(json.dumps({'a': 1}))\n!echo child\n1/0"


async def works(sandbox, context=None):
    execution = await sandbox.run_code(USE_ALL, context=context, timeout=60)
    assert (execution.error.name, execution.logs.stdout, execution.logs.stderr) == (
        "ZeroDivisionError",
        '{"a": 1}\nchild\n',
        "",
    )
    assert "poisoned" not in execution.error.traceback
    result = await sandbox.commands.run("echo $((1 + 1)) && bash -c 'echo inner'", timeout=60)
    assert (result.stdout, result.stderr, result.exit_code) == ("2\ninner\n", "", 0)
    return True


@pytest.mark.attack("plants modules before its context starts", "they are not imported")
async def test_planted_before_the_context_starts(fresh):
    sandbox = fresh.sandbox
    for name in (*MODULES, *OTHERS):
        await sandbox.files.write(name, OTHERS.get(name, POISON), mode=0o755)
    assert await works(sandbox)
    await sandbox.create_context("later")
    assert await works(sandbox, "later")
    # A session namespace of its own starts among them as well.
    await sandbox.run_code("import os; os._exit(1)")
    assert await works(sandbox)


@pytest.mark.attack("plants modules between two cells", "they are not imported")
async def test_planted_between_two_cells(fresh):
    sandbox = fresh.sandbox
    await sandbox.run_code("kept = 1")
    for name in (*MODULES, *OTHERS):
        await sandbox.files.write(name, OTHERS.get(name, POISON), mode=0o755)
    assert await works(sandbox)
    assert (await sandbox.run_code("kept")).text == "1"


@pytest.mark.control("plants modules before its context starts", "plants modules between two cells")
async def test_a_plain_python_in_the_same_folder_falls_for_them(fresh):
    # Control: the files do what they are meant to do where nothing is done against it.
    await fresh.sandbox.files.write("json.py", POISON)
    result = await fresh.sandbox.commands.run("echo 'import json' > run.py; python3 run.py")
    assert (result.exit_code, result.stderr) == (1, "poisoned\n")


KERNEL_FILES = {
    "ipykernel_launcher.py": POISON,
    "ipykernel/__init__.py": POISON,
    ".local/share/jupyter/kernels/python3/kernel.json": json.dumps({"argv": ["/bin/false"]}),
    "pip.py": POISON,
}


async def planted(sandbox, module):
    """The files are there; the control: a plain Python falls for the module."""
    for name, text in KERNEL_FILES.items():
        await sandbox.files.write(name, text)
    plain = await sandbox.commands.run(f"python3 -m {module} --version")
    assert (plain.exit_code, plain.stderr) == (1, "poisoned\n")


@pytest.mark.needs("a kernel of Jupyter")
@pytest.mark.attack("plants what a kernel and %pip start with", "it is not used", control="in it")
async def test_a_kernel_starts_with_the_image_s_own(fresh):
    sandbox = fresh.sandbox
    await planted(sandbox, "ipykernel_launcher")
    await sandbox.files.write("mine.py", "value = 1\n")
    context = await sandbox.create_context(language="jupyter-python3")
    # The workspace's modules are found all the same.
    found = await sandbox.run_code("import mine; mine.value", context=context, timeout=60)
    assert (found.outcome, found.text) == (Outcome.OK, "1"), found


@pytest.mark.attack("plants what a kernel and %pip start with", "it is not used", control="in it")
async def test_pip_starts_with_the_image_s_own(fresh):
    await planted(fresh.sandbox, "pip")
    asked = await fresh.sandbox.run_code("%pip --version", timeout=60)
    assert (asked.outcome, asked.logs.stdout.startswith("pip ")) == (Outcome.OK, True), asked


async def test_a_module_of_the_user_s_own_is_imported_and_a_changed_one_again(fresh):
    sandbox = fresh.sandbox
    await sandbox.files.write("mine.py", "value = 1\n")
    assert (await sandbox.run_code("import mine; mine.value")).text == "1"
    await sandbox.files.write("mine.py", "value = 2\n")
    assert (await sandbox.run_code("import importlib; importlib.reload(mine).value")).text == "2"


@pytest.mark.attack("poisons the environment of the worker", "without effect", control="in it")
async def test_environment_variables_of_an_execution_cannot_poison_the_worker(fresh):
    sandbox = fresh.sandbox
    await sandbox.files.write("evil/sitecustomize.py", POISON)
    envs = {
        "PYTHONPATH": "/workspace/evil",
        "PYTHONSTARTUP": "/workspace/evil/sitecustomize.py",
        "LD_PRELOAD": "/nowhere.so",
        "BASH_ENV": "/workspace/.bashrc",
        "PYTHONHOME": "/nowhere",
    }
    execution = await sandbox.run_code("1 + 1", envs=envs)
    assert (execution.outcome, execution.text) == (Outcome.OK, "2")
    await sandbox.create_context("poisoned", envs=envs)
    assert (await sandbox.run_code("1 + 1", context="poisoned")).text == "2"
    # A command has asked for them and gets them, its supervisor does not.
    result = await sandbox.commands.run(["/bin/true"], envs=envs)
    assert result.exit_code == 0
    # Control: a Python that gets them falls for them.
    result = await sandbox.commands.run(["python3", "-c", ""], envs={"PYTHONPATH": envs["PYTHONPATH"]})
    assert "poisoned" in result.stderr
