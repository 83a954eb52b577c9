"""Executors for the contract tests: the real one, with the real client."""

import secrets
from contextlib import asynccontextmanager, suppress

import grpc
import pytest
import pytest_asyncio
from contract.executor.harness import until
from contract.executor.local import LocalHost
from contract.executor.pod import PodHost
from contract.executor.reviewer import reviewing
from contract.executor.service_tools import back_to, gone
from shows.cutting import Cutter

MIB = 1 << 20


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def host(request):
    in_pods = request.config.getoption("--executor") == "pod"
    made = PodHost(request.getfixturevalue("executor_image")) if in_pods else LocalHost()
    await made.start()
    yield made
    await made.close()


@pytest.fixture(scope="session")
def starting(host):
    """`async with starting(limits={...}) as executor`."""

    @asynccontextmanager
    async def start(**options):
        executor = await host.executor(**options)
        try:
            yield executor
        finally:
            await executor.stop()

    return start


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def executor(starting):
    """One for all tests of a file that leave it as it was."""
    async with starting() as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def sandbox(executor):
    return executor.sandbox


@pytest_asyncio.fixture(loop_scope="session")
async def fresh(starting):
    """One for a test that breaks things."""
    async with starting() as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def restarting(starting):
    """One that is started again in place when it has ended, as the kubelet does."""
    async with starting(restarts=True) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def cutting(executor):
    """A cutter in front of the file's executor, and a client that goes through it."""
    async with Cutter(executor.address) as cutter:
        yield cutter, executor.client(address=cutter.address)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def neighbour(starting):
    """Another sandbox, that nothing in the first one may disturb. It remembers `here`."""
    async with starting() as made:
        await made.sandbox.run_code("here = 'untouched'")
        yield made.sandbox


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def reviewed(starting):
    """One in which nothing runs before it is approved."""
    async with starting(contract="reviewed") as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def reviewer(reviewed):
    async with reviewing(reviewed) as made:
        yield made
        for one in await made.pending():
            # An execution whose caller has just gone may be ending by itself.
            with suppress(grpc.aio.AioRpcError):
                await made.deny(one, "the test is over")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def unprotected(starting):
    """For negative controls: an executor without a session namespace. Only for what does no harm to this machine."""
    async with starting(isolation="none", cgroup=False) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def context(sandbox):
    """The name of a new context in the file's sandbox."""
    made = await sandbox.create_context(f"c-{secrets.token_hex(4)}")
    yield made.context_id
    await sandbox.delete_context(made)


@pytest_asyncio.fixture(loop_scope="session")
async def services(sandbox):
    """Of the file's sandbox; nothing is left of them afterwards."""
    before = (await sandbox.usage()).processes
    yield sandbox.services
    await sandbox.services.apply([])
    await until(lambda: gone(sandbox))
    # A probe's command may be on its way out.
    await until(lambda: back_to(sandbox, before))


@pytest_asyncio.fixture(loop_scope="session")
async def forget_states(sandbox):
    """What a test saves in the file's sandbox goes after it."""
    yield
    for state in await sandbox.states.list():
        await sandbox.states.delete(state.name)


@pytest.fixture(autouse=True)
def _needed_traits(request):
    """`@pytest.mark.needs("own network")`: skipped where the set-up has no such thing."""
    wanted = [trait for marker in request.node.iter_markers("needs") for trait in marker.args]
    if wanted and (missing := set(wanted) - request.getfixturevalue("host").traits):
        pytest.skip(f"needs {', '.join(sorted(missing))}, which this set-up has not")
