"""Calls of the fleet to executors on its machine. Their answers are untrusted."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from sandfleet_api.executor.v1 import common_pb2, journal_pb2, session_pb2
from sandfleet_api.executor.v1.journal_pb2_grpc import JournalServiceStub
from sandfleet_api.executor.v1.session_pb2_grpc import SessionServiceStub

from sandfleet_operator.api.egress import WayOut
from sandfleet_operator.api.errors import Code, FleetError, Problem
from sandfleet_operator.api.limits import Limits
from sandfleet_operator.api.reasons import ClaimReason, SuspendReason
from sandfleet_operator.api.values import Sandbox
from sandfleet_operator.executors.tokens import CALLER_SCOPES, FLEET_SCOPES, SNAPSHOT_SCOPES, Signer, Token
from sandfleet_operator.executors.usage import reading
from sandfleet_operator.plan.usage import Reading
from sandfleet_operator.plan.witness import Head

if TYPE_CHECKING:
    # Exists in the stubs only.
    from sandfleet_api.executor.v1.session_pb2_grpc import SessionServiceAsyncStub

# Seconds.
CALL_TIMEOUT = 10.0
PROBE_TIMEOUT = 2.0
CLOSE_TIMEOUT = 2.0
# Variables are written to disk, and read from it.
SUSPEND_TIMEOUT, RESUME_TIMEOUT = 90.0, 600.0
OWN_TOKEN_LIFETIME = 60.0
FLEET = "fleet"
# Of an executor's own words in the trailing metadata.
DETAIL = "sandfleet-error-bin"
GONE = ClaimReason.EXECUTOR_GONE.problem("cannot reach the sandbox: its executor is gone")
# What an executor may have against a suspension; all but the last pass by themselves.
IN_THE_WAY = (
    SuspendReason.EXECUTION_RUNNING,
    SuspendReason.PACKAGES_INSTALLING,
    SuspendReason.CONNECTION_OPEN,
    SuspendReason.SERVICE_RUNNING,
    SuspendReason.STATE_NOT_SAVED,
)
T = TypeVar("T")

CHANNEL_OPTIONS: Final = (
    # Answers to the fleet are small: this is the limit for a hostile executor.
    ("grpc.max_receive_message_length", 1 << 20),
    ("grpc.enable_http_proxy", 0),
)


@dataclass(frozen=True, slots=True)
class _Connection:
    address: str
    channel: grpc.aio.Channel
    session: "SessionServiceAsyncStub"


async def no_egress(sandbox: Sandbox) -> WayOut:  # noqa: ARG001 - of all
    """For fleets without egress by name."""
    return WayOut()


class Executors:
    """One channel to each incarnation of a sandbox, from its readiness to its end."""

    def __init__(self, signer: Signer) -> None:
        self._signer = signer
        # How a session reaches hosts by name, asked before each Open. Raises FleetError.
        self.egress: Callable[[Sandbox], Awaitable[WayOut]] = no_egress
        self._connections: dict[str, _Connection] = {}

    async def connect(self, sandbox: Sandbox, address: str) -> None:
        """Connects. Raises FleetError unless the executor is this incarnation and isolates as the claim asked for."""
        channel = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        connection = self._connections[sandbox.sandbox_uid] = _Connection(address, channel, SessionServiceStub(channel))
        metadata = self.metadata(sandbox)
        call = connection.session.Describe(session_pb2.DescribeRequest(), timeout=CALL_TIMEOUT, metadata=metadata)
        _check(sandbox, await self._reply(sandbox, call, "describe"), "")

    async def open(self, sandbox: Sandbox, lease: float) -> None:
        """Opens the sandbox's session on the executor, or renews its lease (seconds from now). Raises FleetError."""
        claim = sandbox.claim
        assert claim is not None
        way_out = await self.egress(sandbox)
        request = session_pb2.OpenRequest(
            session_id=sandbox.sandbox_id,
            lease=duration(lease),
            # One that is to be suspended does not end by itself.
            idle_timeout=None if claim.idle_timeout is None or claim.on_idle != "end" else duration(claim.idle_timeout),
            envs={**way_out.envs, **claim.envs},
            limits=limits_message(claim.limits),
            mounts=claim.mounts,
            egress=way_out.is_open,
            egress_authority=way_out.authority.encode("ascii"),
        )
        metadata = self.metadata(sandbox, claim.traceparent)
        call = self._connection(sandbox).session.Open(request, timeout=CALL_TIMEOUT, metadata=metadata)
        reply = await self._reply(sandbox, call, "open")
        _check(sandbox, reply.description, sandbox.sandbox_id)

    async def lease_left(self, sandbox: Sandbox) -> float | None:
        """Seconds, by the executor's word; None where it has no lease. Raises FleetError."""
        session, metadata = self._connection(sandbox).session, self.metadata(sandbox)
        call = session.Describe(session_pb2.DescribeRequest(), timeout=CALL_TIMEOUT, metadata=metadata)
        return lease_left(await self._reply(sandbox, call, "describe"))

    async def idle(self, sandbox: Sandbox) -> float | None:
        """Seconds since a caller has worked with it, by the executor's word; None while it is in use.

        Raises FleetError.
        """
        session, metadata = self._connection(sandbox).session, self.metadata(sandbox)
        call = session.Describe(session_pb2.DescribeRequest(), timeout=PROBE_TIMEOUT, metadata=metadata)
        return idle_of(await self._reply(sandbox, call, "describe"))

    async def suspend(self, sandbox: Sandbox, *, force: bool, unused: bool = False) -> session_pb2.Suspension:
        """The executor keeps what of the session outlives it, and waits for its end. Raises FleetError.

        `unused`: it refuses while a service is to run, as well.
        """
        session, metadata = self._connection(sandbox).session, self.metadata(sandbox)
        request = session_pb2.SuspendRequest(force=force, unused=unused)
        call = session.Suspend(request, timeout=SUSPEND_TIMEOUT, metadata=metadata)
        return (await self._reply(sandbox, call, "suspend")).suspension

    async def resume(self, sandbox: Sandbox) -> session_pb2.Resumption | None:
        """What has come back of a suspended session, when that is done; None: nothing was kept. Raises FleetError."""
        session, metadata = self._connection(sandbox).session, self.metadata(sandbox)
        call = session.Resume(session_pb2.ResumeRequest(), timeout=RESUME_TIMEOUT, metadata=metadata)
        reply = await self._reply(sandbox, call, "resume")
        return reply.resumption if reply.HasField("resumption") else None

    async def answers(self, sandbox: Sandbox) -> bool:
        """Whether the executor answers now: it may have died without notice."""
        try:
            session, metadata = self._connection(sandbox).session, self.metadata(sandbox)
            call = session.Describe(session_pb2.DescribeRequest(), timeout=PROBE_TIMEOUT, metadata=metadata)
            await self._reply(sandbox, call, "describe")
        except FleetError:
            return False
        return True

    async def journal_head(self, sandbox: Sandbox) -> Head:
        """The newest record of the session's journal, by the executor's word. Raises FleetError."""
        stub, metadata = JournalServiceStub(self._connection(sandbox).channel), self.metadata(sandbox)
        call = stub.Head(journal_pb2.HeadRequest(), timeout=CALL_TIMEOUT, metadata=metadata)
        said = await self._reply(sandbox, call, "read the journal of")
        return Head(said.number, said.hash)

    async def usage(self, sandbox: Sandbox) -> Reading:
        """What the session has used, by the executor's word. Raises FleetError."""
        session, metadata = self._connection(sandbox).session, self.metadata(sandbox)
        call = session.Usage(session_pb2.UsageRequest(), timeout=CALL_TIMEOUT, metadata=metadata)
        return reading(await self._reply(sandbox, call, "read the usage of"))

    async def close(self, sandbox: Sandbox) -> None:
        """Asks the executor to end its executions and itself. An executor that is gone is not an error."""
        with contextlib.suppress(FleetError):
            session, metadata = self._connection(sandbox).session, self.metadata(sandbox)
            call = session.Close(session_pb2.CloseRequest(), timeout=CLOSE_TIMEOUT, metadata=metadata)
            await self._reply(sandbox, call, "close")

    async def forget(self, sandbox_uid: str) -> None:
        """Closes the channel of an incarnation that is gone."""
        connection = self._connections.pop(sandbox_uid, None)
        if connection is not None:
            await connection.channel.close(None)

    async def forget_all(self) -> None:
        await asyncio.gather(*(self.forget(uid) for uid in list(self._connections)))

    def address(self, sandbox: Sandbox) -> str:
        return self._connection(sandbox).address

    def caller_token(self, sandbox: Sandbox, lifetime: float) -> Token:
        """A token for the caller of the sandbox's claim, for at most `lifetime` seconds from now."""
        assert sandbox.claim is not None
        return self._signer.issue(
            sandbox_id=sandbox.sandbox_id,
            sandbox_uid=sandbox.sandbox_uid,
            holder=sandbox.claim.key.holder,
            scopes=CALLER_SCOPES,
            lifetime=lifetime,
            contract=sandbox.contract,
        )

    def transfer_token(self, sandbox: Sandbox) -> Token:
        """For the snapshotter: a call that has begun goes on when it has expired."""
        return self._signer.issue(
            sandbox_id=sandbox.sandbox_id,
            sandbox_uid=sandbox.sandbox_uid,
            holder=FLEET,
            scopes=SNAPSHOT_SCOPES,
            lifetime=OWN_TOKEN_LIFETIME,
            contract=sandbox.contract,
        )

    async def _reply(self, sandbox: Sandbox, call: Awaitable[T], doing: str) -> T:
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            raise FleetError(_problem(doing, error)) from error
        except asyncio.CancelledError:
            # Closing the channel of a gone executor cancels its calls. Unless the caller was cancelled, too, raise
            # GONE.
            task = asyncio.current_task()
            if sandbox.sandbox_uid in self._connections or (task is not None and task.cancelling()):
                raise
            raise FleetError(GONE) from None

    def _connection(self, sandbox: Sandbox) -> _Connection:
        connection = self._connections.get(sandbox.sandbox_uid)
        if connection is None:
            raise FleetError(GONE)
        return connection

    def metadata(self, sandbox: Sandbox, traceparent: str = "") -> tuple[tuple[str, str], ...]:
        """Of a call of the fleet to the executor."""
        token = self._signer.issue(
            sandbox_id=sandbox.sandbox_id,
            sandbox_uid=sandbox.sandbox_uid,
            holder=FLEET,
            scopes=FLEET_SCOPES,
            lifetime=OWN_TOKEN_LIFETIME,
            contract=sandbox.contract,
        )
        trace = (("traceparent", traceparent),) if traceparent else ()
        return (("authorization", f"Bearer {token.text}"), *trace)


def _check(sandbox: Sandbox, said: session_pb2.DescribeResponse, session_id: str) -> None:
    wrong = (
        f"it is {said.sandbox_uid[:80]!r}, not {sandbox.sandbox_uid!r}"
        if said.sandbox_uid != sandbox.sandbox_uid
        else f"it isolates with {said.isolation}, asked for was {sandbox.isolation.value} ({sandbox.isolation.name})"
        if said.isolation < sandbox.isolation.value
        else f"it serves session {said.session_id[:80]!r}, not {session_id!r}"
        if said.session_id != session_id
        else ""
    )
    if wrong:
        raise ClaimReason.SANDBOX_UNFIT.error(f"cannot hand out a sandbox: {wrong}", sandbox.sandbox_id)


def _problem(doing: str, error: grpc.aio.AioRpcError) -> Problem:
    details = (error.details() or error.code().name)[:500]
    if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
        return ClaimReason.INVALID_CLAIM.problem(f"cannot {doing} the sandbox: {details}")
    if (refusal := refused_suspension(error)) is not None:
        return refusal
    code = Code.UNAVAILABLE if error.code() is grpc.StatusCode.UNAVAILABLE else Code.INTERNAL
    return ClaimReason.EXECUTOR_UNREACHABLE.problem(f"cannot {doing} the sandbox: {details}", code=code)


def refused_suspension(error: grpc.aio.AioRpcError) -> Problem | None:
    """What the executor has against a suspension; None for any other failure."""
    said = error_detail(error)
    for reason in IN_THE_WAY:
        if said.reason == reason.value:
            return reason.problem(said.message[:500], passing=reason is not SuspendReason.STATE_NOT_SAVED)
    return None


def error_detail(error: grpc.aio.AioRpcError) -> common_pb2.ErrorDetail:
    """An executor's own words; empty where there are none."""
    # The stubs do not know that metadata are pairs.
    pairs = cast("Iterable[tuple[str, bytes]]", error.trailing_metadata() or ())
    try:
        return common_pb2.ErrorDetail.FromString(next((value for key, value in pairs if key == DETAIL), b""))
    except (DecodeError, TypeError):
        return common_pb2.ErrorDetail()


def lease_left(said: session_pb2.DescribeResponse) -> float | None:
    if not said.HasField("lease_remaining"):
        return None
    return said.lease_remaining.seconds + said.lease_remaining.nanos / 1_000_000_000


def idle_of(said: session_pb2.DescribeResponse) -> float | None:
    return said.idle.seconds + said.idle.nanos / 1_000_000_000 if said.HasField("idle") else None


def duration(seconds: float) -> Duration:
    nanoseconds = round(seconds * 1_000_000_000)
    return Duration(seconds=nanoseconds // 1_000_000_000, nanos=nanoseconds % 1_000_000_000)


def limits_message(limits: Limits) -> common_pb2.Limits:
    """The limits as a message. A limit of 0 stays unset, so that the template's holds."""
    given: dict[str, Any] = {name: value for name, value in asdict(limits).items() if value}
    times = {one.name for one in fields(Limits) if isinstance(one.default, float)}
    told: dict[str, Any] = {name: duration(value) if name in times else value for name, value in given.items()}
    return common_pb2.Limits(**told)
