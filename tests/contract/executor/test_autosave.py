"""Variables that are saved behind each cell, and are there again."""

import pytest
import pytest_asyncio
from contract.executor.harness import until
from contract.executor.saving import MIB, run, saved_automatically
from sandfleet import Autosave, Outcome

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.usefixtures("forget_states")]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def executor(starting):
    """Rollback would bring the variables back first."""
    async with starting(rollback={"enabled": False}) as made:
        yield made


async def test_with_autosave_a_crash_costs_only_what_cannot_be_saved(sandbox):
    context = await sandbox.create_context(autosave=True)
    await run(sandbox, "x = [1]; y = x\ngen = (i for i in x)\nimport json", context)
    await saved_automatically(sandbox, 1, context.context_id)
    crashed = await sandbox.run_code("x.append(2); import os; os._exit(1)", context=context)
    assert crashed.lost == ("variables: gen", "processes")
    execution = await sandbox.run_code("(x, y is x, json.dumps(1), 'gen' in globals())", context=context)
    assert execution.text == "([1], True, '1', False)"
    assert execution.lost == ("variables: gen", "processes")
    assert execution.restored == "3 variables, as after cell 1"
    assert (await sandbox.run_code("1", context=context)).restored == ""
    await sandbox.delete_context(context)


async def test_without_autosave_the_same_crash_costs_all(sandbox, context):
    await run(sandbox, "x = [1]", context)
    await sandbox.run_code("import os; os._exit(1)", context=context)
    execution = await sandbox.run_code("'x' in globals()", context=context)
    assert (execution.text, execution.lost, execution.restored) == ("False", ("variables", "processes"), "")


async def test_an_automatic_save_that_ends_the_interpreter_is_tried_once(sandbox):
    context = await sandbox.create_context(autosave=True)
    await run(
        sandbox, "import os\nclass A:\n    def __reduce__(self): return os._exit, (1,)\nbad = A(); x = 1", context
    )
    await saved_automatically(sandbox, 1, context.context_id)
    await sandbox.run_code("os._exit(1)", context=context)
    execution = await sandbox.run_code("'x' in globals()", context=context)
    assert (execution.outcome, execution.text, execution.lost) == (Outcome.OK, "False", ("variables", "processes"))
    await run(sandbox, "y = 1", context)
    await saved_automatically(sandbox, 4, context.context_id)
    await sandbox.delete_context(context)


async def test_an_automatic_save_that_is_behind_says_so(sandbox):
    context = await sandbox.create_context(autosave=True)
    await run(sandbox, "x = 1", context)
    await saved_automatically(sandbox, 1, context.context_id)
    hang = "class A:\n    def __reduce__(self):\n        import time; time.sleep(1000)\nstuck = A(); x = 2"
    await run(sandbox, hang, context)
    crashed = await sandbox.run_code("import os; os._exit(1)", context=context)
    assert crashed.lost == ("variables since cell 1", "processes")
    execution = await sandbox.run_code("x", context=context)
    assert (execution.text, execution.lost) == ("1", ("variables since cell 1", "processes"))
    await sandbox.delete_context(context)


async def test_a_cell_does_not_wait_for_an_automatic_save(sandbox):
    context = await sandbox.create_context(autosave=True)
    hang = "class A:\n    def __reduce__(self):\n        import time; open('/tmp/pickling', 'w'); time.sleep(1000)\nstuck = A()"
    await run(sandbox, hang, context)
    await until(lambda: sandbox.files.exists("/tmp/pickling"))
    # It hangs for as long as one variable may take; the cell's deadline is far below.
    assert await run(sandbox, "1 + 1", context, timeout=5) == "2"
    await sandbox.delete_context(context)


async def test_a_context_that_was_restarted_or_deleted_brings_nothing_back(sandbox):
    context = await sandbox.create_context("forgets", autosave=True)
    await run(sandbox, "x = 1", context)
    await saved_automatically(sandbox, 1, "forgets")
    await sandbox.restart_context(context)
    execution = await sandbox.run_code("'x' in globals()", context=context)
    assert (execution.text, execution.lost) == ("False", ())
    await sandbox.delete_context(context)
    await sandbox.create_context("forgets", autosave=True)
    assert await run(sandbox, "'x' in globals()", "forgets") == "False"
    await sandbox.delete_context("forgets")


async def test_on_another_executor_the_default_context_has_its_variables(starting):
    async with starting(restarts=True) as made:
        client = made.client(autosave=Autosave(max_bytes=64 * MIB))
        assert (await client.run_code("x = [1]; y = x; gen = (i for i in x)")).lost == ()
        await saved_automatically(client, 1)
        made.kill()
        await made.back()
        execution = await client.run_code("(x, y is x)")
        assert execution.text == "([1], True)"
        assert execution.restored == "2 variables, as after cell 1"
        assert "variables" not in execution.lost
        assert "variables: gen" in execution.lost
        assert execution.cell_number == 2


async def test_what_is_not_saved_yet_is_saved_when_the_executor_is_ended(starting):
    async with starting(restarts=True) as made:
        client = made.client(autosave=True)
        assert (await client.run_code("x = [1]")).lost == ()
        made.terminate()
        await made.back()
        execution = await client.run_code("x")
        assert (execution.text, execution.restored) == ("[1]", "1 variable, as after cell 1")


@pytest.mark.parametrize("killed", [False, True], ids=["closed", "killed"])
async def test_an_executor_that_comes_after_another_on_its_volume_brings_the_variables_back(starting, killed):
    """As after a pod is made again, or was suspended."""
    async with starting(keeps_workspace=True) as first:
        wish = Autosave(max_bytes=64 * MIB)
        client = first.client(autosave=wish)
        await client.run_code("import json, os\nos.chdir('/tmp'); x = [1]; y = x\ngen = (i for i in x)")
        await saved_automatically(client, 1)
        if killed:
            first.kill()
        else:
            await first.close_session()
        await first.exit()
        async with starting(**first.kept) as second:
            execution = await second.client(autosave=wish).run_code("(x, y is x, json.dumps(x), os.getcwd())")
            assert execution.text == "([1], True, '[1]', '/tmp')"
            assert "as after cell 1" in execution.restored
            assert "variables: gen" in execution.lost
            # Control: who does not ask for it begins with nothing.
            other = await second.sandbox.create_context()
            assert (await second.sandbox.run_code("'x' in globals()", context=other)).text == "False"
