"""Skills that are WebAssembly, of real sandboxes on this machine: saved in one session, called in the next."""

import json
import subprocess
import sys

import pytest
from sandfleet import AsyncSandbox, InvalidArgument, SkillLibrary, SkillState, WasmModule
from wasmtime import wat2wasm

MODULE = bytes(
    wat2wasm('(module (func (export "twice") (param i32) (result i32) (i32.shl (local.get 0) (i32.const 1))))')
)
MANIFEST = {
    "doc": "Doubles.",
    "functions": [{"name": "twice", "parameters": ["number"], "doc": "Twice it.", "numbers": True}],
}
TESTS = "from skills import doubles\nassert doubles.twice(4) == 8\n"


@pytest.fixture
def library(tmp_path):
    return SkillLibrary(tmp_path / "library")


async def test_a_module_is_tested_in_a_fresh_sandbox_and_called_in_a_later_session(library):
    async with AsyncSandbox.create(skills=library) as first:
        await first.files.write("made.wasm", MODULE)
        saved = await first.skills.save("doubles", path="made.wasm", manifest=MANIFEST, tests=TESTS)
        assert (saved.state, saved.why) == (SkillState.OFFERED, "")
        assert saved.wasm == WasmModule(MODULE, json.dumps(MANIFEST, sort_keys=True))
        assert saved.stub == "# skills.doubles: Doubles.\ndef skills.doubles.twice(number): ..."
    async with AsyncSandbox.create(skills=library) as second:
        execution = await second.run_code("from skills import doubles; doubles.twice(21), doubles.twice.__doc__")
        assert execution.text == "(42, 'Twice it.')", execution
        done = await second.commands.run(["python3", "-c", "from skills import doubles; print(doubles.twice(2))"])
        assert done.stdout == "4\n", done


@pytest.mark.parametrize(
    ("manifest", "tests", "why"),
    [
        (MANIFEST, "from skills import doubles\nassert doubles.twice(4) == 9", "AssertionError"),
        (MANIFEST | {"memory_mb": 0}, TESTS, "memory_mb is no number from 1 to 1024"),
        (MANIFEST | {"network": True}, TESTS, "'network', which means nothing here"),
        (MANIFEST | {"folders": [{"path": "missing"}]}, TESTS, "cannot open the folder missing"),
        ({"functions": [{"name": "thrice"}]}, "from skills import doubles\ndoubles.thrice()", "no function thrice"),
    ],
    ids=["its tests fail", "a limit of zero", "an unknown grant", "no such folder", "no such function"],
)
async def test_a_module_that_does_not_work_is_not_offered(library, manifest, tests, why):
    async with AsyncSandbox.create(skills=library) as sandbox:
        saved = await sandbox.skills.save("doubles", MODULE, manifest=manifest, tests=tests)
        assert saved.state is SkillState.FAILED
        assert why in saved.why


async def test_a_module_is_bytes_and_has_a_manifest(library):
    async with AsyncSandbox.create(skills=library) as sandbox:
        for code, manifest in ((MODULE, None), ("def twice(number): ...", MANIFEST)):
            with pytest.raises(InvalidArgument, match="is bytes and has a manifest"):
                await sandbox.skills.save("doubles", code, manifest=manifest, tests=TESTS)
        with pytest.raises(InvalidArgument, match="it is no WebAssembly module"):
            await sandbox.skills.save("doubles", b"(module)", manifest=MANIFEST, tests=TESTS)


NO_WASMTIME = """
import os, subprocess, venv
venv.create("bare", with_pip=False)
os.environ["SANDFLEET_PYTHON"] = os.path.abspath("bare/bin/python")
from skills import doubles
import wasm_skill
try:
    doubles.twice(1)
except wasm_skill.SkillUnavailable as error:
    said = error.skill, error.reason, "has no wasmtime" in str(error)
del os.environ["SANDFLEET_PYTHON"]
said, doubles.twice(1)
"""


async def test_a_session_without_wasmtime_says_what_is_missing(library):
    library.checked(library.add("doubles", "", TESTS, module=WasmModule(MODULE, json.dumps(MANIFEST))), "")
    async with AsyncSandbox.create(skills=library) as sandbox:
        execution = await sandbox.run_code(NO_WASMTIME)
        assert execution.text == "(('doubles', 'NoWasmtime', True), 2)", execution


THREADS = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as threads:
    doubled = list(threads.map(doubles.twice, range(99)))
sum(doubled)
"""


async def test_a_skill_is_called_by_copies_of_a_context_and_by_forks_and_threads(library):
    library.checked(library.add("doubles", "", TESTS, module=WasmModule(MODULE, json.dumps(MANIFEST))), "")
    async with AsyncSandbox.create(skills=library) as sandbox:
        await sandbox.run_code("from skills import doubles; doubles.twice(1)")
        (copy,) = await sandbox.fork_context("default")
        assert (await sandbox.run_code("doubles.twice(3)", context=copy)).text == "6"
        assert (await sandbox.run_code("doubles.twice(2)")).text == "4"
        forked = "import multiprocessing\nmultiprocessing.get_context('fork').Pool(2).map(doubles.twice, range(4))"
        assert (await sandbox.run_code(forked)).text == "[0, 2, 4, 6]"
        assert (await sandbox.run_code(THREADS)).text == str(99 * 98)


def test_the_command_shows_the_manifest(library):
    library.add("doubles", "", TESTS, module=WasmModule(MODULE, json.dumps(MANIFEST | {"tools": ["customer"]})))
    line = [sys.executable, "-m", "sandfleet", "skills", "show", "doubles", "--library", str(library.folder)]
    shown = subprocess.run(line, capture_output=True, text=True, timeout=60, check=True).stdout
    assert '"customer"' in shown
    said = json.loads(subprocess.run([*line, "--json"], capture_output=True, text=True, timeout=60, check=True).stdout)
    assert said["wasm"]["module"].startswith("AGFzbQEAAAA")
