"""What lasts from one cell to the next, and what a context is."""

import asyncio

import pytest
import pytest_asyncio
from contract.executor.harness import until
from sandfleet import Outcome
from sandfleet.errors import AlreadyExistsError, InvalidArgument, NotFoundError

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def executor(starting):
    """Without copies of contexts: what a killed cell loses then is the subject here."""
    async with starting(rollback={"enabled": False}) as made:
        yield made


EVERYTHING_OF_A_CONTEXT = ("variables", "processes")


@pytest.mark.smoke
async def test_variables_imports_and_the_working_directory_last(sandbox, context):
    await sandbox.run_code(
        "import os, json\nx = 41\nos.makedirs('sub', exist_ok=True)\nos.chdir('sub')", context=context
    )
    execution = await sandbox.run_code("json.dumps([x + 1, os.getcwd()])", context=context)
    assert execution.text == """'[42, "/workspace/sub"]'"""


async def test_functions_and_classes_defined_in_one_cell_are_used_in_the_next(sandbox, context):
    await sandbox.run_code(
        "class A:\n    def f(self): return [g(n) for n in range(3)]\ndef g(n): return n * n", context=context
    )
    assert (await sandbox.run_code("A().f()", context=context)).text == "[0, 1, 4]"


@pytest.mark.smoke
async def test_contexts_do_not_see_each_other_s_variables(sandbox, context):
    await sandbox.run_code("mine = 1", context=context)
    execution = await sandbox.run_code("mine")
    assert (execution.outcome, execution.error.name) == (Outcome.ERROR, "NameError")


async def test_contexts_run_at_the_same_time(sandbox, context):
    # Each waits for a file that the other one makes: one after the other they would never end.
    code = "import os, time\nopen({0!r}, 'w').close()\nwhile not os.path.exists({1!r}): time.sleep(0.01)"
    both = await asyncio.gather(
        sandbox.run_code(code.format("/tmp/a", "/tmp/b"), context=context, timeout=60),
        sandbox.run_code(code.format("/tmp/b", "/tmp/a"), timeout=60),
    )
    assert [execution.outcome for execution in both] == [Outcome.OK, Outcome.OK]


async def test_cells_of_one_context_run_in_the_order_in_which_they_came(sandbox, context):
    await sandbox.run_code("seen = []", context=context)
    cells = [sandbox.run_code(f"import time; time.sleep(0.02); seen.append({n})", context=context) for n in range(8)]
    executions = await asyncio.gather(*cells)
    assert (await sandbox.run_code("seen", context=context)).text == str(list(range(8)))
    assert [execution.cell_number for execution in executions] == list(range(2, 10))


async def test_waiting_for_an_earlier_cell_does_not_count_against_the_deadline(sandbox, context):
    first = asyncio.create_task(sandbox.run_code("import time; time.sleep(4)", context=context))
    await until(lambda: _is_busy(sandbox, context))
    second = await sandbox.run_code("1", context=context, timeout=3)
    assert (second.outcome, (await first).outcome) == (Outcome.OK, Outcome.OK)


@pytest.mark.smoke
async def test_a_context_has_its_own_directory_and_environment(sandbox):
    await sandbox.files.make_dir("project")
    made = await sandbox.create_context("own", cwd="project", envs={"COLOUR": "blue"})
    execution = await sandbox.run_code("import os; print(os.getcwd(), os.environ['COLOUR'])", context=made)
    assert execution.logs.stdout == "/workspace/project blue\n"
    await sandbox.delete_context(made)


@pytest.mark.smoke
async def test_an_environment_variable_of_one_execution_is_gone_in_the_next(sandbox, context):
    code = "import os; os.environ.get('ONCE')"
    assert (await sandbox.run_code(code, context=context, envs={"ONCE": "yes"})).text == "'yes'"
    assert (await sandbox.run_code(f"{code} is None", context=context)).text == "True"


async def test_contexts_are_listed_with_their_state_generation_and_count_of_cells(sandbox):
    await sandbox.create_context("listed")
    await sandbox.run_code("1", context="listed")
    listed = {each.context_id: each for each in await sandbox.list_contexts()}["listed"]
    assert (listed.language, listed.state, listed.generation, listed.executions) == ("python", "idle", 1, 1)
    await sandbox.run_code("import os; os._exit(0)", context="listed")
    listed = {each.context_id: each for each in await sandbox.list_contexts()}["listed"]
    assert (listed.state, listed.generation) == ("ended", 1)
    await sandbox.run_code("1", context="listed")
    listed = {each.context_id: each for each in await sandbox.list_contexts()}["listed"]
    assert (listed.state, listed.generation, listed.executions) == ("idle", 2, 3)
    await sandbox.delete_context("listed")
    assert "listed" not in {each.context_id for each in await sandbox.list_contexts()}


@pytest.mark.smoke
async def test_an_interpreter_that_ended_says_once_what_was_lost(sandbox, context):
    await sandbox.run_code("x = 1", context=context)
    ended = await sandbox.run_code("import os; os._exit(3)", context=context)
    assert ended.lost == EVERYTHING_OF_A_CONTEXT
    after = await sandbox.run_code("x", context=context)
    assert (after.error.name, after.lost) == ("NameError", EVERYTHING_OF_A_CONTEXT)
    assert (await sandbox.run_code("1", context=context)).lost == ()


@pytest.mark.smoke
async def test_an_interpreter_that_ends_between_two_cells_is_replaced_and_it_is_said(sandbox, context):
    code = "import os, threading\nthreading.Timer(0.1, os._exit, (0,)).start()"
    assert (await sandbox.run_code(code, context=context)).outcome is Outcome.OK
    await until(lambda: _has_state(sandbox, context, "ended"))
    assert (await sandbox.run_code("1", context=context)).lost == EVERYTHING_OF_A_CONTEXT


@pytest.mark.smoke
async def test_a_restarted_context_has_a_fresh_interpreter_and_reports_no_loss(sandbox, context):
    await sandbox.run_code("x = 1", context=context)
    assert (await sandbox.restart_context(context)).generation == 2
    execution = await sandbox.run_code("x", context=context)
    assert (execution.error.name, execution.lost) == ("NameError", ())


@pytest.mark.parametrize("end", ["restart_context", "delete_context"])
async def test_restarting_or_deleting_a_busy_context_ends_its_execution(sandbox, end):
    await sandbox.create_context("busy")
    running = asyncio.create_task(sandbox.run_code("while True: pass", context="busy"))
    await until(lambda: _is_busy(sandbox, "busy"))
    await getattr(sandbox, end)("busy")
    execution = await running
    assert (execution.outcome, execution.blame, execution.reason) == ("interrupted", "policy", "ContextRestarted")
    await sandbox.delete_context("busy")


async def test_a_cell_that_waits_while_its_context_restarts_runs_in_the_one_new_interpreter(sandbox, context):
    await sandbox.run_code("x = 1", context=context)
    before = await _processes(sandbox)
    for turn in range(2, 6):
        running = asyncio.create_task(sandbox.run_code("while True: pass", context=context))
        await until(lambda: _is_busy(sandbox, context))
        waiting = asyncio.create_task(sandbox.run_code("x", context=context))
        await until(lambda: _running(sandbox, 2))
        assert (await sandbox.restart_context(context)).generation == turn
        assert (await running).reason == "ContextRestarted"
        assert (await waiting).error.name == "NameError"
        found = {one.context_id: one.generation for one in await sandbox.list_contexts()}
        assert found[context] == turn
    await until(lambda: _has_processes(sandbox, before))


async def test_a_restart_while_a_cell_starts_its_interpreter_reports_no_loss(sandbox, context):
    for milliseconds in range(0, 40, 5):
        await sandbox.run_code("import os; os._exit(0)", context=context)
        starting = asyncio.create_task(sandbox.run_code("while True: pass", context=context))
        await asyncio.sleep(milliseconds / 1000)
        generation = (await sandbox.restart_context(context)).generation
        # The cell may come after the restart.
        asked = asyncio.create_task(_interrupts(sandbox, context, starting))
        await starting
        await asked
        after = await sandbox.run_code("1", context=context)
        found = {one.context_id: one.generation for one in await sandbox.list_contexts()}
        assert (after.lost, found[context]) == ((), generation)


async def test_a_context_that_is_deleted_while_it_starts_leaves_no_interpreter(sandbox):
    before = await _processes(sandbox)
    for milliseconds in range(0, 40, 5):
        starting = asyncio.create_task(sandbox.create_context("brief"))
        await asyncio.sleep(milliseconds / 1000)
        await sandbox.delete_context("brief")
        await asyncio.gather(starting, return_exceptions=True)
        # It may have come after the deletion.
        await sandbox.delete_context("brief")
    await until(lambda: _has_processes(sandbox, before))


async def test_cells_that_wait_in_a_deleted_context_never_run(sandbox):
    await sandbox.create_context("doomed")
    running = asyncio.create_task(sandbox.run_code("while True: pass", context="doomed"))
    await until(lambda: _is_busy(sandbox, "doomed"))
    waiting = asyncio.create_task(sandbox.run_code("open('/workspace/ran', 'w')", context="doomed"))
    await until(lambda: _running(sandbox, 2))
    await sandbox.delete_context("doomed")
    assert [(await each).outcome for each in (running, waiting)] == ["interrupted", "interrupted"]
    assert not await sandbox.files.exists("ran")


async def test_an_interrupt_raises_keyboardinterrupt_and_keeps_the_variables(sandbox, context):
    running = asyncio.create_task(sandbox.run_code("kept = 7\nwhile True: pass", context=context))
    await until(lambda: _is_busy(sandbox, context))
    assert await sandbox.interrupt(context, grace=60)
    execution = await running
    assert (execution.outcome, execution.blame, execution.reason) == ("interrupted", "policy", "Interrupted")
    assert (execution.error.name, execution.lost) == ("KeyboardInterrupt", ())
    assert (await sandbox.run_code("kept", context=context)).text == "7"


async def test_an_interrupt_that_is_swallowed_becomes_a_kill_after_its_grace(sandbox, context):
    code = "while True:\n    try:\n        open('/tmp/deaf', 'w')\n        while True: pass\n    except KeyboardInterrupt: pass"
    running = asyncio.create_task(sandbox.run_code(code, context=context))
    await until(lambda: sandbox.files.exists("/tmp/deaf"))
    await sandbox.interrupt(context, grace=0.2)
    execution = await running
    assert (execution.outcome, execution.lost) == ("interrupted", EVERYTHING_OF_A_CONTEXT)


@pytest.mark.smoke
async def test_a_call_that_is_cancelled_while_it_waits_for_its_turn_never_runs(sandbox, context):
    running = asyncio.create_task(sandbox.run_code("while True: pass", context=context))
    await until(lambda: _is_busy(sandbox, context))
    waiting = asyncio.create_task(sandbox.run_code("open('ran', 'w')", context=context, execution_id="waits"))
    await until(lambda: _has_begun(sandbox, "waits"))
    waiting.cancel()
    await asyncio.wait([waiting])
    ended = await sandbox.attach("waits")
    assert (ended.outcome, ended.blame, ended.reason, ended.lost) == ("interrupted", "policy", "Interrupted", ())
    assert not running.done()
    # The next in the line is not kept waiting for it.
    after = asyncio.create_task(sandbox.run_code("6 * 7", context=context))
    assert await sandbox.interrupt(context, grace=60)
    assert (await running).outcome == "interrupted"
    assert (await after).text == "42"
    assert not await sandbox.files.exists("ran")


@pytest.mark.smoke
async def test_interrupting_an_idle_context_says_that_nothing_ran(sandbox, context):
    await sandbox.run_code("x = 1", context=context)
    assert await sandbox.interrupt(context) is False
    assert (await sandbox.run_code("x", context=context)).text == "1"


async def test_an_unknown_context_is_not_found(sandbox):
    with pytest.raises(NotFoundError, match="nowhere"):
        await sandbox.run_code("1", context="nowhere")
    with pytest.raises(NotFoundError):
        await sandbox.restart_context("nowhere")
    with pytest.raises(NotFoundError):
        await sandbox.interrupt("nowhere")
    # Deleting what is not there is no error.
    await sandbox.delete_context("nowhere")


@pytest.mark.smoke
async def test_a_context_is_not_made_twice(sandbox, context):
    with pytest.raises(AlreadyExistsError, match=context):
        await sandbox.create_context(context)


@pytest.mark.parametrize(
    "options", [{"context_id": "a b"}, {"language": "cobol"}, {"envs": {"A=B": "x"}}, {"envs": {"A": "x\0y"}}]
)
async def test_a_context_that_cannot_be_is_refused(sandbox, options):
    with pytest.raises(InvalidArgument):
        await sandbox.create_context(**{"context_id": "refused", **options})


@pytest.mark.smoke
async def test_a_working_directory_that_is_not_there_is_refused_and_leaves_no_context(sandbox):
    with pytest.raises(InvalidArgument, match="is/not/there"):
        await sandbox.create_context("homeless", cwd="is/not/there")
    assert "homeless" not in {each.context_id for each in await sandbox.list_contexts()}


@pytest.mark.smoke
async def test_an_execution_id_runs_once(sandbox, context):
    await sandbox.run_code("n = 1", context=context, execution_id="only-once")
    with pytest.raises(AlreadyExistsError, match="only-once"):
        await sandbox.run_code("n += 1", context=context, execution_id="only-once")
    assert (await sandbox.run_code("n", context=context)).text == "1"


@pytest.mark.parametrize(
    "options", [{"timeout": 0}, {"timeout": 1e9}, {"execution_id": "a/b"}, {"output_limit": 1 << 40}]
)
async def test_an_execution_that_cannot_be_is_refused_before_it_runs(sandbox, options):
    with pytest.raises(InvalidArgument):
        await sandbox.run_code("open('/workspace/ran', 'w')", **options)
    assert not await sandbox.files.exists("ran")


async def test_too_many_executions_at_once_are_refused_and_later_allowed(starting):
    async with starting(limits={"executions": 2}) as executor:
        sandbox = executor.sandbox
        await sandbox.run_code("1")
        both = [asyncio.create_task(sandbox.run_code("while True: pass")) for _ in range(2)]
        await until(lambda: _running(sandbox, 2))
        with pytest.raises(Exception, match="2 are running") as refused:
            await sandbox.run_code("1")
        assert refused.value.retryable
        # A restart ends the one that runs. The other one then begins, and outlives a restart that comes before it has.
        left = set(both)
        while left:
            await sandbox.restart_context()
            _, left = await asyncio.wait(left, timeout=1, return_when=asyncio.FIRST_COMPLETED)
        assert (await sandbox.run_code("1")).outcome is Outcome.OK


async def _interrupts(sandbox, context, running):
    while not running.done():
        await sandbox.interrupt(context)
        await asyncio.sleep(0.05)


async def _processes(sandbox):
    """How many the session has."""
    counted = await sandbox.run_code("import os\nsum(name.isdigit() for name in os.listdir('/proc'))")
    return int(counted.text)


async def _has_processes(sandbox, number):
    return await _processes(sandbox) == number


async def _has_begun(sandbox, execution_id):
    """Whether the executor knows it."""
    following = asyncio.create_task(sandbox.attach(execution_id))
    done, _ = await asyncio.wait([following], timeout=0.5)
    following.cancel()
    await asyncio.wait([following])
    return not done


async def _is_busy(sandbox, context):
    return await _has_state(sandbox, context, "busy")


async def _has_state(sandbox, context, state):
    return any(each.state == state for each in await sandbox.list_contexts() if each.context_id == context)


async def _running(sandbox, count):
    return (await sandbox.usage()).running_executions == count
