"""Attacks by a skill that is WebAssembly, on the authority of the session that calls it.

The session may do all that the module tries: each control is the same module where the manifest grants it, or what a
module meets in wasmtime without our rules.
"""

import pytest
import pytest_asyncio
import wasmtime
from contract.executor import wasm_calls
from contract.executor.wasm_calls import alone, installed, refusal
from contract.executor.wasm_modules import (
    DATA,
    GIVEN,
    NUMBER,
    OTHER,
    OUT_FOLDER,
    PATH,
    READ,
    VALUE,
    WRITE,
    manifest,
    module,
    number,
    opening,
    sweep,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def planted(sandbox):
    """The file's sandbox with folders, a secret, and links to it."""
    return await wasm_calls.planted(sandbox)


@pytest.fixture
def call(planted):
    """`await call(module, functions, "f", folders=…)`: what a new skill's function gives."""
    return wasm_calls.caller(planted)


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
