"""Copies of contexts and saved variables beside each other: a copy is the first choice, what is saved is the second."""

import pytest
import pytest_asyncio
from contract.executor.copies import CRASH, copied
from contract.executor.saving import run, saved_automatically

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.usefixtures("forget_states")]


@pytest_asyncio.fixture(loop_scope="session")
async def saving(sandbox):
    """A context with both."""
    made = await sandbox.create_context(autosave=True)
    yield made.context_id
    await sandbox.delete_context(made)


async def test_where_there_is_a_copy_nothing_is_brought_back_from_a_save(sandbox, saving):
    await run(sandbox, "x = [1]; gen = (i for i in x)", saving)
    await saved_automatically(sandbox, 1, saving)
    await copied(sandbox, saving)
    crashed = await sandbox.run_code(CRASH, context=saving)
    assert crashed.rollback.done
    after = await sandbox.run_code("(x, next(gen))", context=saving)
    assert (after.text, after.restored) == ("([1], 1)", "")


async def test_where_the_copy_is_refused_the_save_is_what_brings_the_variables_back(sandbox, saving):
    await run(
        sandbox,
        "import threading\nx = [1]\nthreading.Thread(target=threading.Event().wait, daemon=True).start()",
        saving,
    )
    await saved_automatically(sandbox, 1, saving)
    crashed = await sandbox.run_code(CRASH, context=saving)
    assert crashed.rollback.refused == "ThreadsRunning"
    after = await sandbox.run_code("x", context=saving)
    assert (after.text, "as after cell 1" in after.restored) == ("[1]", True)


async def test_what_was_brought_back_is_copied_in_its_turn(sandbox, saving):
    await run(
        sandbox,
        "import threading\nx = [1]\nthreading.Thread(target=threading.Event().wait, daemon=True).start()",
        saving,
    )
    await saved_automatically(sandbox, 1, saving)
    await sandbox.run_code(CRASH, context=saving)
    await run(sandbox, "y = 2", saving)
    await copied(sandbox, saving)
    assert (await sandbox.run_code(CRASH, context=saving)).rollback.done
    assert await run(sandbox, "(x, y)", saving) == "([1], 2)"


async def test_after_a_rollback_what_is_saved_is_the_state_that_it_went_back_to(sandbox, context):
    await run(sandbox, "x = 1", context)
    await copied(sandbox, context)
    await sandbox.run_code(f"x = 2; {CRASH}", context=context)
    saved = await sandbox.states.save(context=context)
    assert saved.state.cell_number == 1
    await sandbox.restart_context(context)
    await sandbox.states.restore(context=context)
    assert await run(sandbox, "x", context) == "1"


async def test_a_fork_saves_for_itself(sandbox, context):
    await run(sandbox, "x = 1", context)
    (fork,) = await sandbox.fork_context(context, 1)
    await run(sandbox, "x = 2", fork)
    await sandbox.states.save("of-the-fork", context=fork)
    await sandbox.states.save("of-the-first", context=context)
    await sandbox.restart_context(context)
    await sandbox.states.restore("of-the-fork", context=context)
    assert await run(sandbox, "x", context) == "2"
    await sandbox.states.restore("of-the-first", context=context)
    assert await run(sandbox, "x", context) == "1"
    await sandbox.delete_context(fork)


async def test_a_save_that_is_under_way_is_no_child_of_a_copy(sandbox, context):
    """The copy is made while the context has a process that saves; it must neither wait for it nor end it."""
    await run(
        sandbox,
        "class Slow:\n    def __reduce__(self):\n        import time; time.sleep(1)\n        return (int, ())\nslow = Slow(); x = 5",
        context,
    )
    await sandbox.states.save("slow", context=context)
    await copied(sandbox, context)
    assert (await sandbox.run_code(CRASH, context=context)).rollback.done
    await sandbox.states.save("again", context=context)
    assert await run(sandbox, "x", context) == "5"
