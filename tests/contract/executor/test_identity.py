"""The executor's TLS identity over loopback: signed at first contact, kept over restarts, never anybody else's."""

import asyncio
import datetime as dt
import socket
import ssl

import grpc
import pytest
import pytest_asyncio
from contract.executor.harness import PATIENCE, ExecutorUnderTest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from sandfleet.transport import open_channel
from sandfleet_api.executor.v1 import (
    identity_pb2,
    identity_pb2_grpc,
    interpreter_pb2,
    interpreter_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")
PEM = serialization.Encoding.PEM


class Authority:
    """A CA as the fleet has one."""

    def __init__(self):
        self.key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a fleet")])
        self.root = self._sign(name, name, self.key.public_key(), x509.BasicConstraints(ca=True, path_length=0))
        self.pem = self.root.public_bytes(PEM)

    def answer(self, request_pem, name=None, key=None):
        """A certificate for a signing request; `name` and `key` make it a wrong one."""
        request = x509.load_pem_x509_csr(request_pem)
        names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        if name:
            names = x509.SubjectAlternativeName([x509.DNSName(name)])
        signed = self._sign(request.subject, self.root.subject, key or request.public_key(), names)
        return signed.public_bytes(PEM)

    def _sign(self, subject, issuer, key, extension):
        now = dt.datetime.now(dt.UTC)
        builder = x509.CertificateBuilder(issuer, subject, key, x509.random_serial_number())
        builder = builder.not_valid_before(now - dt.timedelta(minutes=1)).not_valid_after(now + dt.timedelta(days=1))
        return builder.add_extension(extension, critical=False).sign(self.key, hashes.SHA256())


@pytest_asyncio.fixture(loop_scope="session")
async def listening(host):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    executor = await ExecutorUnderTest.start(host, session=None, socket=None, listen=address)
    yield executor
    await executor.stop()


async def presented(executor):
    """The certificate that the port shows now."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    hostname, port = executor.config["listen"].split(":")
    _, writer = await asyncio.open_connection(hostname, int(port), ssl=context)
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return x509.load_der_x509_certificate(der).public_bytes(PEM)


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


async def test_a_restart_keeps_the_signed_identity(host, listening):
    authority = Authority()
    own, answer = await request_of(listening)
    certificate = authority.answer(answer.signing_request_pem)
    await identity(
        listening, own, "InstallCertificate", identity_pb2.InstallCertificateRequest(certificate_pem=certificate)
    )
    listening.kill()
    await listening.exit()
    host.request(op="start", config=listening.config)

    async def shows_it():
        try:
            return await presented(listening) == certificate
        except ConnectionError:
            return False

    while not await shows_it():
        await asyncio.sleep(0.1)


async def test_user_code_cannot_bind_the_executors_port_or_read_its_key(host):
    """With the pod's network, which user code shares; `network` "none" would hide the port altogether."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    executor = await ExecutorUnderTest.start(host, session=None, socket=None, listen=f"127.0.0.1:{port}", network="pod")
    try:
        code = f"""
import socket
taken = []
for reuse in (0, 1):
    s = socket.socket()
    if reuse:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        s.bind(("127.0.0.1", {port}))
        s.listen()
        taken.append(reuse)
    except OSError:
        pass
taken
"""
        uid = executor.config["sandbox_uid"]
        own = await presented(executor)
        async with open_channel(executor.config["listen"], ca=own, name=uid) as channel:
            stream = interpreter_pb2_grpc.InterpreterServiceStub(channel).Execute(
                interpreter_pb2.ExecuteRequest(execution_id="1", code=code),
                metadata=(("authorization", f"Bearer {executor.token()}"),),
            )
            results = [e.result.parts[0].data async for said in stream for e in said.events if e.HasField("result")]
        assert results == [b"[]"]
    finally:
        await executor.stop()


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
