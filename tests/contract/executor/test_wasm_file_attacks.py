"""Attacks by a skill that is WebAssembly, on files: as test_wasm_attacks.py."""

import pytest
import pytest_asyncio
from contract.executor import wasm_calls
from contract.executor.wasm_calls import alone, called, installed, refusal
from contract.executor.wasm_modules import (
    DATA_FOLDER,
    GIVEN,
    NUMBER,
    OTHER,
    OUT_FOLDER,
    PATH,
    READ,
    READER,
    WRITE,
    manifest,
    module,
    number,
    opening,
    reader,
    sweep,
)
from sandfleet import Outcome

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def planted(sandbox):
    """The file's sandbox with folders, a secret, and links to it."""
    return await wasm_calls.planted(sandbox)


@pytest.fixture
def call(planted):
    """`await call(module, functions, "f", folders=…)`: what a new skill's function gives."""
    return wasm_calls.caller(planted)


OUTSIDE = {
    "the folder above": "../secret.json",
    "up and down": "../data/../secret.json",
    "from within": "missing/../../secret.json",
    "an absolute path": "/workspace/secret.json",
    "the system": "/etc/passwd",
    "the process": "/proc/self/environ",
    "a link to a file": "up",
    "an absolute link": "absolute",
    "a link to a folder": "folder/secret.json",
    "a link to the root": "root/etc/passwd",
    "a link to the process": "process",
    "a null byte": "known.json\0/../../secret.json",
    "a slash behind": "../secret.json/",
}


@pytest.mark.parametrize("path", OUTSIDE.values(), ids=OUTSIDE)
@pytest.mark.attack("a Wasm skill reads a file outside its folders", "an error number of WASI")
async def test_a_file_outside_the_folders_is_not_opened(call, path):
    assert await call(reader(path), READER, "opened", folders=DATA_FOLDER) > 0
    assert (await call(reader(path), READER, "content", folders=DATA_FOLDER))["error"] == "SkillFailed"


@pytest.mark.parametrize("path", ["known.json", "inside"])
async def test_a_file_in_the_folder_is_read_and_a_link_that_stays_there_is_followed(call, path):
    assert await call(reader(path), READER, "content", folders=DATA_FOLDER) == "known"


@pytest.mark.control("a Wasm skill reads a file outside its folders")
async def test_control_it_is_read_where_the_manifest_grants_the_workspace(call):
    for path in ("secret.json", "data/up"):
        assert await call(reader(path), READER, "content", folders=[{"path": "."}]) == "secret"


STEPS = {
    "a link to the folder above": ("folder", "secret.json"),
    "a link to the root": ("root", "workspace/secret.json"),
    "the folder above": ("..", "secret.json"),
    "a link with a slash behind": ("folder/", "secret.json"),
    "a link with a dot behind": ("folder/.", "secret.json"),
}


def in_two_steps(first, second, *, follow):
    """Opens a folder, and in it a file: the error number of the first that fails."""
    opened = opening(first, flags=2, follow=follow)
    within = opening(second, folder=f"(i32.load (i32.const {GIVEN}))").replace(
        f"(i32.const {PATH})", f"(i32.const {OTHER})"
    )
    text = f"(local.set $e {opened}) (if (local.get $e) (then (return (local.get $e)))) {within}"
    return module(number(text, names="(local $e i32)"), uses=("path_open",), data={PATH: first, OTHER: second})


@pytest.mark.parametrize("follow", [True, False], ids=["followed", "not followed"])
@pytest.mark.parametrize(("first", "second"), STEPS.values(), ids=STEPS)
@pytest.mark.attack("a Wasm skill opens a folder outside its folders, and then a file in it", "an error number of WASI")
async def test_a_folder_outside_the_folders_is_not_opened(call, first, second, follow):
    assert await call(in_two_steps(first, second, follow=follow), NUMBER, "f", folders=DATA_FOLDER) > 0


@pytest.mark.control("a Wasm skill opens a folder outside its folders, and then a file in it")
async def test_control_a_folder_within_is_opened_and_then_a_file_in_it(call):
    code = in_two_steps("data", "known.json", follow=False)
    assert await call(code, NUMBER, "f", folders=[{"path": "."}]) == 0


ACTIONS = {
    "opens in them": (opening("secret.json", folder="(local.get $fd)"), "path_open"),
    "reads from them": ("(call $fd_read (local.get $fd) (i32.const 0) (i32.const 1) (i32.const 8))", "fd_read"),
    "writes to them": ("(call $fd_write (local.get $fd) (i32.const 0) (i32.const 1) (i32.const 8))", "fd_write"),
}


@pytest.mark.parametrize(("action", "name"), ACTIONS.values(), ids=ACTIONS)
@pytest.mark.attack("a Wasm skill uses descriptors of the process that runs it", "there are none but its output")
async def test_descriptors_of_the_process_cannot_be_used(call, action, name):
    code = module(sweep(action), uses=(name,), data={PATH: "secret.json"})
    # Standard input is there, and empty.
    assert await call(code, NUMBER, "f") == (1 if name == "fd_read" else 0)


@pytest.mark.control("a Wasm skill uses descriptors of the process that runs it")
async def test_control_the_descriptor_of_a_folder_is_found_where_the_manifest_grants_it(call):
    action, name = ACTIONS["opens in them"]
    code = module(sweep(action), uses=(name,), data={PATH: "secret.json"})
    assert await call(code, NUMBER, "f", folders=[{"path": "."}]) == 1


def on_paths(name, *arguments, path="new", other="newer"):
    """A module that calls a function of WASI with paths: "path" and "other" stand for address and bytes of each."""
    places = {"path": (PATH, len(path)), "other": (OTHER, len(other))}
    words = " ".join(
        each
        if isinstance(each, str) and each.startswith("(")
        else " ".join(f"(i32.const {n})" for n in places[each])
        if each in places
        else f"(i32.const {each})"
        for each in arguments
    )
    return module(number(f"(call ${name} {words})"), uses=(name,), data={PATH: path, OTHER: other})


NEVER_TIME = ("(i64.const 0)", "(i64.const 0)", 5)
CHANGES = {
    "a new file": module(number(opening("new", flags=1, rights=WRITE)), uses=("path_open",), data={PATH: "new"}),
    "a file that is there": module(
        number(opening("old.json", rights=WRITE)), uses=("path_open",), data={PATH: "old.json"}
    ),
    "an end of a file": module(
        number(opening("old.json", flags=8, rights=READ)), uses=("path_open",), data={PATH: "old.json"}
    ),
    "a folder": on_paths("path_create_directory", 3, "path"),
    "another name": on_paths("path_rename", 3, "path", 3, "other", path="old.json"),
    "times": on_paths("path_filestat_set_times", 3, 1, "path", *NEVER_TIME, path="old.json"),
    "a removal": on_paths("path_unlink_file", 3, "path", path="old.json"),
}
LOOK = """
import pathlib
sorted((one.name, one.stat().st_mtime_ns, one.is_file() and one.read_text()) for one in pathlib.Path("out").iterdir())
"""
AS_BEFORE = """
import shutil
shutil.rmtree("out")
os.mkdir("out")
open("out/old.json", "w").write('"old"')
"""


@pytest.mark.parametrize("code", CHANGES.values(), ids=CHANGES)
@pytest.mark.attack("a Wasm skill writes into a folder that it may read", "an error number, and nothing has changed")
async def test_a_folder_that_may_be_read_is_not_written(planted, call, code):
    before = (await planted.run_code(LOOK)).text
    assert await call(code, NUMBER, "f", folders=[{"path": "out", "mode": "read"}]) > 0
    assert (await planted.run_code(LOOK)).text == before


@pytest.mark.parametrize("code", CHANGES.values(), ids=CHANGES)
@pytest.mark.control("a Wasm skill writes into a folder that it may read")
async def test_control_it_is_written_where_the_manifest_says_write(planted, call, code):
    before = (await planted.run_code(LOOK)).text
    assert await call(code, NUMBER, "f", folders=OUT_FOLDER) == 0
    changed = (await planted.run_code(LOOK)).text
    (await planted.run_code(AS_BEFORE)).raise_for_error()
    # A file that is opened for writing has not changed by that.
    assert changed != before or code == CHANGES["a file that is there"]


MOVES = {
    "by another name": on_paths("path_rename", 3, "path", 4, "other", path="known.json", other="mine.json"),
    "by a hard link": on_paths("path_link", 3, 0, "path", 4, "other", path="known.json", other="mine.json"),
}


@pytest.mark.parametrize("code", MOVES.values(), ids=MOVES)
@pytest.mark.attack(
    "a Wasm skill moves a file from a folder that it may read to one that it may write", "no file moves"
)
async def test_a_file_is_not_moved_to_where_it_could_be_written(planted, call, code):
    assert await call(code, NUMBER, "f", folders=[*DATA_FOLDER, *OUT_FOLDER]) > 0
    assert (await planted.run_code("os.path.exists('data/known.json'), os.path.exists('out/mine.json')")).text == (
        "(True, False)"
    )


@pytest.mark.control("a Wasm skill moves a file from a folder that it may read to one that it may write")
async def test_control_a_file_moves_between_folders_that_it_may_write(planted, call):
    both = [{"path": "data", "mode": "write"}, *OUT_FOLDER]
    assert await call(MOVES["by another name"], NUMBER, "f", folders=both) == 0
    assert (await planted.run_code("os.replace('out/mine.json', 'data/known.json')")).outcome is Outcome.OK


LINKS = {
    "a symbolic link": on_paths("path_symlink", "other", 3, "path", other="../secret.json"),
    "a hard link": on_paths("path_link", 3, 0, "other", 3, "path", other="old.json"),
}


@pytest.mark.parametrize("code", LINKS.values(), ids=LINKS)
@pytest.mark.attack("a Wasm skill makes a link for others to follow", "no link is made")
async def test_no_link_is_made(planted, call, code):
    assert await call(code, NUMBER, "f", folders=OUT_FOLDER) == 76
    assert (await planted.run_code("os.path.lexists('out/new')")).text == "False"


@pytest.mark.parametrize("code", LINKS.values(), ids=LINKS)
@pytest.mark.control("a Wasm skill makes a link for others to follow")
async def test_control_wasmtime_alone_lets_a_module_make_links(tmp_path, code):
    (tmp_path / "old.json").write_text("old")
    assert alone(code, "f", lambda wasi: wasi.preopen_dir(str(tmp_path), "out", True)) == 0
    assert (tmp_path / "new").is_symlink() or (tmp_path / "new").read_text() == "old"


@pytest.mark.attack("a link stands in the place of a Wasm skill's folder", "SkillRefused")
@pytest.mark.parametrize("path", ["swapped", "swapped/data", "data/folder"])
async def test_a_folder_that_is_a_link_is_not_opened(planted, call, path):
    swap = "import os\nif not os.path.islink('swapped'): os.symlink('/workspace', 'swapped')"
    (await planted.run_code(swap)).raise_for_error()
    said = await call(reader("secret.json"), READER, "content", folders=[{"path": path}])
    assert refusal(said) == ("SkillRefused", "NoFolder")


@pytest.mark.control("a link stands in the place of a Wasm skill's folder")
async def test_control_wasmtime_alone_follows_the_link(tmp_path):
    (tmp_path / "secret.json").write_text('"secret"')
    (tmp_path / "swapped").symlink_to(tmp_path)
    code = reader("secret.json")
    assert alone(code, "opened", lambda wasi: wasi.preopen_dir(str(tmp_path / "swapped"), "swapped", False)) == 0


OWN = {
    "the workspace": ".",
    "the skills": "skills",
    "below the skills": "skills/data",
    "settings": ".config",
    "settings below": "out/.git",
    "the packages": ".sandfleet/packages",
    "above": "..",
    "up": "out/../skills",
    "the system": "/etc",
    "twice": "out//x",
    "empty": "",
    "where it is itself": "lib",
}


@pytest.mark.parametrize("path", OWN.values(), ids=OWN)
@pytest.mark.attack("a Wasm skill asks to write where the session's code is", "SkillRefused")
async def test_no_manifest_grants_to_write_where_the_session_takes_code_from(call, path):
    (await call(reader("x"), READER, "opened", folders=OUT_FOLDER))
    said = await call(reader("x"), READER, "opened", folders=[{"path": path, "mode": "write"}])
    assert refusal(said) == ("SkillRefused", "OwnFolder" if path == "lib" else "Manifest")


LINKED = """
import os
os.mkdir("linked")
for end in (".json", ".wasm"):
    os.symlink("/workspace/{path}" + end, "linked/x" + end)
"""


@pytest.mark.attack("a Wasm skill asks to write where its files are, which links hide", "SkillRefused", control="in it")
async def test_links_do_not_hide_where_a_skill_is(planted):
    path = await installed(planted, reader("x"), manifest(READER, folders=[{"path": "lib", "mode": "write"}]))
    (await planted.run_code(LINKED.format(path=path))).raise_for_error()
    assert refusal(await called(planted, "linked/x", "opened")) == ("SkillRefused", "OwnFolder")
    # The control: with other files at the same place the folder is granted.
    copy = "import shutil\nfor end in ('json', 'wasm'): shutil.copy('linked/x.' + end, 'data/x.' + end)"
    (await planted.run_code(copy)).raise_for_error()
    assert await called(planted, "data/x", "opened") > 0


@pytest.mark.control("a Wasm skill asks to write where the session's code is")
async def test_control_a_module_that_writes_its_manifest_would_have_more_at_the_next_load(planted):
    path = await installed(planted, reader("secret.json"), manifest(READER))
    assert (await called(planted, path, "content"))["error"] == "SkillFailed"
    await planted.files.write(f"{path}.json", manifest(READER, folders=[{"path": "."}]))
    assert await called(planted, path, "content") == "secret"
