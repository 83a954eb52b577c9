"""What tests of copies of contexts share."""

from contract.executor.harness import until
from sandfleet import Outcome

RESTORED = ("variables", "imports", "cwd", "environment", "random")
KEPT = ("files", "tmp", "offsets", "sockets")
CRASH = "import ctypes; ctypes.string_at(0)"
EXIT = "import os; os._exit(3)"


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


async def is_kept(sandbox, context):
    return (await state_of(sandbox, context)).copied_cell


async def refused(sandbox, context, reason, code=EXIT):
    # A cell that is to be rolled back waits for a copy that is due: whether there is one is known then.
    execution = await sandbox.run_code(code, context=context, timeout=60, on_failure="rollback")
    assert (execution.rollback.done, execution.rollback.refused) == (False, reason), execution.rollback
    assert execution.lost == ("variables", "processes")
    assert (await sandbox.run_code("1 + 1", context=context)).text == "2"
    return execution.rollback.message


async def count(sandbox):
    """Processes of the namespace, whatever they are for, once no more come."""
    return int((await sandbox.commands.run("ls -d /proc/[0-9]* | wc -l", check=True)).stdout)
