"""The executor's report of its egress: for the control plane alone, and never better than the truth."""

import contextlib
import socket
import time

import grpc
import pytest
import pytest_asyncio
from contract.executor.harness import until
from sandfleet_api.executor.v1 import session_pb2, session_pb2_grpc

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def executor(starting):
    """One whose user code has the network that it has itself."""
    async with starting(port=True, network="pod") as made:
        yield made


@pytest.fixture
def here(host):
    """An address of this machine that the executor's network leads to."""
    return "127.0.0.1" if "unix socket" in host.traits else host.cluster.addresses.outside[0]


def tcp(address, port):
    return session_pb2.EgressTarget(tcp=session_pb2.TcpAddress(address=address, port=port))


async def probe(executor, *targets, scope=None):
    token = executor.token(**({"scope": scope} if scope else {}))
    async with executor.channel() as channel:
        call = session_pb2_grpc.SessionServiceStub(channel).ProbeEgress
        request = session_pb2.ProbeEgressRequest(targets=targets)
        return list((await call(request, metadata=(("authorization", f"Bearer {token}"),), timeout=10)).reached)


@contextlib.contextmanager
def silent(address):
    """A port that takes no more connections: what is sent to it is dropped, as by a policy."""
    with socket.create_server((address, 0), backlog=0) as server, contextlib.ExitStack() as waiting:
        where = server.getsockname()
        while True:
            one = waiting.enter_context(socket.socket())
            one.settimeout(0.3)
            try:
                one.connect(where)
            except TimeoutError:
                break
        yield where[1]


def closed_port(address):
    with socket.create_server((address, 0)) as server:
        return server.getsockname()[1]


@pytest.mark.smoke
async def test_what_accepts_or_refuses_is_reached_and_what_is_silent_is_not(executor, here):
    with socket.create_server((here, 0)) as listening, silent(here) as dropped:
        ports = [listening.getsockname()[1], dropped, closed_port(here)]
        assert await probe(executor, *(tcp(here, port) for port in ports)) == [True, False, True]


async def test_a_port_that_begins_to_answer_is_reached_then(executor, here):
    with silent(here) as port:
        assert await probe(executor, tcp(here, port)) == [False]
    with socket.create_server((here, port)):
        assert await probe(executor, tcp(here, port)) == [True]


async def test_many_silent_targets_take_no_longer_than_one(executor, here):
    with silent(here) as port:
        begun = time.monotonic()
        assert await probe(executor, tcp(here, port)) == [False]
        one = time.monotonic()
        assert await probe(executor, *[tcp(here, port)] * 8) == [False] * 8
    # One after the other they would take eight times a second; how long a call takes by itself is the machine's affair.
    assert time.monotonic() - one < 4 * (one - begun)


@pytest.mark.parametrize(
    "targets",
    [
        [],
        [tcp("192.0.2.1", 80)] * 9,
        [tcp("example.com", 80)],
        [tcp("fe80::1%eth0", 80)],
        [tcp("", 80)],
        [tcp("192.0.2.1", 0)],
        [tcp("192.0.2.1", 65536)],
        [session_pb2.EgressTarget()],
        [session_pb2.EgressTarget(name_server=False)],
    ],
)
async def test_an_invalid_target_is_refused(executor, targets):
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await probe(executor, *targets)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert refused.value.details().startswith("cannot probe")


async def test_only_an_admin_asks(executor, here):
    port = closed_port(here)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await probe(executor, tcp(here, port), scope="interpreter process filesystem session")
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert await probe(executor, tcp(here, port), scope="admin") == [True]


async def test_being_asked_is_no_use_of_the_sandbox(starting, here):
    async with starting(port=True, network="pod", idle_timeout=1.5) as idle:
        port = closed_port(here)

        async def ask():
            with contextlib.suppress(grpc.aio.AioRpcError):
                await probe(idle, tcp(here, port))
            return idle.ended

        await until(ask)
        assert (await idle.exit()).code == 41


@pytest.mark.needs("own network")
async def test_an_executor_whose_user_code_has_another_network_says_nothing(starting):
    async with starting(network="none") as apart:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await probe(apart, tcp("127.0.0.1", closed_port("127.0.0.1")))
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "a network of its own" in refused.value.details()


@pytest.mark.needs("name server")
async def test_the_name_servers_of_a_pod_answer(executor):
    assert await probe(executor, session_pb2.EgressTarget(name_server=True)) == [True]
