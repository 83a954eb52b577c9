"""A cell that is killed costs no variables: its context goes on from a copy of the state before it."""

import pytest
from contract.executor.copies import (
    CRASH,
    EXIT,
    copied,
    count,
    is_kept,
    is_rolled_back,
    refused,
    run,
    state_of,
)
from contract.executor.harness import until
from sandfleet import Outcome

pytestmark = pytest.mark.asyncio(loop_scope="session")

STUCK = "import collections, itertools; collections.deque(itertools.repeat(0), maxlen=0)"
LOCKED = "lock = __import__('threading').Lock(); lock.acquire()\nimport signal; signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\nwhile True: pass"


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (CRASH, "killed"),
        (EXIT, "killed"),
        ("import os; os.kill(os.getpid(), 9)", "killed"),
        (STUCK, "timeout"),
        (LOCKED, "timeout"),
    ],
    ids=["crash", "exit", "signal", "in C", "deaf"],
)
async def test_after_any_end_of_the_interpreter_the_next_cell_has_the_earlier_variables(
    sandbox, context, code, outcome
):
    await run(
        sandbox,
        context,
        "import json, os, random, pathlib\nvalue = {'a': [1, 2]}\ndef double(x): return 2 * x\nos.chdir('/tmp')\nos.environ['MINE'] = 'yes'\nrandom.seed(7)",
    )
    execution = await sandbox.run_code(
        f"value.clear(); del double\nrandom.random()\n{code}", context=context, timeout=0.5
    )
    assert execution.outcome == outcome
    assert is_rolled_back(execution, 1)
    after = await sandbox.run_code(
        "import random as r\n(json.dumps(value), double(4), os.getcwd(), os.environ['MINE'], r.random() == r.Random(7).random())",
        context=context,
    )
    assert (after.text, after.lost) == ("('{\"a\": [1, 2]}', 8, '/tmp', 'yes', True)", ("processes",))
    assert (await state_of(sandbox, context)).generation == 2


# What a copy must not disturb


async def test_an_idle_copy_is_no_child_that_code_has_to_wait_for(sandbox, context):
    await run(sandbox, context, "import os")
    execution = await sandbox.run_code("os.wait()", context=context)
    assert execution.error.name == "ChildProcessError"


async def test_a_copy_holds_no_pipe_open(sandbox, context):
    await run(sandbox, context, "import subprocess\nchild = subprocess.Popen(['cat'], stdin=subprocess.PIPE)")
    assert (await sandbox.run_code("child.stdin.close(); child.wait(30)", context=context, timeout=60)).text == "0"


async def test_a_copy_holds_no_port_taken(sandbox, context):
    # The copy comes late to where it lets go of what it shares.
    late = "import os, socket, time\nos.register_at_fork(after_in_child=lambda: time.sleep(0.5))"
    await run(sandbox, context, f"{late}\nserver = socket.socket(socket.AF_UNIX); server.bind('\\0taken')")
    code = "server.close()\nagain = socket.socket(socket.AF_UNIX); again.bind('\\0taken'); again.getsockname()"
    assert (await sandbox.run_code(code, context=context)).text == "b'\\x00taken'"


async def test_background_processes_are_the_context_s_own_all_along(sandbox, context):
    await run(sandbox, context, "import subprocess\nchild = subprocess.Popen(['sleep', '0.1'])")
    assert (await sandbox.run_code("child.wait(30)", context=context, timeout=60)).text == "0"


async def test_nothing_is_left_of_a_context_and_its_copies(sandbox):
    await sandbox.run_code("1")
    await copied(sandbox, "default")
    before = await count(sandbox)
    made = await sandbox.create_context("left")
    for _ in range(3):
        await run(sandbox, "left", "x = 1")
        assert is_rolled_back(
            await sandbox.run_code(EXIT, context=made), (await state_of(sandbox, "left")).executions - 1
        )
    await run(sandbox, "left", "x")
    await sandbox.delete_context(made)

    async def as_before():
        return await count(sandbox) <= before

    await until(as_before)


HOOKS = """
import ast, gc, linecache, sys, threading
shell, calls = get_ipython(), []
class Transformer(ast.NodeTransformer):
    def visit(self, node):
        calls.append("transformer")
        return node
shell.ast_transformers.append(Transformer())
for event in ("pre_execute", "pre_run_cell", "post_execute", "post_run_cell"):
    shell.events.register(event, lambda *_, event=event: calls.append(event))
shell.display_formatter.formatters["text/plain"].for_type(int, lambda value, printer, cycle: calls.append("printer"))
shell.input_transformers_cleanup.append(lambda lines: calls.append("cleanup") or lines)
"""
FOUND = "(calls, sorted(globals()), len(In), sorted(Out), sorted(n for n in linecache.cache if n.startswith('<')))"


async def test_code_finds_no_trace_of_what_its_context_does_after_a_copy(sandbox, starting):
    """It rehearses a cell there. Without copies the same cells find the same."""
    made = await sandbox.create_context()
    await run(sandbox, made.context_id, HOOKS)
    await run(sandbox, made.context_id, "5")
    found = (await sandbox.run_code(FOUND, context=made)).text
    await sandbox.delete_context(made)
    async with starting(rollback={"enabled": False}) as executor:
        for code in (HOOKS, "5"):
            await executor.sandbox.run_code(code)
        expected = (await executor.sandbox.run_code(FOUND)).text
    assert found == expected
    assert "transformer" in found


# What is used after a rollback


async def test_rolled_back_twice_in_a_row_and_a_third_time_after_another_cell(sandbox, context):
    await run(sandbox, context, "value = 1")
    for cell, code in ((1, EXIT), (1, CRASH)):
        assert is_rolled_back(await sandbox.run_code(f"value = 2\n{code}", context=context), cell)
        await until(lambda: is_kept(sandbox, context))
    await run(sandbox, context, "value += 10")
    assert is_rolled_back(await sandbox.run_code(f"value = 2\n{EXIT}", context=context), 4)
    assert (await sandbox.run_code("value", context=context)).text == "11"


async def test_after_many_rollbacks_code_may_call_as_deep_as_before(sandbox, context):
    deep = "def deep(calls): return deep(calls - 1) + 1 if calls else 0\ndeep(900)"
    await run(sandbox, context, deep)
    for _ in range(12):
        assert (await sandbox.run_code(EXIT, context=context)).rollback.done
        await until(lambda: is_kept(sandbox, context))
        assert (await sandbox.run_code("deep(900)", context=context)).text == "900"
        await copied(sandbox, context)


async def test_a_cell_right_after_a_copy_finds_no_child_of_the_context(sandbox, context):
    # The second of them often comes while the spawner still adopts the copy of the first.
    for _ in range(20):
        await sandbox.run_code("import os, time; time.sleep(0.02)", context=context)
        execution = await sandbox.run_code("os.wait()", context=context)
        assert execution.error.name == "ChildProcessError"


async def test_a_cell_that_is_killed_while_its_copy_is_adopted_is_rolled_back(sandbox, context):
    for number in range(1, 6):
        await sandbox.run_code(f"value = {number}", context=context)
        said = (await sandbox.run_code(EXIT, context=context, on_failure="rollback")).rollback
        assert (said.done, said.cells_undone) == (True, 0), said
        assert (await sandbox.run_code("value", context=context)).text == str(number)


async def test_top_level_await_works_before_and_after(sandbox, context):
    await run(
        sandbox,
        context,
        "import asyncio\nqueue = asyncio.Queue(); await queue.put(5); loop = asyncio.get_running_loop()",
    )
    assert is_rolled_back(await sandbox.run_code(f"await asyncio.sleep(0)\n{EXIT}", context=context), 1)
    after = await sandbox.run_code("await asyncio.sleep(0)\n(await queue.get(), loop.is_closed())", context=context)
    assert (after.text, after.logs.stderr) == ("(5, True)", "")


async def test_numpy_pandas_and_a_pool_of_blas_threads_work_after_a_rollback(sandbox):
    made = await sandbox.create_context("blas", envs={"OPENBLAS_NUM_THREADS": "2"})
    code = "import numpy as np, pandas as pd, os\nnp.random.seed(3)\na = np.random.rand(400, 400); total = (a @ a).sum()\nframe = pd.DataFrame({'x': range(10)})\nstate = np.random.get_state()[1].copy()\nlen(os.listdir('/proc/self/task'))"
    # Where pandas finds pyarrow, that has a thread of its own beside the pool's.
    assert int((await run(sandbox, "blas", code, timeout=120)).text) >= 2
    assert is_rolled_back(await sandbox.run_code(f"del a\nnp.random.rand(5)\n{CRASH}", context=made), 1)
    after = await sandbox.run_code(
        "(bool(np.isclose((a @ a).sum(), total)), int(frame.x.sum()), bool((np.random.get_state()[1] == state).all()))",
        context=made,
        timeout=60,
    )
    assert after.text == "(True, 45, True)", after
    await sandbox.delete_context(made)


async def test_figures_are_drawn_after_a_rollback(sandbox, context):
    await run(sandbox, context, "import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.show()", timeout=120)
    assert is_rolled_back(await sandbox.run_code(EXIT, context=context), 1)
    after = await sandbox.run_code("plt.plot([2, 1]); plt.show()", context=context, timeout=60)
    assert any(result.png for result in after.results)


async def test_files_stay_as_the_cell_left_them(sandbox, context):
    await run(sandbox, context, "file = open('/tmp/log', 'w'); file.write('before\\n'); file.flush()")
    assert is_rolled_back(
        await sandbox.run_code(f"file.write('lost cell\\n'); file.flush()\n{EXIT}", context=context), 1
    )
    await sandbox.run_code("file.write('after\\n'); file.flush()", context=context)
    assert await sandbox.files.read("/tmp/log") == "before\nlost cell\nafter\n"


async def test_an_interpreter_that_ends_between_two_cells_goes_on_from_its_copy(sandbox, context):
    pid = (await run(sandbox, context, "import os; value = 6; os.getpid()")).text
    await sandbox.commands.run(f"kill -9 {pid}", check=True)

    async def is_gone():
        return (await state_of(sandbox, context)).state == "ended"

    await until(is_gone)
    after = await sandbox.run_code("value", context=context)
    assert (after.text, after.lost) == ("6", ("processes",))


# Exceptions


async def test_a_cell_that_raises_keeps_what_it_did_unless_it_is_asked_to_be_rolled_back(sandbox, context):
    await run(sandbox, context, "value = [1]")
    kept = await sandbox.run_code("value.append(2); 1 / 0", context=context)
    assert (kept.outcome, kept.rollback) == ("error", None)
    await copied(sandbox, context)
    undone = await sandbox.run_code("value.append(3); 1 / 0", context=context, on_failure="rollback")
    assert (undone.outcome, undone.error.name) == ("error", "ZeroDivisionError")
    assert is_rolled_back(undone, 2)
    assert (await sandbox.run_code("value", context=context)).text == "[1, 2]"


async def test_what_asks_for_a_rollback_waits_for_the_copy_that_it_needs(sandbox, context):
    for _ in range(40):
        await sandbox.run_code("value = globals().get('value', 0) + 1", context=context)
    undone = await sandbox.run_code("value = 'bad'; 1 / 0", context=context, on_failure="rollback")
    assert is_rolled_back(undone, 40)
    assert (await sandbox.run_code("value", context=context)).text == "40"


async def test_a_cell_that_asked_for_it_and_ended_well_is_not_rolled_back(sandbox, context):
    done = await sandbox.run_code("value = 3", context=context, on_failure="rollback")
    assert (done.outcome, done.rollback) == ("ok", None)
    assert (await sandbox.run_code("value", context=context)).text == "3"


async def test_cells_that_come_too_fast_to_be_copied_are_counted_when_they_are_undone(sandbox, context):
    for number in range(1, 61):
        await sandbox.run_code(f"value = {number}", context=context)
    said = (await sandbox.run_code(EXIT, context=context)).rollback
    # How many of them there are is a matter of speed; that the result says exactly what is there is not.
    assert said.done, said
    assert said.cell_number + said.cells_undone == 60
    assert (await sandbox.run_code("value", context=context)).text == str(said.cell_number)


# What makes a copy impossible


async def test_a_thread_makes_a_copy_impossible_and_the_result_names_it(sandbox, context):
    thread = "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), name='busy-bee', daemon=True).start()"
    await sandbox.run_code(thread, context=context)
    message = await refused(sandbox, context, "ThreadsRunning")
    assert "'busy-bee'" in message


async def test_a_thread_that_python_does_not_know_makes_a_copy_impossible_too(sandbox, context):
    code = (
        "import ctypes\nlibc = ctypes.CDLL(None)\nthread = ctypes.c_ulong()\n"
        "libc.pthread_create(ctypes.byref(thread), None, ctypes.cast(libc.pause, ctypes.c_void_p), None)"
    )
    await sandbox.run_code(code, context=context)
    assert "not Python's" in await refused(sandbox, context, "ThreadsRunning")


async def test_threads_that_have_ended_are_no_hindrance(sandbox, context):
    await run(sandbox, context, "import threading\nt = threading.Thread(target=print); t.start(); t.join(); value = 1")
    assert is_rolled_back(await sandbox.run_code(EXIT, context=context), 1)


async def test_the_first_cell_has_nothing_to_go_back_to(sandbox, context):
    await refused(sandbox, context, "FirstCell")


async def test_an_interpreter_over_the_template_s_limit_is_not_copied(starting):
    async with starting(rollback={"max_memory_bytes": 100 << 20}) as executor:
        await run(executor.sandbox, "default", "value = 1")
        assert is_rolled_back(await executor.sandbox.run_code(EXIT), 1)
        await executor.sandbox.run_code("heap = b'x' * (150 << 20)")
        message = await refused(executor.sandbox, "default", "TooLarge")
        assert "the limit of copies is 100" in message


async def test_switched_off_a_killed_cell_costs_its_variables(starting):
    # Control of all the tests above: the same cells without copies.
    async with starting(rollback={"enabled": False}) as executor:
        before = (await executor.sandbox.run_code("value = 1")).outcome
        assert before is Outcome.OK
        message = await refused(executor.sandbox, "default", "Disabled")
        assert message == "The context could not be rolled back because rollback is switched off for this sandbox."
        assert (await executor.sandbox.run_code("value")).error.name == "NameError"
