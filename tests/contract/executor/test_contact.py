"""The control plane's first contact with the real executor over TLS, and with what only says that it is one."""

import asyncio
import dataclasses
import datetime as dt
import time

import grpc
import jwt
import pytest
import pytest_asyncio
from contract.executor.harness import presented
from contract.executor.plane import Plane, isolation, whom
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID
from sandfleet_api.executor.v1 import identity_pb2, session_pb2
from sandfleet_api.executor.v1.identity_pb2_grpc import IdentityServiceServicer, add_IdentityServiceServicer_to_server
from sandfleet_api.executor.v1.session_pb2_grpc import SessionServiceServicer, add_SessionServiceServicer_to_server
from sandfleet_operator.api.values import Isolation
from sandfleet_operator.executors.contact import (
    ContactError,
    Contacts,
    Executor,
    IdentityInvalid,
    RuntimeMismatch,
    Unreachable,
)
from sandfleet_operator.plan.pods.egress_probe import Target
from sandfleet_operator.plan.witness import is_well_formed

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture
def plane(host):
    return Plane(host.key)


@pytest_asyncio.fixture(loop_scope="session")
async def fresh(starting):
    """An executor before its first contact."""
    async with starting(session=None, port=True, signed=False, restarts=True) as executor:
        yield executor


async def met(plane, executor, host):
    return await plane.contacts.contact(whom(executor), isolation=isolation(host), first=True)


async def test_the_first_contact_signs_it_and_says_what_it_is(plane, fresh, host):
    found = await met(plane, fresh, host)
    assert (found.isolation, found.session_id) == (isolation(host), "")
    assert found.runtime == ("linux" if found.isolation is Isolation.NAMESPACE else "gvisor")
    assert found.kernel
    shown = x509.load_pem_x509_certificate(await presented(fresh))
    assert plane.authority.vouches(shown, fresh.config["sandbox_uid"], time.time())


async def test_a_contact_says_which_modules_are_not_loaded_ahead(plane, starting, host):
    async with starting(session=None, port=True, signed=False, preload=["wave", "nowhere"]) as executor:
        found = await met(plane, executor, host)
        assert found.not_preloaded == "cannot preload nowhere (ModuleNotFoundError: No module named 'nowhere')"


@pytest.mark.control("answers with a foreign certificate")
async def test_a_later_contact_finds_it_signed_and_changes_nothing(plane, fresh, host):
    await met(plane, fresh, host)
    shown = await presented(fresh)
    for first in (False, True):
        await plane.contacts.contact(whom(fresh), isolation=isolation(host), first=first)
    assert await presented(fresh) == shown


async def test_without_a_certificate_of_ours_it_is_refused_when_user_code_may_have_run(plane, fresh):
    shown = await presented(fresh)
    with pytest.raises(IdentityInvalid, match="user code may have run"):
        await plane.contacts.contact(whom(fresh), isolation=Isolation.NAMESPACE, first=False)
    assert await presented(fresh) == shown


@pytest.mark.attack("answers as the executor of another pod", "refused", control="in it")
async def test_the_executor_of_another_pod_is_refused_before_and_after_it_was_signed(plane, fresh, host):
    stranger = whom(fresh, pod_uid="another")
    for why in ("not its own one for pod uid another", "another pod's"):
        with pytest.raises(IdentityInvalid, match=why):
            await plane.contacts.contact(stranger, isolation=Isolation.NAMESPACE, first=True)
        await met(plane, fresh, host)


@pytest.mark.attack("answers with a foreign certificate", "refused")
async def test_an_executor_that_another_control_plane_has_signed_is_refused(plane, fresh, host):
    await met(Plane(host.key), fresh, host)
    for first in (True, False):
        with pytest.raises(IdentityInvalid):
            await plane.contacts.contact(whom(fresh), isolation=Isolation.NAMESPACE, first=first)


async def test_a_token_key_that_it_does_not_know_yet_is_no_fault_of_its_identity(plane, fresh, host):
    with pytest.raises(Unreachable, match="introduce"):
        await met(Plane(Ed25519PrivateKey.generate()), fresh, host)
    await met(plane, fresh, host)


@pytest.mark.needs("unix socket")
async def test_less_isolation_than_was_asked_for_is_a_mismatch_that_says_what_it_is(plane, fresh):
    with pytest.raises(RuntimeMismatch, match="it runs in linux, asked for was gvisor") as caught:
        await plane.contacts.contact(whom(fresh), isolation=Isolation.GVISOR, first=True)
    assert caught.value.runtime == "linux"


async def test_a_port_where_nothing_listens_is_unreachable(plane, fresh):
    for address in ("127.0.0.1:1", "no.such.name.invalid:1", "127.0.0.1:x", ""):
        with pytest.raises(Unreachable, match="cannot reach the executor"):
            await plane.contacts.contact(whom(fresh, address=address), isolation=Isolation.NAMESPACE, first=True)


async def test_the_session_is_opened_and_opening_it_again_renews_it(plane, fresh, host):
    await met(plane, fresh, host)
    for lease in (60.0, 90.0, None):
        opened = await plane.contacts.open(whom(fresh), lease=lease, idle_timeout=30.0)
        assert opened.session_id == "ns.one"
        found = await plane.contacts.contact(whom(fresh), isolation=isolation(host), first=False)
        assert found.session_id == "ns.one"
        # The next leader asks for what is left of the lease.
        assert found.lease_left is None if lease is None else 0 < found.lease_left <= lease
    with pytest.raises(IdentityInvalid, match="belongs to another one"):
        await plane.contacts.open(whom(fresh, session_id="ns.two"))


async def test_the_head_of_a_pods_journal_is_read_by_who_has_its_certificate(plane, fresh, host):
    await met(plane, fresh, host)
    before = await plane.contacts.journal_head(whom(fresh))
    await plane.contacts.open(whom(fresh), lease=60.0, idle_timeout=30.0)
    after = await plane.contacts.journal_head(whom(fresh))
    assert (before.number, after.number) == (0, 1)
    assert is_well_formed(before) and is_well_formed(after)
    with pytest.raises(ContactError):
        await plane.contacts.journal_head(whom(fresh, pod_uid="another"))


async def test_a_longer_lease_than_an_executor_takes_is_cut(plane, fresh, host):
    await met(plane, fresh, host)
    await plane.contacts.open(whom(fresh), lease=400 * 86400.0, idle_timeout=400 * 86400.0)


async def test_a_session_is_not_opened_with_an_executor_that_is_not_signed(plane, fresh):
    with pytest.raises(Unreachable):
        await plane.contacts.open(whom(fresh))


async def test_a_restart_in_place_is_known_again_without_a_first_contact(plane, fresh, host):
    await met(plane, fresh, host)
    fresh.kill()
    await fresh.back()
    await plane.contacts.contact(whom(fresh), isolation=isolation(host), first=False)


async def test_it_is_asked_what_its_network_reaches(plane, starting, host):
    async with starting(session=None, port=True, signed=False, network="pod") as one:
        own = Target("127.0.0.1", int(one.config["listen"].rpartition(":")[2]))
        with pytest.raises(Unreachable):
            # Not before it is known who answers.
            await plane.contacts.probe(whom(one), [own])
        await met(plane, one, host)
        found = await plane.contacts.probe(whom(one), [own, Target("255.255.255.255", 80)])
        assert found == (True, False)


@pytest.mark.needs("own network")
async def test_an_executor_that_cannot_tell_says_why(plane, fresh, host):
    await met(plane, fresh, host)
    with pytest.raises(ContactError, match=r"cannot probe the network with .* a network of its own"):
        await plane.contacts.probe(whom(fresh), [Target("127.0.0.1", 80)])


# What only says that it is an executor.


@dataclasses.dataclass
class Liar(SessionServiceServicer, IdentityServiceServicer):
    """Answers as it is told, behind a certificate of its own, and takes the one that it gets."""

    name: str
    asks: object = None
    said: dict = dataclasses.field(default_factory=dict)
    refusal: grpc.StatusCode | None = None
    # So many targets, whatever was asked.
    reached: int = 0

    def __post_init__(self):
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.tokens = []
        self.installed = 0
        self.certificate = self.own()

    def own(self):
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self.name)])
        now = dt.datetime.now(dt.UTC)
        builder = x509.CertificateBuilder(subject, subject, self.key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now - dt.timedelta(1)).not_valid_after(now + dt.timedelta(1))
        return pem(builder.add_extension(named(self.name), critical=False).sign(self.key, hashes.SHA256()))

    def request(self, *extensions):
        builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
        for one in extensions or (named(self.name),):
            builder = builder.add_extension(one, critical=False)
        return pem(builder.sign(self.key, hashes.SHA256()))

    async def GetSigningRequest(self, request, context):  # noqa: N802 - the API's name
        self.tokens.append(dict(context.invocation_metadata())["authorization"])
        if self.refusal:
            await context.abort(self.refusal, "x" * 5000)
        asked = self.request() if self.asks is None else self.asks(self)
        return identity_pb2.GetSigningRequestResponse(signing_request_pem=asked)

    async def ProbeEgress(self, request, context):  # noqa: N802 - the API's name
        self.tokens.append(dict(context.invocation_metadata())["authorization"])
        return session_pb2.ProbeEgressResponse(reached=[True] * self.reached)

    async def InstallCertificate(self, request, context):  # noqa: N802 - the API's name
        self.certificate = request.certificate_pem
        self.installed += 1
        return identity_pb2.InstallCertificateResponse()

    async def Describe(self, request, context):  # noqa: N802 - the API's name
        if self.said.get("silent"):
            await asyncio.sleep(60)
        good = {"sandbox_uid": self.name, "isolation": session_pb2.ISOLATION_GVISOR}
        return session_pb2.DescribeResponse(**(good | self.said))

    def configuration(self):
        key = self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return grpc.ssl_server_certificate_configuration([(key, self.certificate)])


def pem(thing):
    return thing.public_bytes(serialization.Encoding.PEM)


def named(*names):
    return x509.SubjectAlternativeName([x509.DNSName(name) for name in names])


@pytest_asyncio.fixture(loop_scope="session")
async def lying():
    servers = []

    async def start(**lies):
        liar, server = Liar("uid-1", **lies), grpc.aio.server()
        add_SessionServiceServicer_to_server(liar, server)
        add_IdentityServiceServicer_to_server(liar, server)
        shown = grpc.dynamic_ssl_server_credentials(liar.configuration(), liar.configuration)
        port = server.add_secure_port("127.0.0.1:0", shown)
        await server.start()
        servers.append(server)
        return liar, Executor(address=f"127.0.0.1:{port}", pod_uid="uid-1", session_id="ns.one")

    yield start
    for server in servers:
        await server.stop(0)


@pytest.mark.control("lies about itself as an executor")
async def test_the_liar_that_tells_the_truth_is_believed(plane, lying):
    liar, there = await lying()
    found = await plane.contacts.contact(there, isolation=Isolation.GVISOR, first=True)
    assert (found.runtime, liar.installed) == ("gvisor", 1)


REQUESTS = {
    "another name": lambda liar: liar.request(named("uid-2")),
    "the fleet's name beside its own": lambda liar: liar.request(named("uid-1", "sandfleet-fleet")),
    "to be an authority": lambda liar: liar.request(named("uid-1"), x509.BasicConstraints(ca=True, path_length=None)),
    "nothing": lambda _liar: b"",
    "garbage": lambda _liar: b"\xff" * 1000,
    "much": lambda liar: liar.request() + b" " * 20_000,
}


@pytest.mark.parametrize("what", REQUESTS)
async def test_a_caller_of_another_certificate_gets_no_certificate(plane, lying, what):
    liar, there = await lying(asks=REQUESTS[what])
    with pytest.raises(IdentityInvalid, match="cannot sign the request"):
        await plane.contacts.contact(there, isolation=Isolation.GVISOR, first=True)
    assert liar.installed == 0


@pytest.mark.parametrize(
    ("said", "raised", "why"),
    [
        ({"sandbox_uid": "uid-2"}, IdentityInvalid, "it says that it is 'uid-2'"),
        ({"sandbox_uid": "x" * 5000}, IdentityInvalid, "it says that it is 'xxx"),
        ({"isolation": session_pb2.ISOLATION_NONE}, RuntimeMismatch, "it runs in none"),
        ({"isolation": session_pb2.ISOLATION_UNSPECIFIED}, RuntimeMismatch, "it runs in none"),
        ({"isolation": 77}, RuntimeMismatch, "it runs in none"),
        ({"kernel": "x" * (1 << 20)}, Unreachable, "larger than max"),
    ],
)
@pytest.mark.attack("lies about itself as an executor", "refused")
async def test_a_lie_about_itself_is_found_and_its_message_is_bounded(plane, lying, said, raised, why):
    _, there = await lying(said=said)
    with pytest.raises(raised, match=why) as caught:
        await plane.contacts.contact(there, isolation=Isolation.GVISOR, first=True)
    assert len(str(caught.value)) < 500


async def test_long_words_are_cut(plane, lying):
    _, there = await lying(said={"kernel": "k" * 5000, "session_id": "s" * 5000, "executor_version": "v" * 5000})
    found = await plane.contacts.contact(there, isolation=Isolation.GVISOR, first=True)
    assert (len(found.kernel), len(found.session_id), len(found.executor_version)) == (256, 256, 256)


async def test_what_it_says_of_its_network_is_bounded_and_asked_with_one_scope(plane, lying):
    liar, there = await lying(reached=3)
    await plane.contacts.contact(there, isolation=Isolation.GVISOR, first=True)
    assert await plane.contacts.probe(there, [Target("192.0.2.1", 80)]) == (True, True, True)
    claims = jwt.decode(liar.tokens[-1].removeprefix("Bearer "), options={"verify_signature": False})
    assert (claims["scope"], claims["aud"]) == ("admin", "uid-1")
    liar.reached = 1 << 20
    with pytest.raises(Unreachable, match="larger than max"):
        await plane.contacts.probe(there, [Target("192.0.2.1", 80)])


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        (grpc.StatusCode.UNAVAILABLE, Unreachable),
        (grpc.StatusCode.INTERNAL, Unreachable),
        (grpc.StatusCode.UNAUTHENTICATED, Unreachable),
        (grpc.StatusCode.PERMISSION_DENIED, IdentityInvalid),
        (grpc.StatusCode.FAILED_PRECONDITION, IdentityInvalid),
    ],
)
async def test_a_refusal_is_typed_and_its_message_is_bounded(plane, lying, code, raised):
    _, there = await lying(refusal=code)
    with pytest.raises(raised) as caught:
        await plane.contacts.contact(there, isolation=Isolation.GVISOR, first=True)
    assert len(str(caught.value)) < 500


async def test_a_silent_executor_is_given_up(plane, lying):
    _, there = await lying(said={"silent": True})
    with pytest.raises(Unreachable):
        await Contacts(plane, time.time, deadline=0.5).contact(there, isolation=Isolation.GVISOR, first=True)


async def test_a_port_that_takes_connections_and_says_nothing_is_given_up(plane):
    async def swallow(_reader, writer):
        await asyncio.sleep(30)
        writer.close()

    server = await asyncio.start_server(swallow, "127.0.0.1", 0)
    there = Executor(address=f"127.0.0.1:{server.sockets[0].getsockname()[1]}", pod_uid="u", session_id="s")
    with pytest.raises(Unreachable, match=r"no answer for 0\.3 s"):
        await Contacts(plane, time.time, deadline=0.3).contact(there, isolation=Isolation.GVISOR, first=True)
    server.close()


async def test_before_it_is_known_it_gets_a_token_that_opens_nothing_but_its_identity(plane, lying):
    liar, there = await lying()
    await plane.contacts.contact(there, isolation=Isolation.GVISOR, first=True)
    claims = jwt.decode(liar.tokens[0].removeprefix("Bearer "), options={"verify_signature": False})
    assert (claims["scope"], claims["aud"], claims["sid"]) == ("admin", "uid-1", "ns.one")
    assert claims["exp"] - claims["iat"] <= 61
