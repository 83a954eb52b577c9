"""Attacks by a skill that is WebAssembly, on time, memory and the process that runs it."""

import asyncio
import json
import secrets

import pytest
import pytest_asyncio
import wasmtime
from contract.executor import wasm_calls
from contract.executor.harness import until
from contract.executor.wasm_calls import CALL, alone, called, installed, refusal
from contract.executor.wasm_modules import DATA, NUMBER, OUT_FOLDER, READER, VALUE, manifest, module, number, reader
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
