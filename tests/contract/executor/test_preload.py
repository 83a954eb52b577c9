"""Modules that are in the memory of each context from its start, and what does not stop the sandbox."""

import importlib.util

import pytest
from sandfleet._wire.convert import common as convert

pytestmark = pytest.mark.asyncio(loop_scope="session")

# Modules of the standard library stand for large ones: no context has imported them by itself.
MODULES = ["xml.dom.minidom", "wave"]
FOUND = f"import sys; [name in sys.modules for name in {MODULES}]"


async def test_its_modules_are_there_in_each_context_before_anything_is_imported(starting):
    async with starting(preload=MODULES) as executor:
        execution = await executor.sandbox.run_code(FOUND)
        assert (execution.text, execution.notices) == ("[True, True]", ())
        made = await executor.sandbox.create_context()
        assert (await executor.sandbox.run_code(FOUND, context=made)).text == "[True, True]"
        await executor.sandbox.restart_context()
        assert (await executor.sandbox.run_code(FOUND)).text == "[True, True]"
        assert await told(executor) == dict.fromkeys(MODULES, ("loaded", ""))


async def told(executor):
    """What the description of the sandbox says of each module; to open a session again is to be told."""
    modules = convert.preloaded((await executor.open("session")).preload)
    return {each.name: (each.state, each.problem) for each in modules}


async def test_without_it_they_are_not(executor):
    # Control.
    assert (await executor.sandbox.run_code(FOUND)).text == "[False, False]"
    assert await told(executor) == {}


@pytest.mark.parametrize(
    ("module", "problem"),
    [
        ("no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("wave.nothing", "'wave' is not a package"),
        # Ends the process that imports it.
        pytest.param(
            "test.crashers.gc_inspection",
            "importing it ended the process",
            marks=pytest.mark.needs("the tests of Python's library"),
        ),
    ],
)
async def test_a_module_that_cannot_be_imported_is_told_and_stops_nothing(starting, module, problem):
    if module.startswith("test.") and importlib.util.find_spec("test") is None:
        pytest.skip("needs the tests of the standard library, which this Python has not")
    async with starting(preload=["xml.dom.minidom", module, "wave"]) as executor:
        execution = await executor.sandbox.run_code(FOUND)
        assert execution.text == "[True, True]"
        [notice] = execution.notices
        assert notice.reason == "ModulesNotPreloaded"
        assert f"cannot preload {module} (" in notice.message
        assert problem in notice.message
        assert (await executor.sandbox.run_code("1")).notices == ()
        states = {name: state for name, (state, _) in (await told(executor)).items()}
        assert states == {"xml.dom.minidom": "loaded", module: "failed", "wave": "loaded"}


async def test_a_session_whose_processes_were_all_killed_has_them_again(starting):
    async with starting(preload=MODULES) as executor:
        await executor.sandbox.run_code("import os; os.kill(-1, 9)")
        assert (await executor.sandbox.run_code(FOUND)).text == "[True, True]"


async def test_a_figure_is_shown_where_its_library_was_loaded_ahead(starting):
    pytest.importorskip("matplotlib")
    async with starting(preload=["matplotlib.pyplot"]) as executor:
        code = "import matplotlib.pyplot as plt\nplt.figure(figsize=(2, 1), dpi=50)\nplt.plot([1, 2])\nNone"
        for _ in range(2):
            execution = await executor.sandbox.run_code(code)
            assert [result.png[:4] for result in execution.results if result.png] == [b"\x89PNG"]


async def test_each_context_has_random_numbers_of_its_own(starting):
    pytest.importorskip("numpy")
    async with starting(preload=["numpy"]) as executor:
        made = await executor.sandbox.create_context()
        code = "import random, numpy; (random.random(), numpy.random.random())"
        first, second = [(await executor.sandbox.run_code(code, context=context)).text for context in ("default", made)]
        assert not {*first.strip("()").split(", ")} & {*second.strip("()").split(", ")}


async def test_nothing_of_the_workspace_is_loaded_ahead(starting):
    async with starting(preload=["planted"], keeps_workspace=True) as first:
        await first.sandbox.files.write("planted.py", "")
        await first.sandbox.files.write(".sandfleet/packages/planted.py", "")
        await first.close_session()
        await first.exit()
        async with starting(preload=["planted"], **first.kept) as second:
            assert (await told(second))["planted"][0] == "failed"
            assert (await second.sandbox.run_code("import planted")).ok
