"""Calls of the fleet to executors, and untrue answers."""

import asyncio
from dataclasses import replace

import grpc
import jwt
import pytest
from google.protobuf.duration_pb2 import Duration
from sandfleet_api.executor.v1 import session_pb2 as pb
from sandfleet_api.executor.v1.session_pb2_grpc import SessionServiceServicer, add_SessionServiceServicer_to_server
from sandfleet_operator.api.errors import Code, FleetError
from sandfleet_operator.api.limits import Limits
from sandfleet_operator.api.values import State
from sandfleet_operator.cluster.clock import wall_clock
from sandfleet_operator.executors.client import Executors
from sandfleet_operator.executors.tokens import FileSigner
from support.fleet.builders import a_claim, a_sandbox

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SESSION = a_sandbox(
    State.CLAIMED,
    claim=a_claim(
        envs={"A": "b"}, idle_timeout=1.5, limits=Limits(processes=7, max_timeout=2.5), traceparent=TRACEPARENT
    ),
)


class Liar(SessionServiceServicer):
    """An executor that gives a prepared answer and records its requests."""

    def __init__(self):
        self.answer = pb.DescribeResponse(sandbox_uid="u1", isolation=pb.ISOLATION_NAMESPACE)
        self.asked, self.metadata = None, {}
        self.hangs, self.refuses = False, None
        self.called = asyncio.Event()

    async def Describe(self, request, context):  # noqa: N802 - gRPC's name
        self.metadata = dict(context.invocation_metadata())
        self.called.set()
        if self.hangs:
            await asyncio.sleep(30)
        return self.answer

    async def Open(self, request, context):  # noqa: N802 - gRPC's name
        self.asked, self.metadata = request, dict(context.invocation_metadata())
        if self.refuses:
            await context.abort(self.refuses, "no such limit")
        return pb.OpenResponse(description=self.answer)


@pytest.fixture
async def liar(tmp_path):
    servicer, server = Liar(), grpc.aio.server()
    add_SessionServiceServicer_to_server(servicer, server)
    server.add_insecure_port(f"unix:{tmp_path}/x")
    await server.start()
    yield servicer
    await server.stop(0)


@pytest.fixture
async def executors(tmp_path):
    made = Executors(FileSigner(tmp_path / "keys.json", wall_clock))
    yield made
    await made.forget_all()


@pytest.fixture
def address(tmp_path):
    return f"unix:{tmp_path}/x"


async def test_a_matching_executor_is_accepted(executors, liar, address):
    await executors.connect(SESSION, address)
    assert await executors.answers(SESSION)
    assert executors.address(SESSION) == address


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"sandbox_uid": "other"}, "it is 'other', not 'u1'"),
        ({"isolation": pb.ISOLATION_NONE}, "it isolates with 1"),
        ({"isolation": pb.ISOLATION_UNSPECIFIED}, "it isolates with 0"),
        ({"session_id": "another"}, "it serves session 'another'"),
    ],
)
async def test_a_mismatching_executor_is_refused(executors, liar, address, answer, why):
    for name, value in answer.items():
        setattr(liar.answer, name, value)
    with pytest.raises(FleetError, match=why) as caught:
        await executors.connect(SESSION, address)
    assert caught.value.problem.reason == "SandboxUnfit"


async def test_an_executor_of_another_session_is_not_handed_out(executors, liar, address):
    await executors.connect(SESSION, address)
    liar.answer.session_id = "another"
    with pytest.raises(FleetError, match="it serves session 'another', not 's1'"):
        await executors.open(SESSION, 10)


async def test_open_passes_the_claim_on_with_a_short_fleet_token(executors, liar, address):
    await executors.connect(SESSION, address)
    liar.answer.session_id = "s1"
    await executors.open(SESSION, 12.25)
    asked = liar.asked
    assert (asked.session_id, dict(asked.envs)) == ("s1", {"A": "b"})
    assert (asked.lease, asked.idle_timeout) == (
        Duration(seconds=12, nanos=250_000_000),
        Duration(seconds=1, nanos=500_000_000),
    )
    assert (asked.limits.processes, asked.limits.max_timeout) == (7, Duration(seconds=2, nanos=500_000_000))
    assert not asked.limits.HasField("default_timeout")
    assert liar.metadata["traceparent"] == TRACEPARENT
    claims = jwt.decode(liar.metadata["authorization"].removeprefix("Bearer "), options={"verify_signature": False})
    assert (claims["aud"], claims["sid"], claims["scope"], claims["sub"]) == (
        "u1",
        "s1",
        "session admin review",
        "fleet",
    )
    assert claims["exp"] - claims["iat"] <= 62


async def test_tokens_repeat_the_contract_of_the_sandbox(executors):
    made = executors.caller_token(replace(SESSION, contract="brokered"), 100.0)
    assert jwt.decode(made.text, options={"verify_signature": False})["contract"] == "brokered"


async def test_a_callers_token_cannot_open_or_close(executors, liar, address):
    token = executors.caller_token(SESSION, 100.0)
    claims = jwt.decode(token.text, options={"verify_signature": False})
    assert claims["scope"].split() == ["interpreter", "process", "filesystem", "session", "ports", "tools"]
    assert claims["sub"] == "uid:1000"


@pytest.mark.parametrize(
    ("status", "code"),
    [(grpc.StatusCode.INVALID_ARGUMENT, Code.INVALID_ARGUMENT), (grpc.StatusCode.FAILED_PRECONDITION, Code.INTERNAL)],
)
async def test_a_refused_open_says_why(executors, liar, address, status, code):
    await executors.connect(SESSION, address)
    liar.refuses = status
    with pytest.raises(FleetError, match="cannot open the sandbox: no such limit") as caught:
        await executors.open(SESSION, 10)
    assert caught.value.problem.code is code


async def test_a_closed_port_is_a_typed_failure(executors, tmp_path):
    with pytest.raises(FleetError) as caught:
        await executors.connect(SESSION, f"unix:{tmp_path}/missing")
    assert caught.value.problem.code is Code.UNAVAILABLE


async def test_an_executor_that_ends_during_a_call_does_not_cancel_the_caller(executors, liar, address):
    await executors.connect(SESSION, address)
    liar.hangs = True
    liar.called.clear()
    asking = asyncio.create_task(executors.answers(SESSION))
    await liar.called.wait()
    await executors.forget("u1")
    assert await asking is False
    with pytest.raises(FleetError, match="its executor is gone"):
        await executors.open(SESSION, 10)


async def test_a_caller_that_is_cancelled_stays_cancelled(executors, liar, address):
    await executors.connect(SESSION, address)
    liar.hangs = True
    liar.called.clear()
    asking = asyncio.create_task(executors.answers(SESSION))
    await liar.called.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
