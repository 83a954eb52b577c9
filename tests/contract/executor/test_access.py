"""Who may call: capability tokens, over the wire."""

import time

import grpc
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sandfleet.errors import AccessDenied, AuthenticationError
from sandfleet_api.executor.v1 import (
    common_pb2,
    filesystem_pb2,
    filesystem_pb2_grpc,
    interpreter_pb2,
    interpreter_pb2_grpc,
    port_pb2,
    port_pb2_grpc,
    process_pb2,
    process_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")

# One call of each service, as a client makes it.
CALLS = {
    "interpreter": lambda sandbox: sandbox.run_code("open('/workspace/broken-in', 'w')"),
    "process": lambda sandbox: sandbox.commands.run("touch /workspace/broken-in"),
    "filesystem": lambda sandbox: sandbox.files.make_dir("broken-in"),
    "session": lambda sandbox: sandbox.usage(),
}
FOREIGN = {
    "signed by another key": lambda executor: executor.token(key=Ed25519PrivateKey.generate()),
    "expired": lambda executor: executor.token(exp=int(time.time()) - 60),
    "not valid yet": lambda executor: executor.token(nbf=int(time.time()) + 3600),
    "of another sandbox": lambda executor: executor.token(aud="another"),
    "of another issuer": lambda executor: executor.token(iss="a-stranger"),
    "of another contract": lambda executor: executor.token(contract="brokered"),
    "without an expiry": lambda executor: executor.token(exp=None),
    "without an audience": lambda executor: executor.token(aud=None),
    "no token at all": lambda executor: "nonsense",
    "an empty one": lambda executor: "",
    "cut": lambda executor: executor.token()[:-5],
    "unsigned": lambda executor: "eyJhbGciOiJub25lIiwia2lkIjoiayJ9." + executor.token().split(".")[1] + ".",
}
ALL_METHODS = [
    (stub, method, getattr(module, f"{method}Request", None) or getattr(module, f"{service}{method}Request"))
    for stub, module, service in (
        (interpreter_pb2_grpc.InterpreterServiceStub, interpreter_pb2, "InterpreterService"),
        (process_pb2_grpc.ProcessServiceStub, process_pb2, "ProcessService"),
        (filesystem_pb2_grpc.FilesystemServiceStub, filesystem_pb2, "FilesystemService"),
        (session_pb2_grpc.SessionServiceStub, session_pb2, "SessionService"),
        (port_pb2_grpc.PortServiceStub, port_pb2, "PortService"),
    )
    for method in module.DESCRIPTOR.services_by_name[service].methods_by_name
]


@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize("service", CALLS)
@pytest.mark.attack("calls with a token that is not good", "refused")
async def test_a_token_that_is_not_good_opens_nothing(executor, sandbox, kind, service):
    with pytest.raises(AuthenticationError, match=r"^cannot "):
        await CALLS[service](executor.client(token=FOREIGN[kind](executor)))
    assert not await sandbox.files.exists("broken-in")


@pytest.mark.parametrize("service", CALLS)
@pytest.mark.control("calls with a token that is not good")
async def test_a_good_token_opens_what_it_is_for(executor, sandbox, service):
    await CALLS[service](executor.client(token=executor.token()))
    if await sandbox.files.exists("broken-in"):
        await sandbox.files.remove("broken-in", recursive=True)


async def test_a_write_that_is_refused_while_it_is_sent_says_the_same(executor, sandbox):
    denied = executor.client(token=executor.token(aud="another"))
    for _ in range(20):
        with pytest.raises(AuthenticationError, match="another sandbox"):
            await denied.files.write("broken-in", b"x" * (4 << 20))
    assert not await sandbox.files.exists("broken-in")


@pytest.mark.parametrize("service", CALLS)
@pytest.mark.attack("calls beyond the scopes of its token", "refused", control="in it")
async def test_a_token_opens_the_service_of_its_scope_alone(executor, sandbox, service):
    narrow = executor.client(token=executor.token(scope=service))
    for other, call in CALLS.items():
        if other == service:
            # Control: what it is for it opens.
            await call(narrow)
            continue
        with pytest.raises(AccessDenied, match=f"lacks the scope {other}"):
            await call(narrow)
    if await sandbox.files.exists("broken-in"):
        await sandbox.files.remove("broken-in", recursive=True)


@pytest.mark.parametrize(
    ("stub", "method", "request_type"), ALL_METHODS, ids=[f"{s.__name__[:-4]}.{m}" for s, m, _ in ALL_METHODS]
)
@pytest.mark.attack("calls without a token", "refused", control="in it")
async def test_no_method_answers_without_a_token(executor, stub, method, request_type):
    async with executor.channel() as channel:
        call = getattr(stub(channel), method)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await _first_answer(call, request_type(), ())
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert _detail(refused.value).reason == "TokenMissing"
        # Control: with one it gets as far as its request.
        with_token = (("authorization", f"Bearer {executor.token(scope='other')}"),)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await _first_answer(call, request_type(), with_token)
        assert (refused.value.code(), _detail(refused.value).reason) == (
            grpc.StatusCode.PERMISSION_DENIED,
            "ScopeMissing",
        )


@pytest.mark.parametrize("method", ["Open", "Close"])
@pytest.mark.attack("opens and closes sessions without the right", "refused")
async def test_only_an_admin_opens_and_closes_the_session(executor, method):
    metadata = (("authorization", f"Bearer {executor.token(scope='interpreter process filesystem session')}"),)
    async with executor.channel() as channel:
        call = getattr(session_pb2_grpc.SessionServiceStub(channel), method)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(getattr(session_pb2, f"{method}Request")(), metadata=metadata)
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert not executor.ended


@pytest.mark.control("opens and closes sessions without the right")
async def test_control_an_admin_does(starting):
    async with starting(session=None) as executor:
        await executor.open("session")
        await executor.close_session()


@pytest.mark.smoke
async def test_two_tokens_in_one_call_are_refused(executor):
    metadata = tuple(("authorization", f"Bearer {executor.token()}") for _ in range(2))
    async with executor.channel() as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await session_pb2_grpc.SessionServiceStub(channel).Usage(session_pb2.UsageRequest(), metadata=metadata)
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.smoke
async def test_a_method_that_does_not_exist_is_denied_like_any_other(executor):
    async with executor.channel() as channel:
        call = channel.unary_unary("/sandfleet_api.executor.v1.SessionService/Nothing")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(b"")
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        call = channel.unary_unary("/unknown.Service/Method")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(b"", metadata=(("authorization", f"Bearer {executor.token()}"),))
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.attack("sends bytes that are no message", "an error, and no end", control="in it")
async def test_a_message_that_is_no_message_is_an_error_and_no_end(executor, sandbox):
    metadata = (("authorization", f"Bearer {executor.token()}"),)
    async with executor.channel() as channel:
        call = channel.unary_stream("/sandfleet_api.executor.v1.InterpreterService/Execute")
        with pytest.raises(grpc.aio.AioRpcError):
            await _first_answer(call, b"\xff" * 100, metadata)
        # Control: those that are one get an answer.
        message = interpreter_pb2.ExecuteRequest(execution_id="as-bytes", code="1").SerializeToString()
        assert await _first_answer(call, message, metadata)
    assert (await sandbox.run_code("1")).text == "1"


async def _first_answer(call, request, metadata):
    # Only Write and Tunnel take a stream.
    made = (
        call(iter([request]), metadata=metadata)
        if "Stream" in type(call).__name__[:6]
        else call(request, metadata=metadata)
    )
    return await made.read() if hasattr(made, "read") else await made


def _detail(error):
    raw = dict(error.trailing_metadata())["sandfleet-error-bin"]
    return common_pb2.ErrorDetail.FromString(raw)
