"""What the tests of saved variables share."""

from contract.executor.harness import until
from sandfleet import Outcome

MIB = 1 << 20


async def run(sandbox, code, context, **options):
    """The value of a cell that ends well."""
    execution = await sandbox.run_code(code, context=context, **options)
    assert execution.outcome is Outcome.OK, execution
    return execution.text


async def again(sandbox, context, code, *, name=None):
    """Runs code, saves, restores into a fresh interpreter; what was saved, and what was restored."""
    await run(sandbox, code, context)
    saved = await sandbox.states.save(name, context=context)
    await sandbox.restart_context(context)
    return saved, await sandbox.states.restore(name, context=context)


def names(items):
    return {item.name for item in items}


def reasons(items):
    return {item.name: item.reason for item in items}


async def saved_automatically(sandbox, cell, context="default"):
    """Waits for the automatic save of a cell."""

    async def newest():
        found = {each.context_id: each for each in await sandbox.list_contexts()}[context].autosaved
        return found and found.state and found.state.cell_number >= cell and found

    return await until(newest)
