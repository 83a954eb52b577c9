"""The executor's TLS identity over loopback: signed at first contact, kept over restarts, never anybody else's."""

import asyncio
import socket

import grpc
import pytest
import pytest_asyncio
from contract.executor.authority import Authority
from contract.executor.harness import PATIENCE, presented, until
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from sandfleet._wire.link import open_channel
from sandfleet_api.executor.v1 import (
    identity_pb2,
    identity_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")
PEM = serialization.Encoding.PEM


@pytest_asyncio.fixture(loop_scope="session")
async def listening(starting):
    """An executor with a port and without a signed certificate."""
    async with starting(session=None, port=True, signed=False, restarts=True) as executor:
        yield executor


async def call(executor, ca, stub, method, request, **claims):
    uid = executor.config["sandbox_uid"]
    async with open_channel(executor.config["listen"], ca=ca, name=uid) as channel:
        metadata = (("authorization", f"Bearer {executor.token(**claims)}"),)
        return await getattr(stub(channel), method)(request, metadata=metadata, timeout=PATIENCE)


async def identity(executor, ca, method, request, **claims):
    return await call(executor, ca, identity_pb2_grpc.IdentityServiceStub, method, request, **claims)


async def request_of(executor):
    own = await presented(executor)
    answer = await identity(executor, own, "GetSigningRequest", identity_pb2.GetSigningRequestRequest())
    return own, answer


async def test_after_the_first_contact_the_fleets_ca_is_enough_and_the_own_certificate_is_gone(listening):
    authority = Authority()
    own, answer = await request_of(listening)
    assert not answer.signed
    certificate = authority.answer(answer.signing_request_pem)
    await identity(
        listening, own, "InstallCertificate", identity_pb2.InstallCertificateRequest(certificate_pem=certificate)
    )
    describe = session_pb2.DescribeRequest()
    told = await call(listening, authority.pem, session_pb2_grpc.SessionServiceStub, "Describe", describe)
    assert told.sandbox_uid == listening.config["sandbox_uid"]
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call(listening, own, session_pb2_grpc.SessionServiceStub, "Describe", describe)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_before_the_first_contact_the_fleets_ca_does_not_vouch_for_it(listening):
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call(
            listening, Authority().pem, session_pb2_grpc.SessionServiceStub, "Describe", session_pb2.DescribeRequest()
        )
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    "wrong", [{"name": "another-sandbox"}, {"key": ec.generate_private_key(ec.SECP256R1()).public_key()}]
)
async def test_a_certificate_for_another_name_or_key_is_refused(listening, wrong):
    own, answer = await request_of(listening)
    certificate = Authority().answer(answer.signing_request_pem, **wrong)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await identity(
            listening, own, "InstallCertificate", identity_pb2.InstallCertificateRequest(certificate_pem=certificate)
        )
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert await presented(listening) == own


async def test_the_identity_needs_the_admin_scope(listening):
    own = await presented(listening)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await identity(
            listening,
            own,
            "GetSigningRequest",
            identity_pb2.GetSigningRequestRequest(),
            scope="interpreter process filesystem session",
        )
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_a_restart_keeps_the_signed_identity(listening):
    certificate = await Authority().sign(listening)
    listening.kill()
    await listening.back()
    assert await presented(listening) == certificate


BIND = """
import os, socket, time
until, taken, refused = time.monotonic() + {seconds}, [], 0
while True:
    for reuse in (0, 1):
        for address in ("127.0.0.1", "{address}", "0.0.0.0"):
            s = socket.socket()
            if reuse:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            try:
                s.bind((address, {port}))
                s.listen()
                taken.append(reuse)
            except OSError:
                refused += 1
    if time.monotonic() >= until:
        break
print(taken, refused > 5)
"""


@pytest.mark.attack("binds the executor's port", "refused", control="in it")
async def test_user_code_cannot_bind_the_executors_port(starting):
    """With the pod's network, which user code shares; `network` "none" would hide the port altogether."""
    async with starting(port=True, network="pod") as executor:
        address, port = executor.config["listen"].split(":")
        code = BIND.format(seconds=0, address=address, port=port)
        assert (await executor.sandbox.run_code(code)).logs.stdout == "[] True\n"
        control = await executor.sandbox.run_code(BIND.format(seconds=0, address=address, port=50999))
        assert control.logs.stdout != "[] True\n"


async def has_begun(sandbox):
    return any(one.name == "bind.log" for one in await sandbox.files.list())


@pytest.mark.attack("binds the executor's port after a restart", "refused")
async def test_nor_right_after_a_restart_in_place(starting):
    """User code would have to outlive the executor: no process does, and the port is bound first."""
    async with starting(port=True, network="pod", restarts=True) as executor:
        certificate = await presented(executor)
        address, port = executor.config["listen"].split(":")
        await executor.sandbox.files.write("bind.py", BIND.format(seconds=30, address=address, port=port))
        left = "setsid nohup python3 bind.py > bind.log 2>&1 < /dev/null & sleep 0.5"
        waiting = asyncio.create_task(executor.sandbox.commands.run(f"{left}; sleep 100", timeout=60))
        await until(lambda: has_begun(executor.sandbox))
        executor.kill()
        await executor.back()
        await waiting
        # The process that answers now has the executor's key.
        assert await presented(executor) == certificate
        await executor.open("session")
        assert (await executor.sandbox.run_code("1 + 1")).text == "2"
        assert (await executor.sandbox.commands.run("pgrep -f bind.py")).stdout == ""
        assert (await executor.sandbox.files.read("bind.log")) == ""


@pytest.mark.control("binds the executor's port", "binds the executor's port after a restart")
async def test_the_control_two_servers_that_both_reuse_the_port_can_share_it():
    """What the executor's `grpc.so_reuseport=0` prevents."""
    first, second = socket.socket(), socket.socket()
    with first, second:
        for each in (first, second):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        first.bind(("127.0.0.1", 0))
        first.listen()
        second.bind(first.getsockname())
        second.listen()
