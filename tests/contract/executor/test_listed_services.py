"""The operator's question for services: to the real executor, and to what only says that it is one."""

import asyncio
import time

import grpc
import jwt
import pytest
import pytest_asyncio
from contract.executor.harness import until
from contract.executor.service_tools import SLEEP
from contract.executor.test_contact import Liar, Plane, met, whom
from sandfleet_api.executor.v1 import service_pb2
from sandfleet_api.executor.v1.identity_pb2_grpc import add_IdentityServiceServicer_to_server
from sandfleet_api.executor.v1.service_pb2_grpc import (
    ServiceManagerServiceServicer,
    add_ServiceManagerServiceServicer_to_server,
)
from sandfleet_api.executor.v1.session_pb2_grpc import add_SessionServiceServicer_to_server
from sandfleet_operator.api.kinds.sandbox import ServiceState
from sandfleet_operator.api.values import Isolation
from sandfleet_operator.executors.contact import ContactError, Contacts, Executor, Unreachable
from sandfleet_operator.executors.services import asked_by
from sandfleet_operator.plan.sandbox.actions import AskServices

pytestmark = pytest.mark.asyncio(loop_scope="session")

FAILS = {"name": "bad", "command": ["python3", "-c", "raise SystemExit(3)"], "restart": "never"}
TEMPLATE = [{"name": "db", "command": SLEEP}, FAILS]


@pytest.fixture
def plane(host):
    return Plane(host.key)


@pytest_asyncio.fixture(loop_scope="session")
async def serving(plane, starting, host):
    """One that has declared services, and whose session the operator has opened."""
    async with starting(session=None, port=True, signed=False, services=TEMPLATE) as made:
        await met(plane, made, host)
        await plane.contacts.open(whom(made))
        yield made


async def test_it_says_how_the_template_s_services_are(plane, serving):
    async def settled():
        found = {one.name: one for one in await plane.contacts.services(whom(serving))}
        return found if {one.state for one in found.values()} == {ServiceState.READY, ServiceState.FAILED} else None

    found = await until(settled)
    assert list(found) == ["db", "bad"]
    assert (found["bad"].reason, found["bad"].restarts) == ("ExitCode", 0)
    assert "3" in found["bad"].message
    asked = AskServices("ns", "one", serving.config["sandbox_uid"], serving.config["listen"])
    assert await asked_by(plane.contacts)(asked) == tuple(found.values())


async def test_another_pod_s_executor_is_not_believed(plane, serving):
    with pytest.raises(Unreachable, match="cannot list the services of"):
        await plane.contacts.services(whom(serving, pod_uid="another"))


async def test_being_asked_all_the_time_keeps_no_sandbox_from_being_idle(plane, starting, host):
    async with starting(session=None, port=True, signed=False, services=TEMPLATE[:1]) as made:
        await met(plane, made, host)
        await plane.contacts.open(whom(made), idle_timeout=5.0)
        times = 0

        async def ask() -> None:
            nonlocal times
            while True:
                await plane.contacts.services(whom(made))
                times += 1

        asking = asyncio.create_task(ask())
        assert (await made.exit()).code == 41
        assert times
        with pytest.raises(ContactError):
            await asking


class Lister(Liar, ServiceManagerServiceServicer):
    """Answers with this many services that listen on so many ports, or not at all."""

    services, ports, silent = 1, 1, False

    async def List(self, request, context):  # noqa: N802 - the API's name
        self.tokens.append(dict(context.invocation_metadata())["authorization"])
        if self.silent:
            await asyncio.sleep(60)
        found = [
            service_pb2.Service(name=f"s{number}", state=4, from_template=True, ports=range(1, self.ports + 1))
            for number in range(self.services)
        ]
        return service_pb2.ServiceManagerServiceListResponse(services=found)


@pytest_asyncio.fixture(loop_scope="session")
async def lister(plane):
    """One that is known already, and where it is."""
    made, server = Lister("uid-1"), grpc.aio.server()
    add_SessionServiceServicer_to_server(made, server)
    add_IdentityServiceServicer_to_server(made, server)
    add_ServiceManagerServiceServicer_to_server(made, server)
    port = server.add_secure_port(
        "127.0.0.1:0", grpc.dynamic_ssl_server_credentials(made.configuration(), made.configuration)
    )
    await server.start()
    there = Executor(address=f"127.0.0.1:{port}", pod_uid="uid-1", session_id="ns.one")
    await plane.contacts.contact(there, isolation=Isolation.GVISOR, first=True)
    yield made, there
    await server.stop(0)


async def test_what_it_says_is_cut_to_what_a_status_holds_and_more_than_a_message_is_refused(plane, lister):
    made, there = lister
    made.services, made.ports = 64, 1000
    found = await plane.contacts.services(there)
    assert (len(found), {len(one.ports) for one in found}) == (16, {16})
    made.ports = 20_000
    with pytest.raises(Unreachable, match="larger than max"):
        await plane.contacts.services(there)


async def test_it_is_asked_with_a_token_for_that_alone(plane, lister):
    made, there = lister
    await plane.contacts.services(there)
    claims = jwt.decode(made.tokens[-1].removeprefix("Bearer "), options={"verify_signature": False})
    assert (claims["scope"], claims["aud"], claims["sub"]) == ("process", "uid-1", "operator")
    assert claims["exp"] - claims["iat"] <= 61


async def test_a_silent_executor_is_given_up(plane, lister):
    made, there = lister
    made.silent = True
    with pytest.raises(Unreachable, match=r"no answer for 0\.5 s"):
        await Contacts(plane, time.time, deadline=0.5).services(there)
