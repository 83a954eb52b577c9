"""A context of bash for each test, and what runs cells in it: for the tests of bash."""

import pytest
import pytest_asyncio


@pytest_asyncio.fixture(name="shell", loop_scope="session")
async def shell_fixture(sandbox):
    context = await sandbox.create_context("shell", language="bash")
    yield context
    await sandbox.delete_context(context)


@pytest.fixture(name="run")
def run_fixture(sandbox, shell):
    async def run(code, **options):
        return await sandbox.run_code(code, context=shell, **{"timeout": 60, **options})

    return run


async def said(run, code, **options):
    execution = await run(code, **options)
    return execution.logs.stdout
