"""Attacks by a skill that is WebAssembly, on the session that calls it.

The session may do all that the module tries: each control is the same module where the manifest grants it, or what a
module meets in wasmtime without our rules.
"""

import asyncio
import json
import secrets

import pytest
import pytest_asyncio
import wasmtime
from contract.executor.harness import until
from contract.executor.wasm_modules import (
    DATA,
    GIVEN,
    NUMBER,
    OTHER,
    PATH,
    READ,
    READER,
    VALUE,
    WRITE,
    manifest,
    module,
    number,
    opening,
    reader,
)
from sandfleet import Outcome

pytestmark = pytest.mark.asyncio(loop_scope="session")
CALL = """
import json, wasm_skill
try:
    said = wasm_skill.load({path!r}).call({function!r}{arguments})
except wasm_skill.SkillError as error:
    said = {{"error": type(error).__name__, "reason": error.reason, "message": str(error)[:300]}}
except TypeError as error:
    said = {{"error": "TypeError", "message": str(error)[:300]}}
json.dumps(said)
"""
PLANT = """
import os, socket
for folder in ("data", "out", "lib"):
    os.makedirs(folder, exist_ok=True)
open("secret.json", "w").write('"secret"')
open("data/known.json", "w").write('"known"')
open("out/old.json", "w").write('"old"')
for name, target in {"up": "../secret.json", "absolute": "/workspace/secret.json", "folder": "..", "root": "/",
                     "process": "/proc/self/environ", "inside": "known.json"}.items():
    if not os.path.islink(f"data/{name}"):
        os.symlink(target, f"data/{name}")
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def planted(sandbox):
    """The file's sandbox with folders, a secret, and links to it."""
    (await sandbox.run_code(PLANT)).raise_for_error()
    return sandbox


@pytest.fixture
def call(planted):
    """`await call(module, functions, "f", folders=…)`: what a new skill's function gives."""

    async def use(code, functions, function, arguments=None, sandbox=planted, **granted):
        path = await installed(sandbox, code, manifest(functions, **granted))
        return await called(sandbox, path, function, arguments)

    return use


async def installed(sandbox, code, text):
    path = f"lib/s{secrets.token_hex(4)}"
    await sandbox.files.write(f"{path}.wasm", code)
    await sandbox.files.write(f"{path}.json", text)
    return path


async def called(sandbox, path, function, arguments=None):
    given = "".join(f", {name}={value!r}" for name, value in (arguments or {}).items())
    execution = await sandbox.run_code(CALL.format(path=path, function=function, arguments=given), timeout=120)
    assert execution.outcome is Outcome.OK, execution
    return json.loads(eval(execution.text))


def refusal(said):
    return said["error"], said["reason"]


def alone(code, function, configure):
    """What a module's function gives in wasmtime without our rules: for controls."""
    engine = wasmtime.Engine()
    store, linker, wasi = wasmtime.Store(engine), wasmtime.Linker(engine), wasmtime.WasiConfig()
    configure(wasi)
    store.set_wasi(wasi)
    linker.define_wasi()
    loaded = wasmtime.Module(engine, code)
    linker.define_unknown_imports_as_traps(loaded)
    return linker.instantiate(store, loaded).exports(store)[function](store)


# Files

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
DATA_FOLDER = [{"path": "data", "mode": "read"}]
OUT_FOLDER = [{"path": "out", "mode": "write"}]


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


def sweep(action):
    """How many of the descriptors 0 to 255, but for 1 and 2, an action does not refuse."""
    return number(
        f"""(loop $next
          (if (i32.and (i32.ne (local.get $fd) (i32.const 1)) (i32.ne (local.get $fd) (i32.const 2)))
            (then (if (i32.eqz {action}) (then (local.set $found (i32.add (local.get $found) (i32.const 1)))))))
          (br_if $next (i32.lt_u (local.tee $fd (i32.add (local.get $fd) (i32.const 1))) (i32.const 256))))
        (local.get $found)""",
        names="(local $fd i32) (local $found i32)",
    )


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


# Ambient authority

SIZES = {"variables": "environ_sizes_get", "arguments": "args_sizes_get"}


def counted(name):
    return module(
        number(f"(drop (call ${name} (i32.const {GIVEN}) (i32.const {GIVEN + 4}))) (i32.load (i32.const {GIVEN}))"),
        uses=(name,),
    )


@pytest.mark.parametrize("name", SIZES.values(), ids=SIZES)
@pytest.mark.attack("a Wasm skill reads the session's environment", "there is none")
async def test_there_is_no_environment(call, name):
    assert await call(counted(name), NUMBER, "f") == 0


@pytest.mark.parametrize("name", SIZES.values(), ids=SIZES)
@pytest.mark.control("a Wasm skill reads the session's environment")
async def test_control_wasmtime_gives_one_where_it_is_told_to(name):
    def inherit(wasi):
        wasi.inherit_env()
        wasi.inherit_argv()

    assert alone(counted(name), "f", inherit) > 0


@pytest.mark.attack("the environment of a Wasm skill's process has the session's keys", "it is empty", control="in it")
async def test_the_process_of_a_skill_has_no_keys(starting):
    async with starting(contract="brokered") as made:
        sandbox = made.sandbox
        path = await installed(sandbox, counted("environ_sizes_get"), manifest(NUMBER))
        look = f"""
import os, wasm_skill
skill = wasm_skill.load({path!r})
skill.call("f")
of = lambda pid: open(f"/proc/{{pid}}/environ").read()
len(of(skill._free[0]._process.pid)), "SANDFLEET_TOOLS" in os.environ
"""
        assert (await sandbox.run_code(look)).text == "(0, True)"


CLOCKS = {
    "the time": f"(drop (call $clock_time_get (i32.const 0) (i64.const 0) (i32.const {GIVEN})))",
    "a clock that runs": f"(drop (call $clock_time_get (i32.const 1) (i64.const 0) (i32.const {GIVEN})))",
    "its resolution": f"(drop (call $clock_res_get (i32.const 1) (i32.const {GIVEN})))",
    "a wait": f"(drop (call $poll_oneoff (i32.const {DATA}) (i32.const 2048) (i32.const 1) (i32.const {GIVEN})))",
}


def clock(body):
    # A subscription to a clock of one nanosecond, where DATA is.
    text = number(
        f"(i32.store (i32.const {DATA + 16}) (i32.const 1)) (i64.store (i32.const {DATA + 24}) (i64.const 1))"
        f"{body} (i32.ne (i32.load (i32.const {GIVEN})) (i32.const 0))"
    )
    return module(text, uses=("clock_time_get", "clock_res_get", "poll_oneoff"))


@pytest.mark.parametrize("body", CLOCKS.values(), ids=CLOCKS)
@pytest.mark.attack("a Wasm skill reads the clock", "SkillDenied")
async def test_the_clock_is_denied(call, body):
    assert refusal(await call(clock(body), NUMBER, "f")) == ("SkillDenied", "Clock")


@pytest.mark.parametrize("body", CLOCKS.values(), ids=CLOCKS)
@pytest.mark.control("a Wasm skill reads the clock")
async def test_control_it_is_read_where_the_manifest_grants_it(call, body):
    assert await call(clock(body), NUMBER, "f", clock=True) == 1


CHANCE = module(
    number(f"(drop (call $random_get (i32.const {GIVEN}) (i32.const 4))) (i32.load (i32.const {GIVEN}))"),
    uses=("random_get",),
)


@pytest.mark.attack("a Wasm skill gives another result in each call", "random numbers are the same")
async def test_random_numbers_are_the_same_in_each_call(call):
    first = await call(CHANCE, NUMBER, "f")
    assert (first != 0, await call(CHANCE, NUMBER, "f")) == (True, first)


@pytest.mark.control("a Wasm skill gives another result in each call")
async def test_control_they_differ_where_the_manifest_grants_random(call):
    assert len({await call(CHANCE, NUMBER, "f", random=True) for _ in range(3)}) > 1


COUNTER = module(
    """(global $calls (mut i32) (i32.const 0))
    (func (export "f") (result i32)
      (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
      (i32.store (i32.const 2048) (i32.add (i32.load (i32.const 2048)) (i32.const 1)))
      (i32.add (global.get $calls) (i32.load (i32.const 2048))))"""
)
TWICE = "import wasm_skill; skill = wasm_skill.load({path!r}); skill.call('f'), skill.call('f'), len(skill._free)"


@pytest.mark.attack("a Wasm skill keeps what one call had for the next", "each call is a new instance")
async def test_a_call_finds_nothing_of_the_one_before(planted):
    path = await installed(planted, COUNTER, manifest(NUMBER))
    assert (await planted.run_code(TWICE.format(path=path))).text == "(2, 2, 1)"


@pytest.mark.control("a Wasm skill keeps what one call had for the next")
async def test_control_one_instance_counts_on():
    engine = wasmtime.Engine()
    store, linker, loaded = wasmtime.Store(engine), wasmtime.Linker(engine), wasmtime.Module(engine, COUNTER)
    linker.define_unknown_imports_as_traps(loaded)
    run = linker.instantiate(store, loaded).exports(store)["f"]
    assert [run(store), run(store)] == [2, 4]


# Network

SOCKETS = {
    "sock_accept": "(i32.const 0) (i32.const 12)",
    "sock_recv": "(i32.const 0) (i32.const 1) (i32.const 0) (i32.const 8) (i32.const 12)",
    "sock_send": "(i32.const 0) (i32.const 1) (i32.const 0) (i32.const 12)",
    "sock_shutdown": "(i32.const 2)",
}
LISTEN = """
import os, socket
if not os.path.exists("out/door"):
    server = socket.socket(socket.AF_UNIX)
    server.bind("out/door")
    server.listen()
"""


@pytest.mark.parametrize("name", SOCKETS)
@pytest.mark.attack("a Wasm skill uses a socket", "an error number for each descriptor, and no import gives a socket")
async def test_no_function_of_sockets_works(call, name):
    code = module(sweep(f"(call ${name} (local.get $fd) {SOCKETS[name]})"), uses=(name,))
    assert await call(code, NUMBER, "f", folders=OUT_FOLDER) == 0


@pytest.mark.attack("a Wasm skill connects to a socket in its folder", "an error number")
async def test_a_socket_in_the_folder_is_not_opened(planted, call):
    (await planted.run_code(LISTEN)).raise_for_error()
    code = module(number(opening("door", rights=READ | WRITE)), uses=("path_open",), data={PATH: "door"})
    assert await call(code, NUMBER, "f", folders=OUT_FOLDER) > 0


@pytest.mark.control("a Wasm skill connects to a socket in its folder", "a Wasm skill uses a socket")
async def test_control_code_of_the_session_connects_and_sends(planted):
    (await planted.run_code(LISTEN)).raise_for_error()
    connect = "client = socket.socket(socket.AF_UNIX); client.connect('out/door'); client.send(b'x'), server.accept()[0].recv(9)"
    assert (await planted.run_code(connect)).text == "(1, b'x')"


IMPORTS = {
    "a socket of WASIX": ("wasi_snapshot_preview1", "sock_open", "(func (param i32 i32 i32 i32) (result i32))"),
    "a socket of WASI's second preview": ("wasi:sockets/tcp@0.2.0", "connect", "(func)"),
    "a function of Emscripten": ("env", "emscripten_run_script", "(func (param i32))"),
    "another one of ours": ("sandfleet", "execute", "(func)"),
    "a memory": ("sandfleet", "write", "(memory 1)"),
    "the memory of its host": ("env", "memory", "(memory 1)"),
    "a tool by its name": ("tools", "customer", "(func)"),
    "a long name": ("x" * 10_000, "y" * 10_000, "(func)"),
}


@pytest.mark.parametrize(("where", "name", "kind"), IMPORTS.values(), ids=IMPORTS)
@pytest.mark.attack("a Wasm skill imports what its host has not", "SkillRefused")
async def test_other_imports_are_refused(call, where, name, kind):
    code = bytes(wasmtime.wat2wasm(f'(module (import "{where}" "{name}" {kind}) {number("(i32.const 1)")})'))
    assert refusal(await call(code, NUMBER, "f")) == ("SkillRefused", "Import")


@pytest.mark.control("a Wasm skill imports what its host has not")
async def test_control_what_the_host_has_is_imported(call):
    assert await call(module(number("(call $size)")), NUMBER, "f") == len("{}")


# Tools


def asking(tool, arguments='{"number": 7}', *, times=1):
    """Calls a tool; gives its answer, or fails with its message."""
    return module(
        f"""(func (export "f") (result i32) (local $left i32) (local $failed i32)
          (local.set $left (i32.const {times}))
          (loop $again
            (local.set $failed (call $call_tool (i32.const {PATH}) (i32.const {len(tool.encode())})
              (i32.const {OTHER}) (i32.const {len(arguments)})))
            (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
          (call $read (i32.const {DATA})) (call $write (i32.const {DATA}) (call $size))
          (local.get $failed))""",
        data={PATH: tool, OTHER: arguments},
    )


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def brokered(starting):
    """A brokered sandbox with two tools, and the calls that they got."""
    got = []

    def customer(number: int) -> dict:
        got.append(("customer", number))
        return {"name": f"customer {number}"}

    def delete(number: int) -> str:
        got.append(("delete", number))
        return "gone"

    def fail(number: int) -> str:
        raise RuntimeError(f"there is no {number}")

    async with starting(contract="brokered") as made, await made.sandbox.serve_tools([customer, delete, fail]):
        yield made.sandbox, got


TOOLS = {
    "another tool": "delete",
    "a tool that is not there": "missing",
    "another spelling": "Customer",
    "a null byte": "customer\0",
    "no name": "",
    "two names": "customer delete",
    "a long name": "customer" * 100,
    "code": "customer(); import os",
}


@pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)
@pytest.mark.attack(
    "a Wasm skill calls a tool that its manifest does not name", "SkillDenied; no call reaches the host"
)
async def test_a_tool_that_is_not_named_is_not_called(call, brokered, tool):
    sandbox, got = brokered
    before = list(got)
    said = await call(asking(tool), VALUE, "f", sandbox=sandbox, tools=["customer"])
    assert refusal(said) == ("SkillDenied", "Tool")
    assert got == before


@pytest.mark.control("a Wasm skill calls a tool that its manifest does not name")
async def test_control_a_tool_that_the_manifest_names_is_called(call, brokered):
    sandbox, got = brokered
    assert await call(asking("delete"), VALUE, "f", sandbox=sandbox, tools=["delete"]) == "gone"
    assert got[-1] == ("delete", 7)


async def test_what_a_tool_raises_is_a_failure_that_the_module_sees(call, brokered):
    said = await call(asking("fail"), VALUE, "f", sandbox=brokered[0], tools=["fail"])
    assert refusal(said) == ("SkillFailed", "Failed")
    assert "ToolError" in said["message"] and "there is no 7" in said["message"]


ARGUMENTS = {
    "no JSON": "{{{",
    "no object": "[7]",
    "deep": "[" * 400,
    "other names": '{"numbers": 7}',
    "no UTF-8": "\udcff",
}


@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS)
@pytest.mark.attack("a Wasm skill gives a tool nonsense", "a failure that the module sees", control="in it")
async def test_arguments_that_do_not_fit_are_a_failure(call, brokered, arguments):
    text = arguments.encode("utf-8", "surrogateescape").decode("latin-1")
    code = asking("customer", "x" * len(text))
    code = code.replace(b"x" * len(text), text.encode("latin-1")) if text else code
    said = await call(code, VALUE, "f", sandbox=brokered[0], tools=["customer"])
    assert refusal(said) == ("SkillFailed", "Failed")
    assert await call(asking("customer"), VALUE, "f", sandbox=brokered[0], tools=["customer"]) == {"name": "customer 7"}


@pytest.mark.attack("a Wasm skill calls tools without end", "SkillLimit")
async def test_calls_of_tools_in_one_call_are_counted(call):
    # Not brokered: each call fails, and counts.
    said = await call(asking("customer", times=1001), VALUE, "f", tools=["customer"], seconds=100)
    assert refusal(said) == ("SkillLimit", "ToolCalls")


@pytest.mark.control("a Wasm skill calls tools without end")
async def test_control_a_thousand_calls_are_made(call):
    said = await call(asking("customer", times=1000), VALUE, "f", tools=["customer"], seconds=100)
    assert refusal(said) == ("SkillFailed", "Failed")
    assert "NotBrokered" in said["message"] or "brokered" in said["message"]


# Limits

ENDLESS = "(loop $on (br $on))"
LOOPS = {
    "in the function": module(number(f"{ENDLESS} (i32.const 0)")),
    "as it starts": module(f"(func $s {ENDLESS}) (start $s)" + number("(i32.const 0)")),
    "as it is initialised": module(f'(func (export "_initialize") {ENDLESS})' + number("(i32.const 0)")),
    "in calls of its host": module(number("(loop $on (drop (call $size)) (br $on)) (i32.const 0)")),
}


@pytest.mark.parametrize("code", LOOPS.values(), ids=LOOPS)
@pytest.mark.attack("a Wasm skill loops without end", "SkillLimit; the variables stay and no process is left")
async def test_an_endless_loop_ends_at_the_deadline(planted, call, code):
    (await planted.run_code("kept = 7")).raise_for_error()
    assert refusal(await call(code, NUMBER, "f", seconds=0.5)) == ("SkillLimit", "Deadline")
    assert (await planted.run_code("kept")).text == "7"
    assert await left(planted) == "0"


async def left(sandbox):
    """The number of helpers that work."""
    count = """
import glob
def is_working(path):
    try:
        return b"wasm.helper" in open(f"{path}/cmdline", "rb").read() and open(f"{path}/stat").read().split()[2] == "R"
    except OSError:
        return False
sum(map(is_working, glob.glob("/proc/[0-9]*")))
"""
    return (await sandbox.run_code(count)).text


PIPE = """
import os
if not os.path.exists("out/pipe"):
    os.mkfifo("out/pipe")
"""


@pytest.mark.attack("a Wasm skill waits without end", "SkillLimit")
async def test_a_pipe_in_the_folder_holds_a_call_up_to_the_deadline_alone(planted, call):
    (await planted.run_code(PIPE)).raise_for_error()
    said = await call(reader("pipe"), READER, "opened", folders=OUT_FOLDER, seconds=1)
    assert refusal(said) == ("SkillLimit", "Deadline")


@pytest.mark.control("a Wasm skill waits without end")
async def test_control_a_pipe_that_has_a_writer_is_opened_at_once(planted, call):
    (await planted.run_code(PIPE + "both = os.open('out/pipe', os.O_RDWR)")).raise_for_error()
    assert await call(reader("pipe"), READER, "opened", folders=OUT_FOLDER) == 0
    (await planted.run_code("os.close(both)")).raise_for_error()


@pytest.mark.control("a Wasm skill loops without end")
async def test_control_without_our_deadline_the_cell_ends_at_its_own(planted):
    path = await installed(planted, LOOPS["in the function"], manifest(NUMBER, seconds=600))
    run = f"import wasm_skill; wasm_skill.load({path!r}).call('f')"
    assert (await planted.run_code(run, timeout=3)).outcome is Outcome.TIMEOUT
    assert await left(planted) == "0"


TURNS = module(
    number(
        "(loop $on (br_if $on (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 100000))))"
        "(local.get $n)",
        names="(local $n i32)",
    )
)


@pytest.mark.attack("a Wasm skill uses more fuel than its manifest says", "SkillLimit")
async def test_fuel_ends_a_loop(call):
    assert refusal(await call(TURNS, NUMBER, "f", fuel=10_000)) == ("SkillLimit", "Fuel")


@pytest.mark.control("a Wasm skill uses more fuel than its manifest says")
async def test_control_with_enough_fuel_the_loop_comes_to_its_end(call):
    assert await call(TURNS, NUMBER, "f", fuel=10_000_000) == 100_000


PAGES = 1 << 16
GROWS = module(
    number(
        "(loop $on (br_if $on (i32.ge_s (memory.grow (i32.const 16)) (i32.const 0)))) (memory.size)",
    )
)
MEMORIES = {
    "grows": (GROWS, 16),
    "begins with much": (module(number("(memory.size)"), pages=65_536), "Module"),
    "begins with a little too much": (module(number("(memory.size)"), pages=17), "Module"),
}


@pytest.mark.parametrize(("code", "meets"), MEMORIES.values(), ids=MEMORIES)
@pytest.mark.attack("a Wasm skill takes more memory than its manifest says", "memory.grow fails, or SkillRefused")
async def test_memory_has_a_limit(call, code, meets):
    said = await call(code, NUMBER, "f", memory_mb=1)
    if meets == "Module":
        assert refusal(said) == ("SkillRefused", "Module")
    else:
        assert said <= meets


@pytest.mark.control("a Wasm skill takes more memory than its manifest says")
async def test_control_memory_grows_to_what_the_manifest_says(call):
    assert 16 < await call(GROWS, NUMBER, "f", memory_mb=8) <= 8 * 16


FILLS = module(
    number(
        f"""(loop $on (br_if $on (i32.ge_s (memory.grow (i32.const 256)) (i32.const 0))))
        (memory.fill (i32.const 0) (i32.const 1) (i32.mul (memory.size) (i32.const {PAGES})))
        (memory.size)"""
    )
)


@pytest.mark.attack(
    "a Wasm skill fills more memory than the sandbox has", "SkillLimit; the session goes on", control="in it"
)
async def test_the_memory_of_the_sandbox_holds_where_a_manifest_asks_for_more(starting):
    async with starting(limits={"memory_bytes": 384 << 20}) as made:
        sandbox = made.sandbox
        path = await installed(sandbox, FILLS, manifest(NUMBER, memory_mb=1024, seconds=60))
        (await sandbox.run_code("kept = 7")).raise_for_error()
        run = CALL.format(path=path, function="f", arguments="")
        execution = await sandbox.run_code(run, timeout=120)
        # The helper, or the whole cell, which is then as before.
        assert execution.outcome in {Outcome.OK, Outcome.MEMORY}, execution
        if execution.outcome is Outcome.OK:
            assert json.loads(eval(execution.text))["error"] == "SkillLimit"
        assert (await sandbox.run_code("kept")).text == "7"
        # A control: less than the sandbox has.
        small = await installed(sandbox, FILLS, manifest(NUMBER, memory_mb=64))
        assert await called(sandbox, small, "f") > 0


TABLES = {
    "begins with many": ("(table 100000000 funcref)" + number("(table.size)"), "Module"),
    "begins with too many": ("(table 100001 funcref)" + number("(table.size)"), "Module"),
    "ten tables": ("(table 1 funcref)" * 10 + number("(i32.const 1)"), "Module"),
    "grows": (
        "(table $t 1 funcref)" + number("(table.grow $t (ref.null func) (i32.const 1000000))"),
        -1,
    ),
}


@pytest.mark.parametrize(("text", "meets"), TABLES.values(), ids=TABLES)
@pytest.mark.attack("a Wasm skill has a huge table", "table.grow fails, or SkillRefused")
async def test_tables_have_a_limit(call, text, meets):
    said = await call(module(text), NUMBER, "f")
    assert (said if meets == -1 else refusal(said)) == (-1 if meets == -1 else ("SkillRefused", meets))


@pytest.mark.control("a Wasm skill has a huge table")
async def test_control_a_table_of_a_hundred_thousand_is_made(call):
    assert await call(module("(table 100000 funcref)" + number("(table.size)")), NUMBER, "f") == 100_000


def nested(depth):
    return module(
        f"""(func $down (param $n i32) (result i32)
          (if (result i32) (local.get $n)
            (then (i32.add (i32.const 1) (call $down (i32.sub (local.get $n) (i32.const 1)))))
            (else (i32.const 0))))
        {number(f"(call $down (i32.const {depth}))")}"""
    )


@pytest.mark.attack("a Wasm skill calls itself without end", "SkillLimit")
async def test_the_stack_has_a_limit(call):
    assert refusal(await call(nested(-1), NUMBER, "f")) == ("SkillLimit", "Stack")


@pytest.mark.control("a Wasm skill calls itself without end")
async def test_control_a_thousand_calls_are_nested(call):
    assert await call(nested(1000), NUMBER, "f") == 1000


def printing(kilobytes, stream=1):
    """Writes that many KiB, or without end: 0."""
    until_then = f"(i32.ne (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const {kilobytes}))"
    return module(
        number(
            f"""(memory.fill (i32.const {DATA}) (i32.const 120) (i32.const 1024))
            (i32.store (i32.const 0) (i32.const {DATA})) (i32.store (i32.const 4) (i32.const 1024))
            (loop $on
              (drop (call $fd_write (i32.const {stream}) (i32.const 0) (i32.const 1) (i32.const 8)))
              (br_if $on {until_then}))
            (local.get $n)""",
            names="(local $n i32)",
        ),
        uses=("fd_write",),
    )


RUN = "import wasm_skill; wasm_skill.load({path!r}).call('f')"


@pytest.mark.parametrize("stream", [1, 2], ids=["output", "errors"])
@pytest.mark.attack("a Wasm skill floods its output", "64 KiB arrive, and the rest is counted")
async def test_a_flood_of_output_is_cut_and_counted(planted, stream):
    path = await installed(planted, printing(10_000, stream), manifest(NUMBER, seconds=60))
    execution = await planted.run_code(RUN.format(path=path))
    assert execution.text == "10000", execution
    written = execution.logs.stdout if stream == 1 else execution.logs.stderr
    assert written.count("x") == 64 << 10
    assert f"{(10_000 - 64) << 10} bytes of the skill's output dropped" in execution.logs.stderr


@pytest.mark.parametrize("stream", [1, 2], ids=["output", "errors"])
@pytest.mark.attack("a Wasm skill floods its output without end", "SkillLimit")
async def test_an_endless_flood_ends_at_the_deadline(call, stream):
    assert refusal(await call(printing(0, stream), NUMBER, "f", seconds=0.5)) == ("SkillLimit", "Deadline")


@pytest.mark.control("a Wasm skill floods its output", "a Wasm skill floods its output without end")
async def test_control_less_output_arrives_whole(planted):
    path = await installed(planted, printing(63), manifest(NUMBER))
    execution = await planted.run_code(RUN.format(path=path))
    assert (execution.logs.stdout, execution.logs.stderr) == ("x" * (63 << 10), "")


# What is no skill

GOOD = module(number("(i32.const 7)"))
BROKEN = {
    "empty": b"",
    "text": b'(module (func (export "f") (result i32) (i32.const 7)))',
    "the beginning": GOOD[: len(GOOD) // 2],
    "the magic alone": GOOD[:8],
    "another version": GOOD[:4] + b"\x02\0\0\0" + GOOD[8:],
    "a component": b"\0asm\x0d\0\x01\0",
    "a program of Linux": b"\x7fELF" + bytes(100),
    "nonsense": GOOD[:8] + bytes(range(256)) * 8,
    "a section that is too long": GOOD[:8] + b"\x01\xff\xff\xff\xff\x0f",
    "a million functions": GOOD[:8] + b"\x01\x04\x01\x60\0\0" + b"\x03\xc4\x84\x3d\xc0\x84\x3d" + bytes(1_000_000),
    "compiled by wasmtime": wasmtime.Module(wasmtime.Engine(), GOOD).serialize(),
    "3 MiB": GOOD + b"\0" * (3 << 20),
}


@pytest.mark.parametrize("code", BROKEN.values(), ids=BROKEN)
@pytest.mark.attack("a Wasm skill is no module", "SkillRefused")
async def test_what_is_no_module_is_refused(call, code):
    said = await call(bytes(code), NUMBER, "f")
    assert said["error"] == "SkillRefused"
    assert said["reason"] in {"Module", "TooLarge", "Export"}


@pytest.mark.control("a Wasm skill is no module")
async def test_control_the_whole_module_runs(call):
    assert await call(GOOD, NUMBER, "f") == 7


PROPOSALS = {
    "memory of 64 bits": "(memory i64 1)",
    "shared memory": "(memory 1 2 shared)",
    "two memories": "(memory 1)",
    "garbage collection": "(type (struct (field i32)))",
    "exceptions": "(tag)",
}


@pytest.mark.parametrize("text", PROPOSALS.values(), ids=PROPOSALS)
@pytest.mark.attack("a Wasm skill uses a proposal for WebAssembly that is switched off", "SkillRefused")
async def test_proposals_are_refused(call, text):
    memory = "" if text.startswith("(memory i64") or "shared" in text else "(memory 1)"
    code = bytes(wasmtime.wat2wasm(f"(module {memory} {text} {number('(i32.const 7)')})"))
    assert refusal(await call(code, NUMBER, "f")) == ("SkillRefused", "Module")


@pytest.mark.control("a Wasm skill uses a proposal for WebAssembly that is switched off")
async def test_control_wasmtime_alone_takes_two_memories():
    code = bytes(wasmtime.wat2wasm(f"(module (memory 1) (memory 1) {number('(i32.const 7)')})"))
    assert alone(code, "f", lambda wasi: wasi) == 7


def expensive(loops, variables):
    """Little code, and much to think about for a compiler: many variables that change in nested loops."""
    sets = "".join(f"(local.set {n} (i32.add (local.get {n}) (local.get {n + 1})))" for n in range(1, variables))
    body = "(loop (br_if 0 (local.get 0))" * loops + sets + ")" * loops
    named = f"(func (param i32) (local {'i32 ' * variables}) {body})"
    return bytes(wasmtime.wat2wasm(f"(module {named} {number('(i32.const 7)')})"))


@pytest.mark.attack("a Wasm skill is expensive to compile", "the cell ends at its deadline, and the variables stay")
async def test_a_module_that_is_expensive_to_compile_ends_at_the_deadline_of_the_cell(planted):
    path = await installed(planted, expensive(1000, 4000), manifest(NUMBER))
    (await planted.run_code("kept = 7")).raise_for_error()
    assert (await planted.run_code(RUN.format(path=path), timeout=3)).outcome is Outcome.TIMEOUT
    assert (await planted.run_code("kept")).text == "7"
    assert await left(planted) == "0"


@pytest.mark.control("a Wasm skill is expensive to compile")
async def test_control_with_fewer_loops_and_variables_it_is_compiled(call):
    assert await call(expensive(10, 40), NUMBER, "f") == 7


EXPORTS = {
    "no function": module('(global (export "f") i32 (i32.const 7))'),
    "another type": module('(func (export "f") (param funcref) (result i32) (i32.const 7))'),
    "more parameters": module('(func (export "f") (param i32) (result i32) (i32.const 7))'),
    "a type of which wasmtime's interface to C dies": module(
        '(func (export "f") (result v128) (v128.const i64x2 1 2))'
    ),
    "no such name": module(number("(i32.const 7)", name="g")),
}


@pytest.mark.parametrize("code", EXPORTS.values(), ids=EXPORTS)
@pytest.mark.attack("a Wasm skill's manifest is not that of its module", "SkillRefused")
async def test_a_function_of_another_type_is_refused(call, code):
    said = await call(code, NUMBER, "f")
    assert refusal(said) == ("SkillRefused", "Module" if "exit code -6" in said["message"] else "Export")


@pytest.mark.control("a Wasm skill's manifest is not that of its module")
async def test_control_a_function_of_the_right_type_is_called(call):
    takes = [{"name": "f", "parameters": ["n"], "numbers": True}]
    assert await call(EXPORTS["more parameters"], takes, "f", {"n": 1}) == 7


# Memory of the host

POINTERS = {
    "writes from beyond the end": "(call $write (i32.const 0) (i32.const -1))",
    "writes from a negative address": "(call $write (i32.const -8) (i32.const 4))",
    "writes over the end": "(call $write (i32.const 262140) (i32.const 8))",
    "reads to beyond the end": "(call $read (i32.const 262143))",
    "reads to a negative address": "(call $read (i32.const -1))",
    "names a tool beyond the end": (
        "(drop (call $call_tool (i32.const -1) (i32.const 9) (i32.const 0) (i32.const 0)))"
    ),
    "names arguments beyond the end": (
        "(drop (call $call_tool (i32.const 0) (i32.const 0) (i32.const 262144) (i32.const 1)))"
    ),
    "fills beyond the end": "(drop (call $random_get (i32.const 262144) (i32.const 1)))",
    "fills all and more": "(drop (call $random_get (i32.const 0) (i32.const -1)))",
}


def pointing(body):
    return module(f'(func (export "f") (result i32) {body} (i32.const 0))', uses=("random_get",))


@pytest.mark.parametrize("body", POINTERS.values(), ids=POINTERS)
@pytest.mark.attack("a Wasm skill names memory that is not its own", "SkillFailed")
async def test_addresses_outside_the_memory_are_refused(call, body):
    assert refusal(await call(pointing(body), VALUE, "f")) == ("SkillFailed", "Address")


@pytest.mark.attack("a Wasm skill has no memory and names some", "SkillFailed", control="in it")
async def test_a_module_without_a_memory_is_given_nothing(call):
    text = '(module (import "sandfleet" "read" (func $read (param i32))) {} (func (export "f") (result i32) (call $read (i32.const 0)) (i32.const 0)))'
    without, with_one = (bytes(wasmtime.wat2wasm(text.format(one))) for one in ("", '(memory (export "memory") 1)'))
    assert refusal(await call(without, VALUE, "f")) == ("SkillFailed", "Address")
    assert await call(with_one, VALUE, "f") is None


@pytest.mark.control("a Wasm skill names memory that is not its own")
async def test_control_the_last_byte_is_read_and_written(call):
    last = "(i32.store8 (i32.const 262143) (i32.const 55)) (call $write (i32.const 262143) (i32.const 1))"
    assert await call(pointing(last), VALUE, "f") == 7
    last = "(drop (call $random_get (i32.const 262143) (i32.const 1)))"
    assert await call(pointing(last), VALUE, "f") is None


RESULTS = {
    "no JSON": ("{{{", "BadResult"),
    "nothing": ("", "BadResult"),
    "a number of a thousand thousand digits": ("9" * 5000, "BadResult"),
}


@pytest.mark.parametrize(("text", "reason"), RESULTS.values(), ids=RESULTS)
@pytest.mark.attack("a Wasm skill gives a result that is none", "SkillFailed")
async def test_a_result_that_is_no_json_is_a_failure(call, text, reason):
    code = module(
        f'(func (export "f") (result i32) (call $write (i32.const {DATA}) (i32.const {len(text)})) (i32.const 0))',
        data={DATA: text},
    )
    assert refusal(await call(code, VALUE, "f")) == ("SkillFailed", reason)


@pytest.mark.parametrize("depth", [100_000, 1 << 20])
@pytest.mark.attack("a Wasm skill gives a result that is nested deeply", "SkillFailed")
async def test_a_deep_result_is_a_failure(call, depth):
    assert refusal(await call(filled("[", depth), VALUE, "f")) == ("SkillFailed", "BadResult")


def filled(letter, count):
    """Gives a text that is one letter many times."""
    return module(
        f"""(func (export "f") (result i32)
          (memory.fill (i32.const 0) (i32.const {ord(letter)}) (i32.const {count}))
          (call $write (i32.const 0) (i32.const {count})) (i32.const 0))""",
        pages=300,
    )


@pytest.mark.attack("a Wasm skill gives a huge result", "SkillLimit")
async def test_a_huge_result_is_refused(call):
    assert refusal(await call(filled("9", (16 << 20) + 1), VALUE, "f")) == ("SkillLimit", "Output")


@pytest.mark.control(
    "a Wasm skill gives a huge result",
    "a Wasm skill gives a result that is none",
    "a Wasm skill gives a result that is nested deeply",
)
async def test_control_a_large_result_arrives(planted, call):
    path = await installed(planted, filled(" ", 16 << 20), manifest(VALUE))
    assert refusal(await called(planted, path, "f")) == ("SkillFailed", "BadResult")
    assert await call(filled("9", 4000), VALUE, "f") == int("9" * 4000)


@pytest.mark.attack("a Wasm skill ends the process that runs it", "SkillFailed; the next call works", control="in it")
async def test_a_module_that_exits_is_a_failure_and_the_next_call_works(planted):
    code = bytes(
        wasmtime.wat2wasm(
            """(module (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
              (memory (export "memory") 1) (func (export "f") (param i32) (result i32)
              (if (local.get 0) (then (call $exit (local.get 0)))) (i32.const 5)))"""
        )
    )
    path = await installed(planted, code, manifest([{"name": "f", "parameters": ["code"], "numbers": True}]))
    assert refusal(await called(planted, path, "f", {"code": 3})) == ("SkillFailed", "Exit")
    assert await called(planted, path, "f", {"code": 0}) == 5


async def test_helpers_end_with_the_context_that_has_started_them(planted):
    context = await planted.create_context(f"c-{secrets.token_hex(4)}")
    path = await installed(planted, LOOPS["in the function"], manifest(NUMBER, seconds=600))
    run = f"import wasm_skill; wasm_skill.load({path!r}).call('f')"
    running = asyncio.ensure_future(planted.run_code(run, context=context))
    await until(lambda: working(planted))
    await planted.delete_context(context)
    assert (await running).outcome is not Outcome.OK
    await until(lambda: none_working(planted))


async def working(sandbox):
    return await left(sandbox) == "1"


async def none_working(sandbox):
    return await left(sandbox) == "0"
