"""What the fleet says to executors. What they answer is untrusted."""

import asyncio
import contextlib
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import grpc
from google.protobuf.duration_pb2 import Duration
from sandfleet_api.executor.v1 import common_pb2, session_pb2
from sandfleet_api.executor.v1.session_pb2_grpc import SessionServiceStub

from sandfleet_operator.api.errors import Code, FleetError, Problem
from sandfleet_operator.api.values import Limits, Sandbox
from sandfleet_operator.effects.tokens import CALLER_SCOPES, FLEET_SCOPES, Signer, Token

if TYPE_CHECKING:
    # Known to the stubs only.
    from sandfleet_api.executor.v1.session_pb2_grpc import SessionServiceAsyncStub

# Seconds.
CALL_TIMEOUT = 10.0
PROBE_TIMEOUT = 2.0
CLOSE_TIMEOUT = 2.0
OWN_TOKEN_LIFETIME = 60.0
FLEET = "fleet"
GONE = Problem(Code.UNAVAILABLE, "ExecutorGone", "cannot reach the sandbox: its executor is gone")
T = TypeVar("T")

CHANNEL_OPTIONS: Final = (
    # An executor says little to the fleet; a hostile one does not get to say more.
    ("grpc.max_receive_message_length", 1 << 20),
    ("grpc.enable_http_proxy", 0),
)


@dataclass(frozen=True, slots=True)
class _Line:
    address: str
    channel: grpc.aio.Channel
    session: "SessionServiceAsyncStub"


class Executors:
    """One channel to each incarnation, from its readiness to its end."""

    def __init__(self, signer: Signer) -> None:
        self._signer = signer
        self._lines: dict[str, _Line] = {}

    async def connect(self, sandbox: Sandbox, address: str) -> None:
        """Raises FleetError unless what answers is the incarnation and isolates at least as was asked for."""
        channel = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        line = self._lines[sandbox.sandbox_uid] = _Line(address, channel, SessionServiceStub(channel))
        metadata = self._metadata(sandbox)
        call = line.session.Describe(session_pb2.DescribeRequest(), timeout=CALL_TIMEOUT, metadata=metadata)
        _check(sandbox, await self._reply(sandbox, call, "describe"), "")

    async def open(self, sandbox: Sandbox, lease: float) -> None:
        """Binds the executor to the sandbox's session, or renews its lease (seconds from now). Raises FleetError."""
        claim = sandbox.claim
        assert claim is not None
        request = session_pb2.OpenRequest(
            session_id=sandbox.sandbox_id,
            lease=duration(lease),
            idle_timeout=None if claim.idle_timeout is None else duration(claim.idle_timeout),
            envs=claim.envs,
            limits=limits_message(claim.limits),
        )
        metadata = self._metadata(sandbox, claim.traceparent)
        call = self._line(sandbox).session.Open(request, timeout=CALL_TIMEOUT, metadata=metadata)
        reply = await self._reply(sandbox, call, "open")
        _check(sandbox, reply.description, sandbox.sandbox_id)

    async def answers(self, sandbox: Sandbox) -> bool:
        """Whether the executor is there right now: it may be dead for a moment before anybody knows."""
        try:
            session, metadata = self._line(sandbox).session, self._metadata(sandbox)
            call = session.Describe(session_pb2.DescribeRequest(), timeout=PROBE_TIMEOUT, metadata=metadata)
            await self._reply(sandbox, call, "describe")
        except FleetError:
            return False
        return True

    async def close(self, sandbox: Sandbox) -> None:
        """Asks the executor to end its executions and itself. That it is gone already is no error."""
        with contextlib.suppress(FleetError):
            session, metadata = self._line(sandbox).session, self._metadata(sandbox)
            call = session.Close(session_pb2.CloseRequest(), timeout=CLOSE_TIMEOUT, metadata=metadata)
            await self._reply(sandbox, call, "close")

    async def forget(self, sandbox_uid: str) -> None:
        """The incarnation is gone."""
        line = self._lines.pop(sandbox_uid, None)
        if line is not None:
            await line.channel.close(None)

    async def forget_all(self) -> None:
        await asyncio.gather(*(self.forget(uid) for uid in list(self._lines)))

    def address(self, sandbox: Sandbox) -> str:
        return self._line(sandbox).address

    def caller_token(self, sandbox: Sandbox, lifetime: float) -> Token:
        """What the caller of the sandbox's claim needs, for at most `lifetime` seconds from now."""
        assert sandbox.claim is not None
        return self._signer.issue(
            sandbox_id=sandbox.sandbox_id,
            sandbox_uid=sandbox.sandbox_uid,
            holder=sandbox.claim.key.holder,
            scopes=CALLER_SCOPES,
            lifetime=lifetime,
        )

    async def _reply(self, sandbox: Sandbox, call: Awaitable[T], doing: str) -> T:
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            raise FleetError(_problem(doing, error)) from error
        except asyncio.CancelledError:
            # A channel that is closed because the executor is gone cancels its calls; nobody wanted to cancel their callers.
            task = asyncio.current_task()
            if sandbox.sandbox_uid in self._lines or (task is not None and task.cancelling()):
                raise
            raise FleetError(GONE) from None

    def _line(self, sandbox: Sandbox) -> _Line:
        line = self._lines.get(sandbox.sandbox_uid)
        if line is None:
            raise FleetError(
                Problem(Code.UNAVAILABLE, "ExecutorGone", "cannot reach the sandbox: its executor is gone")
            )
        return line

    def _metadata(self, sandbox: Sandbox, traceparent: str = "") -> tuple[tuple[str, str], ...]:
        token = self._signer.issue(
            sandbox_id=sandbox.sandbox_id,
            sandbox_uid=sandbox.sandbox_uid,
            holder=FLEET,
            scopes=FLEET_SCOPES,
            lifetime=OWN_TOKEN_LIFETIME,
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
        raise FleetError(
            Problem(Code.INTERNAL, "SandboxUnfit", f"cannot hand out a sandbox: {wrong}", sandbox.sandbox_id)
        )


def _problem(doing: str, error: grpc.aio.AioRpcError) -> Problem:
    details = (error.details() or error.code().name)[:500]
    if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
        return Problem(Code.INVALID_ARGUMENT, "InvalidClaim", f"cannot {doing} the sandbox: {details}")
    code = Code.UNAVAILABLE if error.code() is grpc.StatusCode.UNAVAILABLE else Code.INTERNAL
    return Problem(code, "ExecutorUnreachable", f"cannot {doing} the sandbox: {details}")


def duration(seconds: float) -> Duration:
    nanoseconds = round(seconds * 1_000_000_000)
    return Duration(seconds=nanoseconds // 1_000_000_000, nanos=nanoseconds % 1_000_000_000)


def limits_message(limits: Limits) -> common_pb2.Limits:
    """A limit of 0 stays unset: as the template says."""
    return common_pb2.Limits(
        memory_bytes=limits.memory_bytes,
        tmp_bytes=limits.tmp_bytes,
        processes=limits.processes,
        output_bytes=limits.output_bytes,
        executions=limits.executions,
        max_timeout=duration(limits.max_timeout) if limits.max_timeout else None,
        default_timeout=duration(limits.default_timeout) if limits.default_timeout else None,
        open_files=limits.open_files,
        disk_bytes=limits.disk_bytes,
    )
