"""Completion and inspection: from what a context has, without changing it or holding it up."""

import asyncio

import pytest
from contract.executor.harness import until
from sandfleet.errors import InvalidArgument, LimitReached, NotFoundError, PreconditionFailed, SandboxError

pytestmark = pytest.mark.asyncio(loop_scope="session")

HAS = """
import os, json
table = {"alpha": 1, "beta": 2}
class Own:
    '''What it is.'''
    def method(self, first, second=2): return first
own = Own()
"""
# Completing on it takes for ever, and changes what a fork of the context has.
SLOW = """
looked = 0
class Slow:
    def __dir__(self):
        global looked
        looked += 1
        import signal, time
        signal.setitimer(signal.ITIMER_REAL, 0)
        while True: time.sleep(1)
slow = Slow()
"""


@pytest.mark.parametrize(
    ("code", "cursor", "matches", "span"),
    [
        ("own.me", None, {".method"}, (3, 6)),
        ("os.path.joi", None, {".join"}, (7, 11)),
        ("table['al", None, {"alpha"}, (7, 9)),
        ("é = 1; own.me + 1", 13, {".method"}, (10, 13)),
        ("%tim", None, {"%time", "%%time", "%timeit", "%%timeit"}, (0, 4)),
        ("import jso", None, {"json"}, (7, 10)),
        ("nothing.at_all", None, set(), None),
    ],
)
async def test_code_is_completed_from_what_the_context_has(sandbox, code, cursor, matches, span):
    await sandbox.run_code(HAS)
    found = await sandbox.complete(code, cursor)
    assert matches <= set(found.matches)
    assert span in (None, (found.cursor_start, found.cursor_end))
    assert bool(found.matches) == bool(matches)


async def test_an_object_is_described_with_its_source_where_that_is_asked_for(sandbox):
    await sandbox.run_code(HAS)
    found = await sandbox.inspect("own.method(1)", 6)
    assert found
    assert "Signature: own.method(first, second=2)" in found.text
    assert "What it is." in (await sandbox.inspect("own")).text
    assert "return first" not in found.text
    assert "return first" in (await sandbox.inspect("own.method", detail_level=1)).text
    nothing = await sandbox.inspect("nothing_of_this_name")
    assert (bool(nothing), nothing.text) == (False, "")


async def test_a_context_that_has_not_begun_can_be_asked(fresh):
    assert ".upper" in (await fresh.sandbox.complete("'text'.up")).matches


async def test_each_context_has_its_own(sandbox, context):
    await sandbox.run_code("only_here = 1", context=context)
    assert (await sandbox.complete("only_he", context=context)).matches == ("only_here",)
    assert (await sandbox.complete("only_he")).matches == ()
    with pytest.raises(NotFoundError):
        await sandbox.complete("x", context="no-such-context")


@pytest.mark.smoke
async def test_a_context_completes_and_describes_by_its_handle(sandbox):
    made = await sandbox.create_context("asked")
    await sandbox.run_code("only_here = 1", context=made)
    assert (await made.complete("only_he")).matches == ("only_here",)
    assert "int" in (await made.inspect("only_here")).text
    await sandbox.delete_context(made)


async def test_looking_changes_nothing_and_ends_in_time(sandbox, context):
    await sandbox.run_code(SLOW, context=context)
    before = (await sandbox.usage()).processes
    with pytest.raises(SandboxError, match="no answer within 1 s") as raised:
        await sandbox.complete("slow.", context=context, timeout=1)
    assert (raised.value.reason, raised.value.retryable) == ("NoAnswer", True)
    # A cell need not wait for what still runs, and the next look ends it.
    assert (await sandbox.run_code("looked", context=context)).text == "0"

    async def is_over():
        assert (await sandbox.complete("looke", context=context, timeout=10)).matches == ("looked",)
        return (await sandbox.usage()).processes <= before

    await until(is_over)


async def test_code_that_looking_runs_prints_nothing_and_may_crash(sandbox, context):
    code = "class Bad:\n    def __dir__(self):\n        print('seen'); import os; os.abort()\nbad = Bad()"
    await sandbox.run_code(code, context=context)
    with pytest.raises(SandboxError, match="no answer"):
        await sandbox.complete("bad.", context=context)
    execution = await sandbox.run_code("type(bad).__name__", context=context)
    assert (execution.text, execution.logs.stdout, execution.lost) == ("'Bad'", "", ())


async def test_a_context_whose_cell_runs_is_busy(sandbox, context):
    running = asyncio.create_task(sandbox.run_code("open('begun', 'w')\nwhile True: pass", context=context))
    await until(lambda: sandbox.files.exists("begun"))
    with pytest.raises(PreconditionFailed, match="is busy") as raised:
        await sandbox.complete("x", context=context)
    assert (raised.value.reason, raised.value.retryable) == ("ContextBusy", True)
    # Another context is not.
    assert await sandbox.inspect("print")
    await sandbox.interrupt(context)
    await running
    assert await sandbox.inspect("print", context=context)


# By language: a cell, what is begun, a match, what it replaces, a name, and what is said of it.
SAID = {
    "python": ("def own_name(x): return x", "'é'; own_n", "own_name", (5, 10), "own_name", "own_name(x)"),
    "typescript": (
        "let own: {method(x: number): number} = {method(x) { return x }}",
        "'é'; own.me",
        "method",
        (9, 11),
        "own.method",
        "own.method(x)",
    ),
    "jupyter-python3": ("def own_name(x): return x", "'é'; own_n", "own_name", (5, 10), "own_name", "own_name(x)"),
    "jupyter-ir": ("own_name <- function(x) x", "'é'; own_n", "own_name", (5, 10), "lm", "Fitting Linear Models"),
    "bash": (
        "set -e; own_name() { :; }; own_f() { echo in; }",
        "echo é; own_n",
        "own_name",
        (8, 13),
        "own_f",
        "own_f is a function",
    ),
    "javascript": (
        "let own = {method(x) { return x }}",
        "'é'; own.me",
        "method",
        (9, 11),
        "own.method",
        "own.method(x)",
    ),
    "sql": ("CREATE TABLE own (amount INT)", "FROM own SELECT 'é', amo", "amount", (21, 24), "own", "amount INTEGER"),
}


@pytest.mark.parametrize("language", SAID)
async def test_contexts_of_each_language_complete_and_describe(sandbox, language):
    if language not in (await sandbox.environment()).languages:
        pytest.skip(f"the sandbox has no {language}")
    cell, begun, match, span, name, said = SAID[language]
    made = await sandbox.create_context(language=language)
    assert (await sandbox.run_code(cell, context=made)).ok
    found = await sandbox.complete(begun, context=made, timeout=10)
    assert match in found.matches
    assert (found.cursor_start, found.cursor_end) == span
    assert said in (await sandbox.inspect(name, context=made, timeout=10)).text
    # The handle asks its own context.
    assert await made.complete(begun, timeout=10) == found
    there = await made.complete(f"{begun} + 1", len(begun), timeout=10)
    assert (match in there.matches, there.cursor_start, there.cursor_end) == (True, *span)
    assert said in (await made.inspect(name, len(name), timeout=10)).text
    for found in (
        await made.inspect("no_such_name", timeout=10),
        await sandbox.inspect("no_such_name", context=made, timeout=10),
    ):
        # IRkernel has an answer for every name.
        assert not found or "No documentation" in found.text
    after = await sandbox.run_code({"sql": "SELECT 1", "bash": "echo 1"}.get(language, "1"), context=made)
    assert (after.ok, after.lost) == (True, ())
    await sandbox.delete_context(made)


async def test_a_handle_asks_for_the_source_and_is_refused_as_the_sandbox_is(sandbox):
    made = await sandbox.create_context()
    await sandbox.run_code(HAS, context=made)
    assert "return first" not in (await made.inspect("own.method(1)", 6)).text
    assert "return first" in (await made.inspect("own.method", detail_level=1)).text
    with pytest.raises(InvalidArgument):
        await made.complete("x", 2)
    await sandbox.delete_context(made)
    with pytest.raises(NotFoundError):
        await made.complete("x")


async def test_completing_in_javascript_runs_nothing_that_changes_something(sandbox):
    made = await sandbox.create_context(language="javascript")
    await sandbox.run_code(
        "var hits = 0, evil = {get x() { hits++; return {deep: 1} }}, slow = {get x() { while (true); }}", context=made
    )
    for code in ("evil.x.de", "slow.x.de"):
        assert (await sandbox.complete(code, context=made, timeout=10)).matches == ()
    assert (await sandbox.run_code("hits", context=made)).text == "0"
    await sandbox.delete_context(made)


@pytest.mark.parametrize(
    "options",
    [{"cursor_pos": 2}, {"cursor_pos": -1}, {"timeout": 11.0}, {"timeout": 0.0}],
    ids=["behind the code", "before it", "too long", "no time"],
)
async def test_what_cannot_be_is_refused(sandbox, options):
    with pytest.raises(InvalidArgument):
        await sandbox.complete("x", **options)


async def test_too_many_at_once_are_refused(sandbox, context):
    await sandbox.run_code(SLOW, context=context)
    asked = [asyncio.create_task(sandbox.complete("slow.", context=context, timeout=2)) for _ in range(20)]
    ended = await asyncio.gather(*asked, return_exceptions=True)
    refused = [each for each in ended if isinstance(each, LimitReached)]
    assert len(refused) == 12
    assert {each.reason for each in refused} == {"TooMany"}
    assert {each.reason for each in ended} == {"TooMany", "NoAnswer"}
