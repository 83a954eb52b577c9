"""What contexts of JavaScript and TypeScript alone have: modules, rich results, places of errors, interrupts."""

import asyncio
import json

import pytest
import pytest_asyncio

pytestmark = pytest.mark.asyncio(loop_scope="session")

# The cell is awaited for ever; what is said of it comes from elsewhere.
FOREVER = "await new Promise(() => 0)"
TERMINATES_ITSELF = """
var own = new (require('inspector').Session)();
own.connect();
own.post('Runtime.terminateExecution');
while (true);
"""
COLLECT = """
require('v8').setFlagsFromString('--expose-gc');
var gc = require('vm').runInNewContext('gc'), collect = () => { for (let i = 0; i < 10; i++) gc() };
"""
SHOWN = """
display({ a: 1 });
({ [Symbol.for('Jupyter.display')]: () => ({ 'text/plain': 'p', 'text/html': '<b>', 'image/png': new Uint8Array([137]) }) })
"""
MODULE = "export const own = (n) => n + 1; export default 'whole'"


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=["javascript", "typescript"])
async def language(sandbox, request):
    if request.param not in (await sandbox.environment()).languages:
        pytest.skip(f"the sandbox has no program for {request.param}")
    return request.param


@pytest_asyncio.fixture(loop_scope="session")
async def run(sandbox, language):
    context = await sandbox.create_context(language=language)

    async def run(code, **options):
        return await sandbox.run_code(code, context=context, **{"timeout": 60, **options})

    yield run
    await sandbox.delete_context(context)


async def test_await_import_and_names_declared_again_stand_at_the_top(run):
    assert (await run("import { join } from 'path'; let n = await Promise.resolve(1); const k = 2; class C {}")).ok
    execution = await run(
        "import * as path from 'node:path'; let n = 5; const k = 6; class C {}; join('a', 'b') + n + k"
    )
    assert execution.text == "'a/b56'"
    assert (await run("_ + (await import('node:path')).sep")).text == "'a/b56/'"


async def test_modules_of_the_workspace_are_found(sandbox, run):
    await sandbox.files.write("node_modules/ours/package.json", '{"main": "index.mjs", "type": "module"}')
    await sandbox.files.write("node_modules/ours/index.mjs", MODULE)
    await sandbox.files.write("node_modules/old/index.js", "module.exports = { old: 7 }")
    await sandbox.files.write("beside.mjs", MODULE)
    assert (await run("import whole, { own } from 'ours'; [whole, own(1)]")).text == "[ 'whole', 2 ]"
    assert (await run("require('old').old + (await import('./beside.mjs')).own(1)")).text == "9"
    missing = await run("import 'nothing-of-this-name'")
    assert missing.error.name == "Error"
    assert "nothing-of-this-name" in missing.error.value


async def test_values_are_text_html_and_json(run):
    execution = await run("[{ a: 1, b: '<' }, { a: 2 }]")
    result = execution.results[0]
    assert json.loads(result.json) == [{"a": 1, "b": "<"}, {"a": 2}]
    assert "<td>&#60;</td>" in result.html
    assert execution.text == "[ { a: 1, b: '<' }, { a: 2 } ]"
    shown, own = (await run(SHOWN)).results
    assert (shown.text, shown.is_main_result) == ("{ a: 1 }", False)
    assert (own.text, own.html, own.png) == ("p", "<b>", b"\x89")
    assert (await run("undefined")).results == ()


async def test_an_error_names_cell_line_and_function(run):
    await run("function inner() {\n  return null.x;\n}")
    execution = await run("\nlet before = 1;\ninner();")
    frames = [(frame.file, frame.line, frame.function) for frame in execution.error.frames]
    assert frames == [("cell-2.js", 3, "<cell>"), ("cell-1.js", 2, "inner")]
    assert execution.error.name == "TypeError"
    assert execution.error.frames[0].source == "inner();"
    assert (await run("throw 5")).error.value == "5"


async def test_what_is_raised_after_the_cell_is_printed_and_the_context_lives(run):
    await run("var kept = 1; setTimeout(() => { throw new Error('late') }, 1); Promise.reject(new Error('left')); 0")
    execution = await run("await new Promise((over) => setTimeout(over, 50)); kept")
    assert (execution.text, execution.lost) == ("1", ())


async def test_an_exit_has_its_code_also_while_a_cell_waits(run):
    for code, status in [
        (f"setTimeout(() => process.exit(9), 50); {FOREVER}", 9),
        ("process.exitCode = 5; process.exit()", 5),
    ]:
        execution = await run(code)
        assert (execution.outcome, execution.exit_code) == ("killed", status)
    # What is no code ends nothing.
    await run("var kept = 1")
    assert (await run("process.exit('never')")).error
    assert (await run("kept")).text == "1"


@pytest_asyncio.fixture(loop_scope="session")
async def interrupted(sandbox, language):
    """Runs a cell that says `begun`, and interrupts it."""
    context = await sandbox.create_context(language=language)

    async def interrupt(code):
        seen = asyncio.Event()
        cell = sandbox.run_code(code, context=context, on_stdout=lambda text: "begun" in text and seen.set())
        running = asyncio.create_task(cell)
        await asyncio.wait_for(seen.wait(), 60)
        assert await sandbox.interrupt(context, grace=60)
        return await running

    interrupt.context = context
    yield interrupt
    await sandbox.delete_context(context)


async def test_interrupts_one_after_the_other_keep_the_variables(sandbox, interrupted):
    await sandbox.run_code(f"var kept = 0; {COLLECT}", context=interrupted.context)
    for spin in ["while (true);", FOREVER, "while (true) await 0", "for (;;) JSON.stringify([kept])"] * 2:
        execution = await interrupted(f"kept++; console.log('begun'); {spin}")
        assert (execution.outcome, execution.lost) == ("interrupted", ()), spin
        # What the cell has left is collected.
        await sandbox.run_code("collect()", context=interrupted.context)
    assert (await sandbox.run_code("kept", context=interrupted.context)).text == "8"


async def test_a_cell_that_nothing_can_wake_waits_for_its_interrupt(sandbox, interrupted):
    await sandbox.run_code(f"var kept = 1; {COLLECT}", context=interrupted.context)
    execution = await interrupted(f"setTimeout(() => {{ collect(); console.log('begun') }}, 1); {FOREVER}")
    assert (execution.outcome, execution.lost) == ("interrupted", ())
    assert (await sandbox.run_code("kept", context=interrupted.context)).text == "1"


async def test_code_that_terminates_itself_ends_its_cell_alone(run):
    await run("var kept = 1")
    execution = await run(TERMINATES_ITSELF)
    assert (execution.outcome, execution.lost) == ("interrupted", ())
    assert (await run("kept")).text == "1"


async def test_types_are_taken_out_and_lines_stay(sandbox, language):
    typed = (
        "interface Row {\n  a: number\n}\nconst rows: Row[] = [{ a: 1 } as Row];\nrows.map((row: Row): number => row.a)"
    )
    execution = await sandbox.run_code(typed, language=language, timeout=60)
    if language == "javascript":
        # The control.
        assert execution.error.name == "SyntaxError"
        return
    assert execution.text == "[ 1 ]"
    execution = await sandbox.run_code("type T = string;\n\n(null as any).x", language=language)
    assert [(frame.file[:5], frame.line) for frame in execution.error.frames] == [("cell-", 3)]
    # It is no part of JavaScript: it would have to be made into code.
    assert (await sandbox.run_code("enum Colour { Red }", language=language)).error.name == "SyntaxError"
