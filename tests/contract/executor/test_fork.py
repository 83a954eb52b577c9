"""Contexts that fork: all variables are there in each, and from then on each is on its own."""

import asyncio

import pytest
from contract.executor.copies import EXIT, copied, count, is_rolled_back, run, state_of
from contract.executor.harness import until
from sandfleet import Outcome
from sandfleet.errors import AlreadyExistsError, InvalidArgument, LimitReached, NotFoundError, PreconditionFailed
from support.client.contexts import DEFAULTS

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def delete(sandbox, contexts):
    for each in contexts:
        await sandbox.delete_context(each)


async def test_each_fork_has_all_variables_and_changes_only_its_own(sandbox, context):
    await sandbox.run_code(
        "import json, os\nvalue = {'a': [1]}\ndef double(x): return 2 * x\nos.chdir('/tmp')", context=context
    )
    forks = await sandbox.fork_context(context, 3)
    assert [(each.state, each.generation, each.executions) for each in forks] == [("idle", 1, 1)] * 3
    for number, fork in enumerate(forks):
        code = f"value['a'].append({number}); mine = {number}\n(json.dumps(value), double(4), os.getcwd())"
        execution = await sandbox.run_code(code, context=fork)
        assert execution.text == f"('{{\"a\": [1, {number}]}}', 8, '/tmp')", execution
    after = await sandbox.run_code("(value, 'mine' in globals())", context=context)
    assert after.text == "({'a': [1]}, False)"
    await delete(sandbox, forks)


async def test_forks_write_to_streams_of_their_own_and_run_at_the_same_time(sandbox, context):
    await sandbox.run_code("import os, time, pathlib", context=context)
    forks = await sandbox.fork_context(context, 3)
    meet = "pathlib.Path(f'/tmp/here-{os.getpid()}').touch()\nwhile len(list(pathlib.Path('/tmp').glob('here-*'))) < 3: time.sleep(0.01)\nprint(os.getpid())"
    done = await asyncio.gather(*(sandbox.run_code(meet, context=fork, timeout=60) for fork in forks))
    assert len({each.logs.stdout for each in done}) == 3
    assert all(each.outcome is Outcome.OK and each.logs.stdout.count("\n") == 1 for each in done)
    await delete(sandbox, forks)


async def test_forks_draw_different_numbers_and_the_same_ones_at_every_run(sandbox, context):
    await sandbox.run_code(
        "import random\nimport numpy as np\nrandom.seed(1); np.random.seed(1)", context=context, timeout=120
    )
    draw = "(random.random(), float(np.random.rand()))"
    first, second = await sandbox.fork_context(context, 2, context_ids=["seed-a", "seed-b"])
    drawn = [(await sandbox.run_code(draw, context=each)).text for each in (first, second)]
    assert drawn[0] != drawn[1]
    await delete(sandbox, (first, second))
    (again,) = await sandbox.fork_context(context, 1, context_ids=["seed-a"])
    assert (await sandbox.run_code(draw, context=again)).text == drawn[0]
    # The one that they come from goes on as if nothing had been.
    own = await sandbox.run_code("(random.random() == random.Random(1).random())", context=context)
    assert own.text == "True"
    await delete(sandbox, (again,))


async def test_a_fork_ends_alone_and_is_rolled_back_alone(sandbox, context):
    await sandbox.run_code("value = [1]", context=context)
    first, second = await sandbox.fork_context(context, 2)
    await run(sandbox, first.context_id, "value.append(2)")
    assert is_rolled_back(await sandbox.run_code(f"value.clear()\n{EXIT}", context=first), 2)
    assert (await sandbox.run_code("value", context=first)).text == "[1, 2]"
    assert (await state_of(sandbox, first.context_id)).generation == 2
    await sandbox.delete_context(first)
    for name in (second.context_id, context):
        assert (await sandbox.run_code("value", context=name)).text == "[1]"
    await sandbox.delete_context(second)


async def test_a_fork_of_a_fork_and_a_fork_after_a_rollback(sandbox, context):
    await run(sandbox, context, "value = 1")
    await sandbox.run_code(EXIT, context=context)
    (child,) = await sandbox.fork_context(context)
    await sandbox.run_code("value += 1", context=child)
    (grandchild,) = await sandbox.fork_context(child)
    await sandbox.delete_context(context)
    await sandbox.delete_context(child)
    assert (await sandbox.run_code("value", context=grandchild)).text == "2"
    await sandbox.delete_context(grandchild)


async def test_forks_outlive_their_context_however_soon_it_goes(sandbox):
    """It may not have heard yet that they are not its own any more."""
    for turn in range(10):
        made = await sandbox.create_context()
        await sandbox.run_code(f"value = {turn}", context=made)
        forks = await sandbox.fork_context(made, 3)
        await sandbox.delete_context(made)
        found = [(await sandbox.run_code("value", context=each)).text for each in forks]
        assert found == [str(turn)] * 3
        await delete(sandbox, forks)


async def test_top_level_await_has_a_loop_of_its_own_in_each_fork(sandbox, context):
    await sandbox.run_code("import asyncio\nloop = asyncio.get_running_loop(); await asyncio.sleep(0)", context=context)
    forks = await sandbox.fork_context(context, 2)
    for each in forks:
        execution = await sandbox.run_code("await asyncio.sleep(0)\nasyncio.get_running_loop() is loop", context=each)
        assert (execution.text, execution.logs.stderr) == ("False", "")
    assert (await sandbox.run_code("asyncio.get_running_loop() is loop; await asyncio.sleep(0)", context=context)).ok
    await delete(sandbox, forks)


async def test_a_fork_waits_for_the_cell_that_runs(sandbox, context):
    running = asyncio.create_task(
        sandbox.run_code(
            "open('/tmp/begun', 'w').close()\nimport time, os\nwhile not os.path.exists('/tmp/go'): time.sleep(0.01)\nvalue = 9",
            context=context,
        )
    )
    await until(lambda: sandbox.files.exists("/tmp/begun"))
    forking = asyncio.create_task(sandbox.fork_context(context))
    await sandbox.files.write("/tmp/go", "")
    (fork,) = await forking
    assert (await running).ok
    assert (await sandbox.run_code("value", context=fork)).text == "9"
    await sandbox.delete_context(fork)


async def test_threads_are_a_typed_refusal_that_names_one(sandbox, context):
    await sandbox.run_code(
        "import threading\nstop = threading.Event()\nthreading.Thread(target=stop.wait, name='keeper', daemon=True).start()",
        context=context,
    )
    before = len(await sandbox.list_contexts())
    with pytest.raises(PreconditionFailed, match="'keeper'") as raised:
        await sandbox.fork_context(context, 2)
    assert raised.value.reason == "ThreadsRunning"
    assert len(await sandbox.list_contexts()) == before
    # Control: without it the same context forks.
    await sandbox.run_code("stop.set()", context=context)
    await delete(sandbox, await sandbox.fork_context(context, 2))


async def test_all_forks_are_made_or_none(starting):
    async with starting(limits={"processes": 40}) as executor:
        sandbox = executor.sandbox
        await sandbox.run_code("value = 1")
        await copied(sandbox, "default")
        before = await count(sandbox)
        with pytest.raises(LimitReached) as raised:
            await sandbox.fork_context("default", 60)
        assert raised.value.reason == "ForkFailed"
        assert [each.context_id for each in await sandbox.list_contexts()] == list(DEFAULTS)

        async def as_before():
            return await count(sandbox) <= before

        await until(as_before)
        (fork,) = await sandbox.fork_context("default")
        assert (await sandbox.run_code("value", context=fork)).text == "1"


async def test_invalid_requests_are_refused_and_make_nothing(sandbox, context):
    await sandbox.run_code("1")
    before = {each.context_id for each in await sandbox.list_contexts()}
    with pytest.raises(NotFoundError):
        await sandbox.fork_context("unknown")
    with pytest.raises(AlreadyExistsError):
        await sandbox.fork_context(context, 2, context_ids=["new-one", context])
    with pytest.raises(InvalidArgument):
        await sandbox.fork_context(context, 2, context_ids=["same", "same"])
    with pytest.raises(InvalidArgument):
        await sandbox.fork_context(context, 0)
    with pytest.raises(LimitReached):
        # With the two that are there, one too many.
        await sandbox.fork_context(context, 63)
    assert {each.context_id for each in await sandbox.list_contexts()} == before


async def test_nothing_is_left_of_forks_that_were_deleted(sandbox, context):
    await run(sandbox, context, "value = 1")
    before = await count(sandbox)
    forks = await sandbox.fork_context(context, 5)
    for each in forks:
        await run(sandbox, each.context_id, "value += 1")
    await delete(sandbox, forks)

    async def as_before():
        return await count(sandbox) <= before

    await until(as_before)
