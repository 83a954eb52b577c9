"""Calls of the fleet to executors on its machine. Their answers are untrusted."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import grpc
from sandfleet_api.executor.v1 import session_pb2

from sandfleet_operator.api.egress import WayOut
from sandfleet_operator.api.errors import Code, FleetError
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.api.values import Sandbox
from sandfleet_operator.executors.calls import (
    RESUME_TIMEOUT,
    SUSPEND_TIMEOUT,
    Calls,
    Metadata,
    duration,
    idle_of,
    lease_left,
    limits_message,
    refused_suspension,
)
from sandfleet_operator.executors.tokens import CALLER_SCOPES, FLEET_SCOPES, SNAPSHOT_SCOPES, Signer, Token
from sandfleet_operator.plan.usage import Reading
from sandfleet_operator.plan.witness import Head

# Seconds.
CALL_TIMEOUT = 10.0
PROBE_TIMEOUT = 2.0
CLOSE_TIMEOUT = 2.0
OWN_TOKEN_LIFETIME = 60.0
FLEET = "fleet"
GONE = ClaimReason.EXECUTOR_GONE.problem("cannot reach the sandbox: its executor is gone")

CHANNEL_OPTIONS: Final = (
    # Answers to the fleet are small: this is the limit for a hostile executor.
    ("grpc.max_receive_message_length", 1 << 20),
    ("grpc.enable_http_proxy", 0),
)


@dataclass(frozen=True, slots=True)
class _Connection:
    address: str
    channel: grpc.aio.Channel


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
        self._connections[sandbox.sandbox_uid] = _Connection(address, channel)
        async with self._calls(sandbox, CALL_TIMEOUT) as calls:
            _check(sandbox, await calls.describe(), "")

    async def open(self, sandbox: Sandbox, lease: float) -> None:
        """Opens the sandbox's session on the executor, or renews its lease (seconds from now). Raises FleetError."""
        claim = sandbox.claim
        assert claim is not None
        way_out = await self.egress(sandbox)
        request = session_pb2.OpenRequest(
            session_id=sandbox.sandbox_id,
            lease=duration(lease + claim.settles),
            # One that is to be suspended does not end by itself.
            idle_timeout=None if claim.idle_timeout is None or claim.on_idle != "end" else duration(claim.idle_timeout),
            envs={**way_out.envs, **claim.envs},
            limits=limits_message(claim.limits),
            mounts=claim.mounts,
            egress=way_out.is_open,
            egress_authority=way_out.authority.encode("ascii"),
        )
        async with self._calls(sandbox, CALL_TIMEOUT) as calls:
            _check(sandbox, await calls.open(request, claim.traceparent), sandbox.sandbox_id)

    async def lease_left(self, sandbox: Sandbox) -> float | None:
        """Seconds, by the executor's word; None where it has no lease. Raises FleetError."""
        async with self._calls(sandbox, CALL_TIMEOUT) as calls:
            return lease_left(await calls.describe())

    async def idle(self, sandbox: Sandbox) -> float | None:
        """Seconds since a caller has worked with it, by the executor's word; None while it is in use.

        Raises FleetError.
        """
        async with self._calls(sandbox, PROBE_TIMEOUT) as calls:
            return idle_of(await calls.describe())

    async def suspend(self, sandbox: Sandbox, *, force: bool, unused: bool = False) -> session_pb2.Suspension:
        """The executor keeps what of the session outlives it, and waits for its end. Raises FleetError.

        `unused`: it refuses while a service is to run, as well.
        """
        async with self._calls(sandbox, SUSPEND_TIMEOUT) as calls:
            return await calls.suspend(force=force, unused=unused)

    async def resume(self, sandbox: Sandbox) -> session_pb2.Resumption | None:
        """What has come back of a suspended session, when that is done; None: nothing was kept. Raises FleetError."""
        async with self._calls(sandbox, RESUME_TIMEOUT) as calls:
            return await calls.resume()

    async def answers(self, sandbox: Sandbox) -> bool:
        """Whether the executor answers now: it may have died without notice."""
        with contextlib.suppress(FleetError):
            await self.idle(sandbox)
            return True
        return False

    async def journal_head(self, sandbox: Sandbox) -> Head:
        """The newest record of the session's journal, by the executor's word. Raises FleetError."""
        async with self._calls(sandbox, CALL_TIMEOUT) as calls:
            return await calls.journal_head()

    async def usage(self, sandbox: Sandbox) -> Reading:
        """What the session has used, by the executor's word. Raises FleetError."""
        async with self._calls(sandbox, CALL_TIMEOUT) as calls:
            return await calls.usage()

    async def close(self, sandbox: Sandbox) -> None:
        """Asks the executor to end its executions and itself. An executor that is gone is not an error."""
        with contextlib.suppress(FleetError):
            async with self._calls(sandbox, CLOSE_TIMEOUT) as calls:
                await calls.close()

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
        return self._own_token(sandbox, SNAPSHOT_SCOPES)

    @contextlib.asynccontextmanager
    async def _calls(self, sandbox: Sandbox, timeout: float) -> AsyncIterator[Calls]:
        """Calls of `timeout` seconds. Raises FleetError in the place of what gRPC raises."""
        try:
            yield Calls(self._connection(sandbox).channel, self.metadata(sandbox), _failure, timeout)
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

    def metadata(self, sandbox: Sandbox) -> Metadata:
        """Of a call of the fleet to the executor."""
        return (("authorization", f"Bearer {self._own_token(sandbox, FLEET_SCOPES).text}"),)

    def _own_token(self, sandbox: Sandbox, scopes: tuple[str, ...]) -> Token:
        return self._signer.issue(
            sandbox_id=sandbox.sandbox_id,
            sandbox_uid=sandbox.sandbox_uid,
            holder=FLEET,
            scopes=scopes,
            lifetime=OWN_TOKEN_LIFETIME,
            contract=sandbox.contract,
        )


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


def _failure(doing: str, error: grpc.aio.AioRpcError) -> FleetError:
    details = (error.details() or error.code().name)[:500]
    if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
        return ClaimReason.INVALID_CLAIM.error(f"cannot {doing} the sandbox: {details}")
    if (refusal := refused_suspension(error)) is not None:
        return FleetError(refusal)
    code = Code.UNAVAILABLE if error.code() is grpc.StatusCode.UNAVAILABLE else Code.INTERNAL
    return FleetError(ClaimReason.EXECUTOR_UNREACHABLE.problem(f"cannot {doing} the sandbox: {details}", code=code))
