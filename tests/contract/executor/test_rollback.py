"""A cell that is killed costs no variables: its context goes on from a copy of the state before it."""

import pytest
from contract.executor.harness import until
from sandfleet import Outcome

pytestmark = pytest.mark.asyncio(loop_scope="session")

RESTORED = ("variables", "imports", "cwd", "environment", "random")
KEPT = ("files", "tmp", "offsets", "sockets")
CRASH = "import ctypes; ctypes.string_at(0)"
EXIT = "import os; os._exit(3)"
STUCK = "import ctypes; ctypes.CDLL(None).sleep(1000); ctypes.CDLL(None).sleep(1000)"
LOCKED = "lock = __import__('threading').Lock(); lock.acquire()\nimport signal; signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\nwhile True: pass"


async def state_of(sandbox, context):
    return next(each for each in await sandbox.list_contexts() if each.context_id == context)


async def copied(sandbox, context):
    """Waits until the state after the last cell is kept."""

    async def is_copied():
        found = await state_of(sandbox, context)
        return found.copied_cell == found.executions

    await until(is_copied)


async def run(sandbox, context, code, **options):
    """A cell whose state is kept before the next one runs."""
    execution = await sandbox.run_code(code, context=context, timeout=options.pop("timeout", 60), **options)
    assert execution.outcome is Outcome.OK, execution.error
    await copied(sandbox, context)
    return execution


def is_rolled_back(execution, cell):
    said = execution.rollback
    assert said is not None, execution
    assert (said.done, said.refused, said.cell_number, said.cells_undone) == (True, "", cell, 0), said
    assert (said.restored, said.kept) == (RESTORED, KEPT)
    assert execution.lost == ("processes",)
    return True


@pytest.mark.parametrize(
    ("code", "outcome"),
    [(CRASH, "killed"), (EXIT, "killed"), ("import os; os.kill(os.getpid(), 9)", "killed"), (STUCK, "timeout"), (LOCKED, "timeout")],
    ids=["crash", "exit", "signal", "in C", "deaf"],
)
async def test_whatever_ends_the_interpreter_the_next_cell_has_what_was_there_before(sandbox, context, code, outcome):
    await run(
        sandbox,
        context,
        "import json, os, random, pathlib\nvalue = {'a': [1, 2]}\ndef double(x): return 2 * x\nos.chdir('/tmp')\nos.environ['MINE'] = 'yes'\nrandom.seed(7)",
    )
    execution = await sandbox.run_code(f"value.clear(); del double\nrandom.random()\n{code}", context=context, timeout=0.5)
    assert execution.outcome == outcome
    assert is_rolled_back(execution, 1)
    after = await sandbox.run_code(
        "import random as r\n(json.dumps(value), double(4), os.getcwd(), os.environ['MINE'], r.random() == r.Random(7).random())",
        context=context,
    )
    assert (after.text, after.lost) == ("('{\"a\": [1, 2]}', 8, '/tmp', 'yes', True)", ("processes",))
    assert (await state_of(sandbox, context)).generation == 2
