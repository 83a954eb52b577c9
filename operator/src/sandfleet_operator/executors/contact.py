"""Calls of the control plane to the executor of a pod: identity, runtime, session, egress probes and services.

The peer and its answers are untrusted: times and sizes are bounded, and every value is checked before it is used.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final, Protocol

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from sandfleet_api.executor.v1 import identity_pb2, service_pb2, session_pb2
from sandfleet_api.executor.v1.identity_pb2_grpc import IdentityServiceStub
from sandfleet_api.executor.v1.service_pb2_grpc import ServiceManagerServiceStub
from sandfleet_api.executor.v1.session_pb2_grpc import SessionServiceStub

from sandfleet_operator.api.conditions import Reason
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.sandbox import ServiceStatus
from sandfleet_operator.api.limits import Limits
from sandfleet_operator.api.values import Isolation
from sandfleet_operator.executors.authority import Authority, RequestRefusedError, self_signed
from sandfleet_operator.executors.calls import (
    RESUME_TIMEOUT,
    SUSPEND_TIMEOUT,
    Calls,
    Metadata,
    duration,
    error_detail,
    idle_of,
    lease_left,
    limits_message,
    refused_suspension,
)
from sandfleet_operator.executors.service_list import services_of
from sandfleet_operator.executors.session_authority import session_authority
from sandfleet_operator.executors.tokens import AUTONOMOUS, FLEET_SCOPES, Signer
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
    # Secrets are put into its session's requests: the session trusts an authority of its own.
    trusts: bool = False


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
            egress_authority=self._session_authority(executor),
        )
        async with self._calls(executor, self._deadline) as calls:
            said = await calls.open(request, traceparent)
        _check_uid(executor, said)
        if said.session_id != executor.session_id:
            raise IdentityInvalid(f"cannot open {executor.session_id}: it serves session {said.session_id[:80]!r}")
        return _description(said)

    async def suspend(self, executor: Executor, *, force: bool, unused: bool = False) -> session_pb2.Suspension:
        """What the executor keeps of its session. Raises ContactError, and FleetError where it refuses."""
        async with self._calls(executor, SUSPEND_TIMEOUT, most=MAX_LIST) as calls:
            return await calls.suspend(force=force, unused=unused)

    async def resume(self, executor: Executor) -> session_pb2.Resumption | None:
        """What has come back of a suspended session, once that is done; None: nothing was kept. Raises ContactError."""
        async with self._calls(executor, RESUME_TIMEOUT, most=MAX_LIST) as calls:
            return await calls.resume()

    async def probe(self, executor: Executor, targets: Sequence[Target]) -> tuple[bool, ...]:
        """Which targets the sandbox's network reaches, by its own word: user code can forge it. Raises ContactError."""
        request = session_pb2.ProbeEgressRequest(targets=map(_target, targets))
        async with self._calls(executor, self._deadline, scopes=PROBE_SCOPES) as calls:
            call = SessionServiceStub(calls.channel).ProbeEgress(request, metadata=calls.metadata)
            return tuple((await calls.reply("probe the network with", call)).reached)

    async def journal_head(self, executor: Executor) -> Head:
        """The newest record of its journal, by the executor's word. Raises ContactError."""
        async with self._calls(executor, self._poll) as calls:
            return await calls.journal_head()

    async def usage(self, executor: Executor) -> Reading:
        """What its session has used, by the executor's word. Raises ContactError."""
        async with self._calls(executor, self._poll) as calls:
            return await calls.usage()

    async def services(self, executor: Executor) -> tuple[ServiceStatus, ...]:
        """The template's services, by the executor's word. Does not count as use. Raises ContactError."""
        request = service_pb2.ServiceManagerServiceListRequest()
        async with self._calls(executor, self._poll, scopes=LIST_SCOPES, most=MAX_LIST) as calls:
            call = ServiceManagerServiceStub(calls.channel).List(request, metadata=calls.metadata)
            return services_of((await calls.reply("list the services of", call)).services)

    async def _introduce(self, executor: Executor, shown: x509.Certificate, authority: Authority) -> None:
        """Installs a certificate on the executor, over a connection to the holder of the shown certificate's key."""
        async with verified_channel(executor, shown.public_bytes(Encoding.PEM)) as channel:
            calls, stub = self._made_calls(executor, channel, INTRODUCTION_SCOPES), IdentityServiceStub(channel)
            asking = stub.GetSigningRequest(identity_pb2.GetSigningRequestRequest(), metadata=calls.metadata)
            asked = await calls.reply("introduce", asking)
            try:
                certificate = authority.answer(asked.signing_request_pem, executor.pod_uid, self._clock())
            except RequestRefusedError as error:
                raise IdentityInvalid(str(error)) from error
            request = identity_pb2.InstallCertificateRequest(certificate_pem=certificate)
            await calls.reply("introduce", stub.InstallCertificate(request, metadata=calls.metadata))

    async def _described(self, executor: Executor, isolation: Isolation) -> ExecutorDescription:
        async with self._verified(executor) as channel:
            said = await self._made_calls(executor, channel, FLEET_SCOPES).describe()
        _check_uid(executor, said)
        found = _description(said)
        if found.isolation < isolation:
            why = f"it runs in {found.runtime}, asked for was {RUNTIMES[isolation]}"
            raise RuntimeMismatch(f"cannot hand out the sandbox: {why}", found.runtime)
        return found

    def _verified(self, executor: Executor, most: int = MAX_MESSAGE) -> grpc.aio.Channel:
        return verified_channel(executor, self._credentials.authority.pem, most)

    def _session_authority(self, executor: Executor) -> bytes:
        if not executor.trusts:
            return b""
        return session_authority(self._credentials.authority, executor.pod_uid, self._clock()).certificate

    def _made_calls(self, executor: Executor, channel: grpc.aio.Channel, scopes: tuple[str, ...]) -> Calls:
        metadata = own_token(self._credentials.signer, executor, scopes)
        return Calls(channel, metadata, partial(_failure, executor))

    @contextlib.asynccontextmanager
    async def _calls(
        self, executor: Executor, seconds: float, *, scopes: tuple[str, ...] = FLEET_SCOPES, most: int = MAX_MESSAGE
    ) -> AsyncIterator[Calls]:
        """Calls over a verified connection of their own, which have `seconds` with it. Raises ContactError."""
        async with self._bounded(executor, seconds), self._verified(executor, most) as channel:
            yield self._made_calls(executor, channel, scopes)

    @contextlib.asynccontextmanager
    async def _bounded(self, executor: Executor, seconds: float) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError as error:
            raise Silent(f"cannot reach the executor at {executor.address}: no answer for {seconds:g} s") from error


def own_token(signer: Signer, executor: Executor, scopes: tuple[str, ...] = FLEET_SCOPES) -> Metadata:
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


def _failure(executor: Executor, doing: str, error: grpc.aio.AioRpcError) -> ContactError | FleetError:
    if (refusal := refused_suspension(error)) is not None:
        return FleetError(refusal)
    why = f"cannot {doing} the executor at {executor.address}: {(error.details() or error.code().name)[:MAX_TEXT]}"
    if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
        return ClaimInvalid(why)
    return (Unreachable if _later(error) else IdentityInvalid)(why)


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
