"""Calls of the control plane to the executor of a pod: identity, runtime, session, egress probes and services.

The peer and its answers are untrusted: times and sizes are bounded, and every value is checked before it is used.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol, TypeVar

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from sandfleet_api.executor.v1 import identity_pb2, journal_pb2, service_pb2, session_pb2
from sandfleet_api.executor.v1.identity_pb2_grpc import IdentityServiceStub
from sandfleet_api.executor.v1.journal_pb2_grpc import JournalServiceStub
from sandfleet_api.executor.v1.service_pb2_grpc import ServiceManagerServiceStub
from sandfleet_api.executor.v1.session_pb2_grpc import SessionServiceStub

from sandfleet_operator.api.conditions import Reason
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.sandbox import ServiceStatus
from sandfleet_operator.api.limits import Limits
from sandfleet_operator.api.values import Isolation
from sandfleet_operator.executors.authority import Authority, RequestRefusedError, self_signed
from sandfleet_operator.executors.client import (
    RESUME_TIMEOUT,
    SUSPEND_TIMEOUT,
    duration,
    error_detail,
    idle_of,
    lease_left,
    limits_message,
    refused_suspension,
)
from sandfleet_operator.executors.service_list import services_of
from sandfleet_operator.executors.tokens import AUTONOMOUS, FLEET_SCOPES, Signer
from sandfleet_operator.executors.usage import reading
from sandfleet_operator.plan.pods.egress_probe import Target
from sandfleet_operator.plan.usage import Reading
from sandfleet_operator.plan.witness import Head

# Seconds for one call with its connection, for a call that is repeated anyway, and until the port shows a certificate.
DEADLINE, POLL_DEADLINE = 10.0, 2.0
TOKEN_LIFETIME = 60.0
HOLDER = "operator"
# An executor whose identity is not yet proved gets a token that only lets it take a certificate.
INTRODUCTION_SCOPES = ("admin",)
PROBE_SCOPES = ("admin",)
LIST_SCOPES = ("process",)
MAX_MESSAGE = 64 << 10
# Size of a list of services: 64 services, some of which listen on thousands of ports.
MAX_LIST = 1 << 20
MAX_TEXT = 256
# Of several sentences.
MAX_PROBLEMS = 1024
MAX_LEASE = 30 * 86400.0
# The values of SandboxStatus.runtime.
RUNTIMES = {Isolation.NONE: "none", Isolation.NAMESPACE: "linux", Isolation.GVISOR: "gvisor"}
T = TypeVar("T")

# Status codes that say nothing about identity: the executor is starting, ending, busy or unreachable.
_LATER = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)


class ContactError(Exception):
    """A call failed. The message is "cannot X: why"; `reason` is the reason in the sandbox's status."""

    reason: ClassVar[Reason] = Reason.EXECUTOR_UNREACHABLE


class Unreachable(ContactError):
    """No executor answers, or not yet: try again."""


class Silent(Unreachable):
    """No answer came in the whole time, not even a refusal."""


class IdentityInvalid(ContactError):
    """The process that answers is not this pod's executor, or cannot prove that it is."""

    reason = Reason.EXECUTOR_IDENTITY_INVALID


class ClaimInvalid(ContactError):
    """The executor refuses the values of the claim; any other executor would, too."""


class RuntimeMismatch(ContactError):
    """The executor isolates less than was asked for; `runtime` is the runtime that it runs in."""

    reason = Reason.RUNTIME_MISMATCH

    def __init__(self, message: str, runtime: str) -> None:
        super().__init__(message)
        self.runtime = runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    """The executor to call. `address` is HOST:PORT; `session_id` is the sandbox's, see plan/pods/names.py."""

    address: str
    pod_uid: str
    session_id: str
    # Of the pod: tokens repeat it.
    contract: str = AUTONOMOUS


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorDescription:
    """How an executor with a proved identity describes itself."""

    runtime: str
    isolation: Isolation
    kernel: str
    # Empty if no session is open.
    session_id: str
    executor_version: str
    # Seconds; None: no lease.
    lease_left: float | None = None
    # Seconds since a caller has worked with it; None: it is in use.
    idle: float | None = None
    # Paths.
    mounts: frozenset[str] = frozenset()
    # The snapshot that a warm one was filled with; empty: none.
    prepared: str = ""
    # Which modules of the template are not loaded ahead, and why; empty where all are.
    not_preloaded: str = ""


class Credentials(Protocol):
    """The part of `executors.signing.Signing` that calls need."""

    @property
    def authority(self) -> Authority: ...
    @property
    def signer(self) -> Signer: ...


class Contacts:
    """Makes the calls. `wall_clock` gives seconds since the epoch, `poll` bounds calls that only look."""

    def __init__(
        self,
        credentials: Credentials,
        wall_clock: Callable[[], float],
        *,
        deadline: float = DEADLINE,
        poll: float = POLL_DEADLINE,
    ) -> None:
        self._credentials = credentials
        self._clock = wall_clock
        self._deadline = deadline
        self._poll = min(poll, deadline)

    async def contact(self, executor: Executor, *, isolation: Isolation, first: bool) -> ExecutorDescription:
        """Verifies the executor's identity and runtime. Raises Unreachable, IdentityInvalid, RuntimeMismatch.

        `first`: no user code can have run in the pod yet. Only then does an executor without a certificate get one,
        because later user code could answer in its place.
        """
        authority = self._credentials.authority
        async with self._bounded(executor, self._deadline if first else self._poll):
            async with self._bounded(executor, self._poll):
                shown = await _shown(executor)
            if not authority.vouches(shown, executor.pod_uid, self._clock()):
                _check_introduction(executor, shown, authority, first=first)
                await self._introduce(executor, shown, authority)
            return await self._described(executor, isolation)

    async def open(
        self,
        executor: Executor,
        *,
        lease: float | None = None,
        idle_timeout: float | None = None,
        envs: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        mounts: Mapping[str, str] | None = None,
        traceparent: str = "",
    ) -> ExecutorDescription:
        """Opens the session on the executor, or renews it.

        Both times are seconds from now and replace the earlier ones; None removes them. A lease above 30 days is cut,
        because no executor takes more; renew it. `envs`, `limits` and `mounts` are added to the pod's.

        Raises Unreachable, IdentityInvalid (also if the executor serves another session), ClaimInvalid.
        """
        request = session_pb2.OpenRequest(
            session_id=executor.session_id,
            lease=None if lease is None else duration(min(lease, MAX_LEASE)),
            idle_timeout=None if idle_timeout is None else duration(min(idle_timeout, MAX_LEASE)),
            envs=envs or {},
            limits=None if limits is None else limits_message(limits),
            mounts=mounts or {},
        )
        trace = (("traceparent", traceparent),) if traceparent else ()
        async with self._bounded(executor, self._deadline), self._verified(executor) as channel:
            call = SessionServiceStub(channel).Open(request, metadata=(*self._token(executor, FLEET_SCOPES), *trace))
            said = (await _reply(executor, "open", call)).description
        _check_uid(executor, said)
        if said.session_id != executor.session_id:
            raise IdentityInvalid(f"cannot open {executor.session_id}: it serves session {said.session_id[:80]!r}")
        return _description(said)

    async def suspend(self, executor: Executor, *, force: bool, unused: bool = False) -> session_pb2.Suspension:
        """What the executor keeps of its session. Raises ContactError, and FleetError where it refuses."""
        request = session_pb2.SuspendRequest(force=force, unused=unused)
        async with self._bounded(executor, SUSPEND_TIMEOUT), self._verified(executor, MAX_LIST) as channel:
            call = SessionServiceStub(channel).Suspend(request, metadata=self._token(executor, FLEET_SCOPES))
            return (await _reply(executor, "suspend", call)).suspension

    async def resume(self, executor: Executor) -> session_pb2.Resumption | None:
        """What has come back of a suspended session, once that is done; None: nothing was kept. Raises ContactError."""
        request = session_pb2.ResumeRequest()
        async with self._bounded(executor, RESUME_TIMEOUT), self._verified(executor, MAX_LIST) as channel:
            call = SessionServiceStub(channel).Resume(request, metadata=self._token(executor, FLEET_SCOPES))
            reply = await _reply(executor, "resume", call)
        return reply.resumption if reply.HasField("resumption") else None

    async def probe(self, executor: Executor, targets: Sequence[Target]) -> tuple[bool, ...]:
        """Which targets the sandbox's network reaches, by its own word: user code can forge it. Raises ContactError."""
        request = session_pb2.ProbeEgressRequest(targets=map(_target, targets))
        async with self._bounded(executor, self._deadline), self._verified(executor) as channel:
            call = SessionServiceStub(channel).ProbeEgress(request, metadata=self._token(executor, PROBE_SCOPES))
            return tuple((await _reply(executor, "probe the network with", call)).reached)

    async def journal_head(self, executor: Executor) -> Head:
        """The newest record of its journal, by the executor's word. Raises ContactError."""
        async with self._bounded(executor, self._poll), self._verified(executor) as channel:
            metadata = self._token(executor, FLEET_SCOPES)
            call = JournalServiceStub(channel).Head(journal_pb2.HeadRequest(), metadata=metadata)
            said = await _reply(executor, "read the journal of", call)
        return Head(said.number, said.hash)

    async def usage(self, executor: Executor) -> Reading:
        """What its session has used, by the executor's word. Raises ContactError."""
        async with self._bounded(executor, self._poll), self._verified(executor) as channel:
            call = SessionServiceStub(channel).Usage(
                session_pb2.UsageRequest(), metadata=self._token(executor, FLEET_SCOPES)
            )
            return reading(await _reply(executor, "read the usage of", call))

    async def services(self, executor: Executor) -> tuple[ServiceStatus, ...]:
        """The template's services, by the executor's word. Does not count as use. Raises ContactError."""
        request = service_pb2.ServiceManagerServiceListRequest()
        async with self._bounded(executor, self._poll), self._verified(executor, MAX_LIST) as channel:
            call = ServiceManagerServiceStub(channel).List(request, metadata=self._token(executor, LIST_SCOPES))
            return services_of((await _reply(executor, "list the services of", call)).services)

    async def _introduce(self, executor: Executor, shown: x509.Certificate, authority: Authority) -> None:
        """Installs a certificate on the executor, over a connection to the holder of the shown certificate's key."""
        metadata = self._token(executor, INTRODUCTION_SCOPES)
        async with verified_channel(executor, shown.public_bytes(Encoding.PEM)) as channel:
            stub = IdentityServiceStub(channel)
            asking = stub.GetSigningRequest(identity_pb2.GetSigningRequestRequest(), metadata=metadata)
            asked = await _reply(executor, "introduce", asking)
            try:
                certificate = authority.answer(asked.signing_request_pem, executor.pod_uid, self._clock())
            except RequestRefusedError as error:
                raise IdentityInvalid(str(error)) from error
            request = identity_pb2.InstallCertificateRequest(certificate_pem=certificate)
            await _reply(executor, "introduce", stub.InstallCertificate(request, metadata=metadata))

    async def _described(self, executor: Executor, isolation: Isolation) -> ExecutorDescription:
        async with self._verified(executor) as channel:
            metadata = self._token(executor, FLEET_SCOPES)
            call = SessionServiceStub(channel).Describe(session_pb2.DescribeRequest(), metadata=metadata)
            said = await _reply(executor, "describe", call)
        _check_uid(executor, said)
        found = _description(said)
        if found.isolation < isolation:
            why = f"it runs in {found.runtime}, asked for was {RUNTIMES[isolation]}"
            raise RuntimeMismatch(f"cannot hand out the sandbox: {why}", found.runtime)
        return found

    def _verified(self, executor: Executor, most: int = MAX_MESSAGE) -> grpc.aio.Channel:
        return verified_channel(executor, self._credentials.authority.pem, most)

    def _token(self, executor: Executor, scopes: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        return own_token(self._credentials.signer, executor, scopes)

    @contextlib.asynccontextmanager
    async def _bounded(self, executor: Executor, seconds: float) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError as error:
            raise Silent(f"cannot reach the executor at {executor.address}: no answer for {seconds:g} s") from error


def own_token(
    signer: Signer, executor: Executor, scopes: tuple[str, ...] = FLEET_SCOPES
) -> tuple[tuple[str, str], ...]:
    """The metadata of a call of the control plane."""
    token = signer.issue(
        sandbox_id=executor.session_id,
        sandbox_uid=executor.pod_uid,
        holder=HOLDER,
        scopes=scopes,
        lifetime=TOKEN_LIFETIME,
        contract=executor.contract,
    )
    return (("authorization", f"Bearer {token.text}"),)


def verified_channel(executor: Executor, ca: bytes, most: int = MAX_MESSAGE) -> grpc.aio.Channel:
    """A channel to a peer with a certificate of this CA for the pod's UID; answers are at most `most` bytes."""
    options: Final = (
        ("grpc.ssl_target_name_override", executor.pod_uid),
        ("grpc.max_receive_message_length", most),
        ("grpc.enable_http_proxy", 0),
        # Share no connection: one to the same address may have been verified with another certificate.
        ("grpc.use_local_subchannel_pool", 1),
    )
    return grpc.aio.secure_channel(executor.address, grpc.ssl_channel_credentials(ca), options=options)


async def _shown(executor: Executor) -> x509.Certificate:
    """The certificate that the port shows, unverified: it decides only what to try.

    Raises Unreachable, IdentityInvalid.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    host, _, port = executor.address.rpartition(":")
    try:
        _, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=context)
    # An invalid address raises ValueError.
    except (OSError, ValueError) as error:
        raise Unreachable(
            f"cannot reach the executor at {executor.address}: {error or type(error).__name__}"
        ) from error
    try:
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return x509.load_der_x509_certificate(shown or b"")
    except ValueError as error:
        raise IdentityInvalid(f"cannot read the certificate of {executor.address}: {str(error)[:MAX_TEXT]}") from error
    finally:
        # Abort instead of closing: a hostile peer could delay the close.
        writer.transport.abort()


def _check_introduction(executor: Executor, shown: x509.Certificate, authority: Authority, *, first: bool) -> None:
    """Raises IdentityInvalid unless the peer with this certificate may get one of ours."""
    where = f"cannot trust the executor at {executor.address}"
    if authority.signed(shown):
        raise IdentityInvalid(f"{where}: its certificate is another pod's, or not valid now")
    if not first:
        raise IdentityInvalid(
            f"{where}: its certificate is not signed by this control plane, and user code may have run"
        )
    if not self_signed(shown, executor.pod_uid):
        raise IdentityInvalid(f"{where}: its certificate is not its own one for pod uid {executor.pod_uid}")


async def _reply(executor: Executor, doing: str, call: Awaitable[T]) -> T:
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        if (refusal := refused_suspension(error)) is not None:
            raise FleetError(refusal) from error
        why = f"cannot {doing} the executor at {executor.address}: {(error.details() or error.code().name)[:MAX_TEXT]}"
        if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
            raise ClaimInvalid(why) from error
        raise (Unreachable if _later(error) else IdentityInvalid)(why) from error


def _later(error: grpc.aio.AioRpcError) -> bool:
    """Whether the error says nothing about identity.

    A token may be unknown because its key is new. The reason TokenForeign means that another pod answered.
    """
    if error.code() is not grpc.StatusCode.UNAUTHENTICATED:
        return error.code() in _LATER
    return error_detail(error).reason != "TokenForeign"


def _target(target: Target) -> session_pb2.EgressTarget:
    if not target.address:
        return session_pb2.EgressTarget(name_server=True)
    return session_pb2.EgressTarget(tcp=session_pb2.TcpAddress(address=target.address, port=target.port))


def _check_uid(executor: Executor, said: session_pb2.DescribeResponse) -> None:
    if said.sandbox_uid != executor.pod_uid:
        why = f"it says that it is {said.sandbox_uid[:80]!r}, not {executor.pod_uid!r}"
        raise IdentityInvalid(f"cannot trust the executor at {executor.address}: {why}")


def _description(said: session_pb2.DescribeResponse) -> ExecutorDescription:
    try:
        isolation = Isolation(said.isolation)
    except ValueError:
        # A number of a newer API, or none: assume no isolation.
        isolation = Isolation.NONE
    return ExecutorDescription(
        runtime=RUNTIMES[isolation],
        isolation=isolation,
        kernel=said.kernel[:MAX_TEXT],
        session_id=said.session_id[:MAX_TEXT],
        executor_version=said.executor_version[:MAX_TEXT],
        lease_left=lease_left(said),
        idle=idle_of(said),
        mounts=frozenset(said.mounts),
        prepared=said.prepared[:MAX_TEXT],
        not_preloaded=_not_preloaded(said.preload),
    )


def _not_preloaded(modules: Sequence[session_pb2.PreloadedModule]) -> str:
    failed = [one for one in modules if one.state == session_pb2.PRELOAD_STATE_FAILED]
    said = "; ".join(f"{one.module} ({one.problem[:MAX_TEXT]})" for one in failed)
    return f"cannot preload {said}"[:MAX_PROBLEMS] if failed else ""
