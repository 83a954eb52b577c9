"""The link to one sandbox: its connection, metadata and retries, and the move to a new executor."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from sandfleet._wire import api
from sandfleet._wire.channel import open_channel
from sandfleet._wire.convert import common as convert
from sandfleet._wire.heads import heard
from sandfleet._wire.home import Home
from sandfleet._wire.lease import LeaseKeeper
from sandfleet._wire.preemptions import Preemptions
from sandfleet._wire.retry import Backoff
from sandfleet._wire.status import detail, may_resend, to_error
from sandfleet.errors import (
    PreconditionFailed,
    RpcTimeout,
    SandboxEnded,
    SandboxPreempted,
    SandboxSuspended,
    SandfleetError,
    UnavailableError,
)
from sandfleet.journal.heads import KeptHeads, SignedHead
from sandfleet.observe import intent, tracing
from sandfleet.values.environment import Environment
from sandfleet.values.sandbox import SandboxInfo
from sandfleet.values.usage import Health

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from sandfleet.values.suspension import SuspendTo, Suspension
    from sandfleet.values.tools import Decision

Request = TypeVar("Request", bound="Message")
Response = TypeVar("Response", bound="Message")
Answer = TypeVar("Answer")
Metadata = tuple[tuple[str, str], ...]
# Of a call to an executor; names that end in -bin have bytes.
AnyMetadata = tuple[tuple[str, str | bytes], ...]

# Whether the present call only looks at the session, and is not to wake it.
_LOOKS: ContextVar[bool] = ContextVar("sandfleet_looks", default=False)
# A token is renewed when it lives for fewer seconds than this.
_TOKEN_MARGIN = 30.0
# While the old token is valid: how long the fleet may take to answer, and the pause between two requests, in seconds.
_EARLY_REFRESH, _REFRESH_PAUSE = 2.0, 5.0
# Retries of one call that may meet a dead or foreign executor.
_ATTEMPTS = 3
# The assumed length of an unknown lease, and the shortest lease, in seconds.
_UNKNOWN_LEASE, _LEAST_LEASE = 60.0, 0.5
# How long a call waits for a preempted session to be resumed, and the pause between two looks of its lease's keeper.
PREEMPTED_PATIENCE, _PREEMPTED_PAUSE = 600.0, 2.0
_PROBE_TIMEOUT = 2.0
# Requests that wait for a reviewer in a reviewed sandbox; cells and commands wait as executions.
REVIEWED = frozenset(
    {
        "AnswerInputRequest",
        "CreateContextRequest",
        "RestoreStateRequest",
        "SendInputRequest",
        "ApplyRequest",
        "ServiceManagerServiceStartRequest",
        "RestartRequest",
        "WriteRequest",
        "ExtractRequest",
        "MakeDirRequest",
        "MoveRequest",
        "RemoveRequest",
    }
)
_LOOK_TIMEOUT = 5.0
_PROBE_BACKOFF = Backoff(0.02, 0.5, chance=None)


def trace_metadata() -> Metadata:
    """Return the metadata that continues the current trace, if there is one."""
    parent = tracing.traceparent()
    return (("traceparent", parent),) if parent else ()


class Relay(Protocol):
    """Another way to an executor than its own address."""

    # Why it led nowhere the last time; None if it did not.
    refusal: SandfleetError | None

    @property
    def address(self) -> str: ...
    def retire(self) -> None: ...
    async def close(self) -> None: ...


class Connection:
    """A channel to one incarnation of an executor, with its token."""

    def __init__(
        self, sandbox: api.fleet.Sandbox, access: api.fleet.Access, relay: Relay | None, *, reviewed: bool
    ) -> None:
        self.uid = uid = sandbox.sandbox_uid
        # Executors of the sandbox that had ended before this one.
        self.restarts = sandbox.restarts
        self.access = access
        self._is_reviewed = reviewed
        self._relay = relay
        self.channel = open_channel(relay.address if relay else access.address, ca=access.ca_pem, name=uid)

    @property
    def is_relayed(self) -> bool:
        """Whether it leads another way than to the executor's own address."""
        return self._relay is not None

    @property
    def refusal(self) -> SandfleetError | None:
        """Why the way to the executor is closed, if it is known."""
        return self._relay.refusal if self._relay else None

    def retire(self) -> None:
        """Connect no more; calls that run go on."""
        if self._relay:
            self._relay.retire()

    async def close(self) -> None:
        """Close it; running calls fail."""
        await self.channel.close(None)
        if self._relay:
            await self._relay.close()

    @cached_property
    def interpreter(self) -> api.interpreter_grpc.InterpreterServiceAsyncStub:
        """Contexts and cells."""
        return api.interpreter_grpc.InterpreterServiceStub(self.channel)

    @cached_property
    def process(self) -> api.process_grpc.ProcessServiceAsyncStub:
        """Commands."""
        return api.process_grpc.ProcessServiceStub(self.channel)

    @cached_property
    def filesystem(self) -> api.filesystem_grpc.FilesystemServiceAsyncStub:
        """Files."""
        return api.filesystem_grpc.FilesystemServiceStub(self.channel)

    @cached_property
    def services(self) -> api.service_grpc.ServiceManagerServiceAsyncStub:
        """Services."""
        return api.service_grpc.ServiceManagerServiceStub(self.channel)

    @cached_property
    def port(self) -> api.port_grpc.PortServiceAsyncStub:
        """Ports inside the sandbox."""
        return api.port_grpc.PortServiceStub(self.channel)

    @cached_property
    def session(self) -> api.session_grpc.SessionServiceAsyncStub:
        """The sandbox as a whole."""
        return api.session_grpc.SessionServiceStub(self.channel)

    @cached_property
    def tools(self) -> api.tools_grpc.ToolBrokerServiceAsyncStub:
        """Tools of this process that code in the sandbox calls."""
        return api.tools_grpc.ToolBrokerServiceStub(self.channel)

    @cached_property
    def journal(self) -> api.journal_grpc.JournalServiceAsyncStub:
        """The record of the session."""
        return api.journal_grpc.JournalServiceStub(self.channel)

    def metadata(self) -> AnyMetadata:
        """Return the metadata of each call."""
        said = intent.metadata() if self._is_reviewed else ()
        return (("authorization", f"Bearer {self.access.token}"), *trace_metadata(), *said)

    def token_ends_at(self) -> float:
        """Return when the token ends, in seconds of the epoch."""
        expires = self.access.token_expires
        return expires.seconds + expires.nanos / 1e9 if expires.seconds else float("inf")


class FleetCalls(Protocol):
    """The calls of a fleet that a link needs."""

    async def access(self, sandbox_id: str, *, wait: float) -> tuple[api.fleet.Sandbox, api.fleet.Access]: ...
    async def wake(self, sandbox_id: str, *, wait: float) -> tuple[api.fleet.Sandbox, api.fleet.Access]: ...
    async def renew(self, sandbox_id: str, lease: float | None) -> tuple[api.fleet.Sandbox, api.fleet.Access]: ...
    async def get(self, sandbox_id: str) -> SandboxInfo: ...
    async def release(self, sandbox_id: str, *, unless_suspended: bool = False) -> bool: ...
    async def suspend(self, sandbox_id: str, *, force: bool, timeout: float | None, to: SuspendTo) -> Suspension: ...
    async def note_received(self, sandbox_id: str, marks: Sequence[str]) -> frozenset[str]: ...
    async def sign_journal(self, sandbox_id: str) -> Sequence[SignedHead]: ...
    async def review_call(self, request: api.fleet.ReviewCallRequest) -> Decision: ...
    def relay(self, sandbox_id: str, access: api.fleet.Access) -> Relay | None: ...


class Link:
    """The link to one sandbox: always to its current executor."""

    def __init__(
        self, fleet: FleetCalls, sandbox: api.fleet.Sandbox, access: api.fleet.Access, *, rpc_timeout: float
    ) -> None:
        self._home = Home()
        self.fleet = fleet
        self.sandbox_id = sandbox.sandbox_id
        self.is_reviewed, self.is_brokered = (sandbox.contract == one for one in ("reviewed", "brokered"))
        self._connection = self._connect(sandbox, access)
        self._refreshing = asyncio.Lock()
        self._ended: SandboxEnded | SandboxSuspended | None = None
        # `wakes`: whether a call resumes the session that has fallen asleep by itself.
        self._closed, self._next_refresh, self.wakes = False, 0.0, False
        self._tasks: set[asyncio.Task[None]] = set()
        self.preemptions, self.heads = Preemptions(sandbox.sandbox_id), KeptHeads()
        expires = sandbox.lease_expires
        self.lease = LeaseKeeper(self, expires.ToNanoseconds() / 1e9 if expires.seconds else None)
        self.rpc_timeout = rpc_timeout
        # Contexts, commands and terminals of this client begin in this folder; "" stands for the workspace.
        self.cwd = ""

    @property
    def uid(self) -> str:
        """The uid of the executor's current incarnation."""
        return self._connection.uid

    @property
    def is_relayed(self) -> bool:
        """Whether another way than the executor's own address is used."""
        return self._connection.is_relayed

    @property
    def state(self) -> str:
        """What this client knows of the sandbox: "open", "suspended", "closed", or "ended" with the reason."""
        if isinstance(self._ended, SandboxSuspended):
            return "suspended"
        if self._ended is not None:
            return f"ended: {self._ended.reason}" if self._ended.reason else "ended"
        return "closed" if self._closed else "open"

    @property
    def _may_wake(self) -> bool:
        return self.wakes and not _LOOKS.get()

    async def connection(self) -> Connection:
        """Return the connection to use now, with a token that lives long enough. Raises SandboxEnded."""
        self._check_open()
        left = self._connection.token_ends_at() - time.time()
        if left <= 0:
            try:
                await self._refresh(self._connection, self._connection.access.token, self.rpc_timeout)
            except SandboxPreempted as error:
                self.preemptions.heard(error)
                await self.recover(self._connection)
        elif left < _TOKEN_MARGIN and asyncio.get_running_loop().time() >= self._next_refresh:
            await self._refresh_early()
        return self._connection

    async def _refresh_early(self) -> None:
        """Get a new token; if the fleet does not answer, ask again later, without disturbing running calls."""
        connection = self._connection
        # Other calls continue with the old token meanwhile.
        self._next_refresh = float("inf")
        try:
            with suppress(UnavailableError, RpcTimeout, SandboxPreempted):
                await self._refresh(connection, connection.access.token, min(_EARLY_REFRESH, self.rpc_timeout))
        finally:
            self._next_refresh = asyncio.get_running_loop().time() + _REFRESH_PAUSE

    async def unary(
        self,
        method: Callable[[Connection], api.aio.UnaryUnaryMultiCallable[Request, Response]],
        request: Request,
        *,
        idempotent: bool = False,
        timeout: float | None = None,
    ) -> Response:
        """Call one RPC. An `idempotent` RPC is called again when its connection broke."""
        patience = patience_of(self, request.DESCRIPTOR.name, timeout or self.rpc_timeout)

        async def attempt(connection: Connection) -> Response:
            most = None if patience == inf else patience
            call = method(connection)(request, metadata=connection.metadata(), timeout=most)
            return await heard(self.heads, connection.uid, call)

        with tracing.call(*tracing.rpc(request.DESCRIPTOR)):
            return await self.run(attempt, resend=idempotent)

    async def run(self, attempt: Callable[[Connection], Awaitable[Answer]], *, resend: bool) -> Answer:
        """Make an attempt, and further ones if nothing can happen twice: not sent, turned away, or `resend`.

        Raises the typed error of the last one.
        """
        for left in reversed(range(_ATTEMPTS)):
            connection = await self.connection()
            token = connection.access.token
            try:
                return await attempt(connection)
            except api.aio.AioRpcError as error:
                code = error.code().name
                if left and code == "UNAUTHENTICATED":
                    await self._refresh(connection, token, self.rpc_timeout)
                elif left and may_resend(error, resend=resend, wakes=self._may_wake):
                    await self.recover(connection)
                else:
                    raise to_error(error) from error
            except TimeoutError as error:
                raise rpc_timeout_error(self.rpc_timeout) from error
            except asyncio.CancelledError:
                if self.was_closed_under():
                    raise self._closed_error() from None
                raise
        raise AssertionError("the last attempt returns or raises")

    def was_closed_under(self) -> bool:
        """Return whether a cancellation came from `close`: gRPC shows it as a cancellation of the caller's task."""
        return self._closed and not was_cancelled()

    async def recover(self, broken: Connection) -> None:
        """Wait for an executor that answers, after `broken` did not. Raises SandboxEnded, UnavailableError."""
        self._check_open()
        async with self._refreshing:
            if self._connection is broken:
                self._connection = await self._find_answering()
                self.preemptions.over()
                broken.retire()

    async def _find_answering(self) -> Connection:
        clock = asyncio.get_running_loop().time
        began, deadline = clock(), clock() + self.rpc_timeout
        failures = 0
        while True:
            # The fleet may not have noticed the executor's end yet, and name the dead one.
            candidate = await self._try_access(min(_LOOK_TIMEOUT, max(1.0, deadline - clock())))
            if candidate is not None and await answers(candidate):
                return candidate
            refusal = candidate.refusal if candidate is not None else None
            if candidate is not None:
                await candidate.close()
            if refusal is not None and (not refusal.retryable or clock() > deadline):
                raise refusal
            if (preempted := self.preemptions.now) is not None:
                if clock() > began + PREEMPTED_PATIENCE:
                    raise SandboxPreempted(preempted.message, reason="SandboxPreempted", retryable=True)
                deadline = clock() + self.rpc_timeout
            if clock() > deadline:
                raise UnavailableError(
                    f"cannot reach the executor of sandbox {self.sandbox_id}: no answer for {self.rpc_timeout:g} s",
                    reason="ExecutorSilent",
                    retryable=True,
                )
            failures += 1
            await asyncio.sleep(_PROBE_BACKOFF.after(failures))

    async def _try_access(self, wait: float) -> Connection | None:
        try:
            return self._connect(*await self._access(wait))
        except RpcTimeout:
            # The replacement is still starting; asking again costs nothing.
            return None
        except SandboxPreempted as error:
            self.preemptions.heard(error)
            return None
        except PreconditionFailed as error:
            # The same, from a fleet that does not wait for the replacement.
            if not error.retryable:
                raise
            return None

    async def _refresh(self, connection: Connection, token: str, wait: float) -> None:
        async with self._refreshing:
            if self._connection is connection and connection.access.token == token:
                sandbox, access = await self._access(wait)
                if not self._take_token(sandbox.sandbox_uid, access):
                    self._connection = self._connect(sandbox, access)
                    connection.retire()

    async def _access(self, wait: float) -> tuple[api.fleet.Sandbox, api.fleet.Access]:
        try:
            return await (self.fleet.wake if self._may_wake else self.fleet.access)(self.sandbox_id, wait=wait)
        except SandboxEnded as error:
            # A session that a snapshot keeps is no longer with its fleet: the next call wakes it.
            self._ended = None if self.wakes and not self._may_wake else error
            raise

    def _connect(self, sandbox: api.fleet.Sandbox, access: api.fleet.Access) -> Connection:
        return Connection(sandbox, access, self.fleet.relay(self.sandbox_id, access), reviewed=self.is_reviewed)

    def _take_token(self, uid: str, access: api.fleet.Access) -> bool:
        """Use a new token if it is for the connected executor. Returns whether it is."""
        same = uid == self._connection.uid and access.address == self._connection.access.address
        if same:
            self._connection.access = access
        return same

    async def renew(self, lease: float | None) -> SandboxInfo:
        """Renew the lease for so many seconds; None means as at the claim. Raises SandboxEnded."""
        self._check_open()
        sandbox, access = await self.fleet.renew(self.sandbox_id, lease)
        self._take_token(sandbox.sandbox_uid, access)
        return convert.sandbox(sandbox)

    async def keep(self, lease: float | None) -> float | None:
        """Renew the lease; return in how many seconds to renew it again, None for never."""
        try:
            info = await self.renew(lease)
        except SandboxEnded as error:
            self._ended = None if self.wakes else error
            return _PREEMPTED_PAUSE if self.wakes else None
        except SandboxPreempted as error:
            self.preemptions.heard(error)
            return _PREEMPTED_PAUSE
        except SandfleetError as error:
            # A fleet without leases has none to renew. Otherwise the fleet may be away for a moment: the rest of the
            # lease allows more attempts.
            return None if error.reason == "Unimplemented" else (lease or _UNKNOWN_LEASE) / 10
        self.preemptions.over()
        return (lease or _lease_left(info)) / 2

    async def suspend(self, *, force: bool, timeout: float | None, to: SuspendTo = "volume") -> Suspension:
        """Suspend the session; calls of this object are refused from then on."""
        self._check_open()
        kept = await self.fleet.suspend(self.sandbox_id, force=force, timeout=timeout, to=to)
        self.lease.stop()
        self._ended = suspended_error(self.sandbox_id)
        return kept

    async def release(self, *, unless_suspended: bool = False) -> bool:
        """End the sandbox; return whether it existed. `unless_suspended`: one that sleeps is left so."""
        if unless_suspended and isinstance(self._ended, SandboxSuspended):
            return False
        released = await self.fleet.release(self.sandbox_id, unless_suspended=unless_suspended)
        self._ended = SandboxEnded(f"cannot use sandbox {self.sandbox_id}: it was killed", reason="Killed")
        return released

    async def known(self) -> SandboxInfo:
        """Return what the fleet knows of the sandbox, without asking the executor."""
        return await self.fleet.get(self.sandbox_id)

    async def info(self) -> SandboxInfo:
        """Join the answers of the fleet and of the executor. A session that sleeps is not woken: the fleet knows it."""
        known = await self.known()
        try:
            with looking():
                said = await self.unary(lambda c: c.session.Describe, api.session.DescribeRequest(), idempotent=True)
        except SandboxSuspended:
            return await self.known()
        return replace(
            known,
            separations=tuple(said.separations[:32]),
            kernel=said.kernel,
            languages=tuple(said.languages[:32]),
            python_version=said.python_version,
            executor_version=said.executor_version,
            limits=convert.limits(said.limits),
            packages=convert.installation(said.packages) if said.HasField("packages") else None,
            mounts=dict(sorted(said.mounts.items())[:32]),
            preload=convert.preloaded(said.preload),
        )

    async def environment(self) -> Environment:
        """Ask for the environment of code in the sandbox."""
        said = await self.unary(
            lambda c: c.session.GetEnvironment, api.session.GetEnvironmentRequest(), idempotent=True
        )
        return convert.environment(said)

    async def health(self) -> Health:
        """Ask whether the sandbox can run code; no answer means that it cannot. It wakes no session that sleeps."""
        try:
            with looking():
                said = await self.unary(lambda c: c.session.Health, api.session.HealthRequest(), idempotent=True)
        except SandfleetError as error:
            return Health(ready=False, message=error.message)
        return Health(ready=said.ready, message=said.message)

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        """Run work in the background whose failure does not matter; it ends with the link."""
        task = asyncio.ensure_future(_quietly(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Finish background work and close the connection; running calls fail."""
        if self._home.was_forked:
            # The connection is the parent's.
            return
        self.check_home()
        while self._tasks:
            await asyncio.gather(*self._tasks)
        if not self._closed:
            self._closed = True
            await self._connection.close()

    def check_home(self) -> None:
        """Raise UnavailableError in a forked child, and PreconditionFailed in another event loop."""
        self._home.check(f"sandbox {self.sandbox_id}")

    def _check_open(self) -> None:
        self.check_home()
        if self._ended is not None:
            raise type(self._ended)(self._ended.message, reason=self._ended.reason, subject=self.sandbox_id)
        if self._closed:
            raise self._closed_error()

    def _closed_error(self) -> UnavailableError:
        return UnavailableError(f"cannot use sandbox {self.sandbox_id}: this object was closed", reason="Closed")


def suspended_error(sandbox_id: str) -> SandboxSuspended:
    """Make the error of an object whose session it has suspended."""
    resume = f"resume it with Sandbox.resume({sandbox_id!r})"
    return SandboxSuspended(f"cannot use sandbox {sandbox_id}: it is suspended; {resume}", reason="SandboxSuspended")


def rpc_timeout_error(seconds: float) -> RpcTimeout:
    """Make the error of a call that got no answer."""
    return RpcTimeout(f"cannot go on: no answer for {seconds:g} s", reason="RpcTimeout", retryable=True)


async def receive(
    call: api.aio.UnaryStreamCall[Any, Answer] | api.aio.StreamStreamCall[Any, Answer],
) -> Answer | None:
    """Read the next message of a stream; None at its end."""
    message = await call.read()
    return None if message is api.aio.EOF else cast("Answer", message)  # type: ignore[attr-defined]  # the stubs lack it


async def receive_within(seconds: float, call: api.aio.UnaryStreamCall[Any, Answer]) -> Answer | None:
    """Read the next message of a stream; None at its end. Raises RpcTimeout."""
    message = receive(call)
    return await within(seconds, message)


def patience_of(link: Link, request: str, usual: float) -> float:
    """Return how long a call may take, in seconds: without end where a person has to approve it first."""
    return inf if link.is_reviewed and request in REVIEWED else usual


async def within(seconds: float, answer: Awaitable[Answer]) -> Answer:
    """Wait for one answer of a stream. Raises RpcTimeout."""
    try:
        async with asyncio.timeout(seconds):
            return await answer
    except TimeoutError as error:
        raise rpc_timeout_error(seconds) from error


def was_cancelled() -> bool:
    """Return whether the caller's task was cancelled: gRPC raises the same for a call that was."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


async def answers(connection: Connection) -> bool:
    """Return whether the executor of this connection answers."""
    try:
        await connection.session.Health(
            api.session.HealthRequest(), metadata=connection.metadata(), timeout=_PROBE_TIMEOUT
        )
    except api.aio.AioRpcError as error:
        # An executor that refuses with a reason is alive.
        return detail(error) is not None and error.code().name != "UNAVAILABLE"
    return True


@contextmanager
def looking() -> Iterator[None]:
    """Let the calls made in it wake no session that has fallen asleep: they raise SandboxSuspended."""
    token = _LOOKS.set(True)
    try:
        yield
    finally:
        _LOOKS.reset(token)


def _lease_left(info: SandboxInfo) -> float:
    left = info.lease_expires.timestamp() - time.time() if info.lease_expires else _UNKNOWN_LEASE
    return max(_LEAST_LEASE, left)


async def _quietly(work: Coroutine[Any, Any, object]) -> None:
    with suppress(SandfleetError):
        await work
