"""Calls to one executor, for the fleet's channels of this machine and for those to pods. Its answers are untrusted."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from sandfleet_api.executor.v1 import common_pb2, journal_pb2, session_pb2
from sandfleet_api.executor.v1.journal_pb2_grpc import JournalServiceStub
from sandfleet_api.executor.v1.session_pb2_grpc import SessionServiceStub

from sandfleet_operator.api.errors import Problem
from sandfleet_operator.api.limits import TIMES, Limits
from sandfleet_operator.api.reasons import SuspendReason
from sandfleet_operator.executors.usage import reading
from sandfleet_operator.plan.usage import Reading
from sandfleet_operator.plan.witness import Head

if TYPE_CHECKING:
    # Exists in the stubs only.
    from sandfleet_api.executor.v1.session_pb2_grpc import SessionServiceAsyncStub

# Seconds in which variables are written to disk, and read from it.
SUSPEND_TIMEOUT, RESUME_TIMEOUT = 90.0, 600.0
# The key of an executor's own words in the trailing metadata.
DETAIL = "sandfleet-error-bin"
# What an executor may have against a suspension; all but the last pass by themselves.
IN_THE_WAY = (
    SuspendReason.EXECUTION_RUNNING,
    SuspendReason.PACKAGES_INSTALLING,
    SuspendReason.CONNECTION_OPEN,
    SuspendReason.SERVICE_RUNNING,
    SuspendReason.STATE_NOT_SAVED,
)
Metadata = tuple[tuple[str, str], ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Calls:
    """`failure` makes the error that a failed call raises, of what was being done ("suspend") and gRPC's error."""

    channel: grpc.aio.Channel
    metadata: Metadata
    failure: Callable[[str, grpc.aio.AioRpcError], Exception]
    # Seconds; None: the caller bounds the call together with its connection.
    timeout: float | None = None

    @property
    def _session(self) -> "SessionServiceAsyncStub":
        return SessionServiceStub(self.channel)

    async def reply(self, doing: str, call: Awaitable[T]) -> T:
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            raise self.failure(doing, error) from error

    async def describe(self) -> session_pb2.DescribeResponse:
        request = session_pb2.DescribeRequest()
        call = self._session.Describe(request, timeout=self.timeout, metadata=self.metadata)
        return await self.reply("describe", call)

    async def open(self, request: session_pb2.OpenRequest, traceparent: str) -> session_pb2.DescribeResponse:
        """Open the session on the executor, or renew its lease, and return the executor's description."""
        trace = (("traceparent", traceparent),) if traceparent else ()
        call = self._session.Open(request, timeout=self.timeout, metadata=(*self.metadata, *trace))
        return (await self.reply("open", call)).description

    async def suspend(self, *, force: bool, unused: bool) -> session_pb2.Suspension:
        """Let the executor keep what of the session outlives it. `unused`: not while a service is to run, either."""
        request = session_pb2.SuspendRequest(force=force, unused=unused)
        call = self._session.Suspend(request, timeout=self.timeout, metadata=self.metadata)
        return (await self.reply("suspend", call)).suspension

    async def resume(self) -> session_pb2.Resumption | None:
        """Return what has come back of a suspended session, when that is done; None: nothing was kept."""
        request = session_pb2.ResumeRequest()
        call = self._session.Resume(request, timeout=self.timeout, metadata=self.metadata)
        reply = await self.reply("resume", call)
        return reply.resumption if reply.HasField("resumption") else None

    async def journal_head(self) -> Head:
        """Return the newest record of the session's journal."""
        request = journal_pb2.HeadRequest()
        call = JournalServiceStub(self.channel).Head(request, timeout=self.timeout, metadata=self.metadata)
        reply = await self.reply("read the journal of", call)
        return Head(reply.number, reply.hash)

    async def usage(self) -> Reading:
        """Return what the session has used."""
        request = session_pb2.UsageRequest()
        call = self._session.Usage(request, timeout=self.timeout, metadata=self.metadata)
        return reading(await self.reply("read the usage of", call))

    async def close(self) -> None:
        """Ask the executor to end its executions and itself."""
        request = session_pb2.CloseRequest()
        await self.reply("close", self._session.Close(request, timeout=self.timeout, metadata=self.metadata))


def refused_suspension(error: grpc.aio.AioRpcError) -> Problem | None:
    """Return what the executor has against a suspension; None for any other failure."""
    said = error_detail(error)
    for reason in IN_THE_WAY:
        if said.reason == reason.value:
            return reason.problem(said.message[:500], passing=reason is not SuspendReason.STATE_NOT_SAVED)
    return None


def error_detail(error: grpc.aio.AioRpcError) -> common_pb2.ErrorDetail:
    """Return an executor's own words; empty where there are none."""
    # The stubs do not know that metadata are pairs.
    pairs = cast("Iterable[tuple[str, bytes]]", error.trailing_metadata() or ())
    try:
        return common_pb2.ErrorDetail.FromString(next((value for key, value in pairs if key == DETAIL), b""))
    except (DecodeError, TypeError):
        return common_pb2.ErrorDetail()


def lease_left(said: session_pb2.DescribeResponse) -> float | None:
    return _seconds(said.lease_remaining) if said.HasField("lease_remaining") else None


def idle_of(said: session_pb2.DescribeResponse) -> float | None:
    return _seconds(said.idle) if said.HasField("idle") else None


def _seconds(said: Duration) -> float:
    return said.seconds + said.nanos / 1_000_000_000


def duration(seconds: float) -> Duration:
    nanoseconds = round(seconds * 1_000_000_000)
    return Duration(seconds=nanoseconds // 1_000_000_000, nanos=nanoseconds % 1_000_000_000)


def limits_message(limits: Limits) -> common_pb2.Limits:
    """Return the limits as a message. A limit of 0 stays unset, so that the template's holds."""
    given: dict[str, Any] = {name: value for name, value in asdict(limits).items() if value}
    told: dict[str, Any] = {name: duration(value) if name in TIMES else value for name, value in given.items()}
    return common_pb2.Limits(**told)
